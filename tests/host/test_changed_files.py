"""Files of a loaded model that are deleted, moved, replaced, touched or shortened while another model answers."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Condition, Thread

import pytest

from specchat.chat.events import Event, Failed, Finished
from specchat.forward.llama.llama import LlamaModel
from specchat.host.engine_loader import EngineLoader
from specchat.host.queue import TurnQueue
from specchat.host.queued_work import TurnEvent
from specchat.loading import load_engine
from specchat.loading.fitted_plan import plan_that_fits
from specchat.loading.load_plan import LoadPlan
from specchat.paths import kept_weights_folder
from specchat.profile.keys import Profile
from specchat.weights import kept_weights
from tests.gguf_models import write_gguf
from tests.host.test_queue import ask
from tests.tiny import speaking


class Host:
    """The queue of a host with real models, and how its turns ended."""

    def __init__(self) -> None:
        self.ends: dict[str, Event] = {}
        self.loaded: list[str] = []
        self.changed = Condition()
        host = self

        class Loader(EngineLoader):
            def load(self, profile, progress, cancelled):
                host.loaded.append(profile.models.target)
                return super().load(profile, progress, cancelled)

        self.queue = TurnQueue(Loader(), self.emit)

    def emit(self, event: TurnEvent) -> None:
        if isinstance(event.event, Finished | Failed):
            with self.changed:
                self.ends[event.turn_id] = event.event
                self.changed.notify_all()

    def ask(self, model: Path, text: str) -> Event:
        """How the turn ends; it is that of a conversation of its own."""
        turn = f"turn {len(self.ends)}"
        ask(self.queue, turn, profile_of(model), turn, text)
        with self.changed:
            assert self.changed.wait_for(lambda: turn in self.ends, 300)
        return self.ends[turn]


def profile_of(model: Path) -> Profile:
    return Profile().override({"models.target": str(model), "models.draft": "", "limits.answer": 3})


@pytest.fixture
def host(tmp_path, monkeypatch) -> Iterator[Host]:
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path / "home"))
    host = Host()
    thread = Thread(target=host.queue.run)
    thread.start()
    yield host
    host.queue.stop()
    thread.join(300)
    assert not thread.is_alive()


def safetensors_at(folder: Path, seed: int = 1) -> tuple[Path, Path]:
    shutil.copytree(speaking(seed=seed), folder)
    return folder, folder / "model.safetensors"


def gguf_at(folder: Path, seed: int = 1) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    path = write_gguf(folder / "model.gguf", storage="Q8_0" if seed == 1 else "F16")
    return path, path


def delete(path: Path, _other: Path) -> None:
    path.unlink()


def replace(path: Path, other: Path) -> None:
    other.replace(path)


def move(path: Path, _other: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


def touch(path: Path, _other: Path) -> None:
    os.utime(path, ns=(1, 1))


def shorten(path: Path, _other: Path) -> None:
    os.truncate(path, 3000)


@pytest.mark.full
@pytest.mark.parametrize("make", [safetensors_at, gguf_at])
@pytest.mark.parametrize("change", [delete, shorten, touch, replace, move])
def test_a_changed_file_hurts_no_other_model_and_heals(host, tmp_path, make, change):
    model, path = make(tmp_path / "model")
    original = shutil.copy2(path, tmp_path / "original")
    another, _ = safetensors_at(tmp_path / "another", seed=2)
    third, _ = safetensors_at(tmp_path / "third", seed=3)
    assert isinstance(host.ask(model, "a b c"), Finished)

    change(path, make(tmp_path / "other", 2)[1])

    for each in (another, third, another):  # their memory is planned beside that of the changed model
        assert isinstance(host.ask(each, "d e f"), Finished)
    changed = host.ask(model, "d e f 0 1 2 [ ]")
    if change is shorten:
        assert isinstance(changed, Failed)
        assert str(path) in changed.message
    else:
        assert isinstance(changed, Finished)
    assert isinstance(host.ask(another, "g h i"), Finished)
    if change in (shorten, delete, move):
        path.parent.mkdir(exist_ok=True)
        shutil.copy2(original, path)
        assert isinstance(host.ask(model, "g h i 3 4 5 ( )"), Finished)
        assert host.loaded[-1] == str(model if change is shorten else third)
    else:
        assert host.loaded.count(str(model)) == 2


@pytest.mark.full
@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("is_answering", [True, False])
def test_a_mapped_file_that_becomes_shorter_hurts_no_other_model_and_heals(host, tmp_path, monkeypatch, is_answering):
    """Of weights that the memory does not hold."""

    def plan_to_map(*arguments: object) -> LoadPlan:
        plan = plan_that_fits(*arguments)
        return dataclasses.replace(plan, target=plan.target.with_options(maps_weights=plan.target.gguf is not None))

    def cut() -> None:
        for file in kept_weights_folder().glob("*/*.pt"):
            os.truncate(file, 0)

    def cutting(model: LlamaModel, *arguments: object) -> object:
        cut()
        return prefill(model, *arguments)

    monkeypatch.setattr(load_engine, "plan_that_fits", plan_to_map)
    monkeypatch.setattr(kept_weights, "SPARE_DISK_BYTES", 0)
    prefill, (model, _), (other, _) = (
        LlamaModel.prefill,
        gguf_at(tmp_path / "model"),
        safetensors_at(tmp_path / "other"),
    )
    assert isinstance(host.ask(model, "a b c"), Finished)
    assert isinstance(host.ask(other, "a b c"), Finished)

    if is_answering:
        monkeypatch.setattr(LlamaModel, "prefill", cutting)
        failed = host.ask(model, "d e f")
        monkeypatch.setattr(LlamaModel, "prefill", prefill)
        assert isinstance(failed, Failed) and "became shorter, or changed, while it was mapped" in failed.message
    else:
        cut()

    for each in (other, model, other):
        assert isinstance(host.ask(each, "g h i"), Finished)
    assert host.loaded.count(str(model)) == 2
