"""Weights of a GGUF file that the memory does not hold: the same text, from files that may become shorter."""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.errors import ModelError
from specchat.forward.linear.linear import NativeLinear
from specchat.forward.linear.packed_linear import PackedLinear
from specchat.forward.llama.embedding_rows import EmbeddingRows
from specchat.forward.native.native_ops import NativeKernels
from specchat.hub.remove import plan_removal
from specchat.paths import kept_weights_folder, kept_weights_of
from specchat.weights import kept_weights, mapped_files
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.gguf_models import network, write_gguf
from tests.tiny import answer

PROMPT = list(range(5, 25))
pytestmark = pytest.mark.usefixtures("native_library")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_weights, "SPARE_DISK_BYTES", 0)


def load(path: Path, *, maps: bool = True, report=lambda *_: None) -> Model:
    options = LoadOptions("bfloat16", "cpu", 256, quant_format="gguf", maps_weights=maps)
    return load_model(prepared_gguf(path), options, report)


def text(model: Model, drafter: Drafter | None = None) -> list[int]:
    return answer(model, drafter or Drafter(), PROMPT, Sampler(0.8, seed=1), limit=12)


def files_of(path: Path) -> list[Path]:
    return [file for folder in kept_weights_of(prepared_gguf(path)) for file in sorted(folder.iterdir())]


def in_child(compute: Callable[[], str]) -> tuple[int, str]:
    """What a fork of this process returns, and how it ended: a signal must not end the test run."""
    readable, writable = os.pipe()
    if (child := os.fork()) == 0:
        try:
            torch.set_num_threads(1)
            os.write(writable, compute().encode())
        finally:
            os._exit(0)
    os.close(writable)
    status = os.waitpid(child, 0)[1]
    with os.fdopen(readable, encoding="utf-8") as said:
        return os.waitstatus_to_exitcode(status), said.read()


@each_row(
    "family, storage, tied",
    [
        ("llama", "Q4_0", True),
        ("llama", "Q8_0", False),
        ("qwen2", "Q4_1", True),
        ("qwen3moe", "Q8_0", True),
        ("gpt-oss", "Q8_0", False),
        ("qwen35", "Q8_0", True),
        ("gemma4", "Q5_0", True),
        ("llama", "F16", False),
    ],
    shares=3,
)
def test_weights_in_files_write_the_same_text(tmp_path, family, storage, tied):
    """LM head, experts, layers with reordered inputs, and blocks that no kernel multiplies are in files, too."""
    path = write_gguf(tmp_path / "model.gguf", family, storage=storage, model=network(family, tied))
    expected = text(load(path, maps=False))
    model = load(path)

    assert expected == text(model)
    assert expected == text(load(path))
    assert isinstance(model.lm_head, NativeLinear if storage == "F16" else PackedLinear)
    assert isinstance(model.weights.embedding, EmbeddingRows)
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert all(file.name in mapped for file in files_of(path))


def test_their_bytes_are_not_those_of_the_process(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", storage="Q8_0")
    whole, mapped = load(path, maps=False), load(path)

    written = sum(file.stat().st_size for file in files_of(path))
    assert mapped.bytes < 0.1 * whole.bytes < whole.bytes - mapped.bytes < written


def test_the_experts_of_a_layer_are_one_file(tmp_path):
    load(path := write_gguf(tmp_path / "model.gguf", "qwen3moe", storage="Q8_0"))

    assert len(files_of(path)) == 1 + 2 * 3  # the LM head; QKV, output and experts of two layers


class Cutter(Drafter):
    """Drafts nothing, and makes files shorter in the middle of an answer."""

    def __init__(self, *files: Path, bytes_left: int = 0) -> None:
        self.files, self.bytes_left, self.calls = files, bytes_left, 0

    def propose(self, context: DraftContext) -> DraftTree:
        self.calls += 1
        for file in self.files if self.calls == 5 else ():
            os.truncate(file, self.bytes_left)
        return super().propose(context)


@each_row("number, bytes_left", [(None, 0), (0, 0), (3, 1), (2, 700)])
def test_a_file_that_becomes_shorter_ends_the_answer_and_not_the_process(tmp_path, number, bytes_left):
    path = write_gguf(tmp_path / "model.gguf", storage="Q8_0")
    expected = text(load(path, maps=False))

    def cut_answer() -> str:
        model, other = load(path), load(path, maps=False)
        files = files_of(path)
        with pytest.raises(ModelError) as first:
            text(model, Cutter(*(files if number is None else files[number : number + 1]), bytes_left=bytes_left))
        with pytest.raises(ModelError):  # from now on
            text(model)
        assert expected == text(other)
        return str(first.value)

    status, said = in_child(cut_answer)

    assert status == 0
    assert "became shorter, or changed, while it was mapped" in said and "\n" not in said
    assert expected == text(load(path))  # what is missing is made anew
    assert expected == text(load(path))


def test_other_faults_go_to_the_handler_that_was_there(tmp_path):
    (tmp_path / "other").write_bytes(bytes(2 * mmap.PAGESIZE))

    def fault() -> str:
        with (tmp_path / "report").open("w") as report:
            faulthandler.enable(report)
            model = load(write_gguf(tmp_path / "model.gguf", storage="Q8_0"))
            with (tmp_path / "other").open("r+b") as file, mmap.mmap(file.fileno(), 0) as other:
                file.truncate(0)
                return str((other[0], model))

    assert in_child(fault) == (-signal.SIGBUS, "")
    assert "Bus error" in (tmp_path / "report").read_text(encoding="utf-8")


def test_damaged_and_missing_files_are_made_anew_one_by_one(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", storage="Q8_0")
    expected = text(load(path))
    first, second, *others = files_of(path)
    times = [each.stat().st_mtime_ns for each in others]
    first.write_bytes(b"PK")
    second.unlink()

    assert expected == text(load(path))
    assert files_of(path) == [first, second, *others]
    assert times == [each.stat().st_mtime_ns for each in others]


def test_the_disk_is_asked_first(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_weights, "SPARE_DISK_BYTES", 2**60)

    with pytest.raises(ModelError, match="the memory does not hold its weights, and neither does the disk"):
        load(write_gguf(tmp_path / "model.gguf", storage="Q8_0"))
    assert not [*kept_weights_folder().iterdir()]


def test_progress_is_told_and_what_is_interrupted_leaves_nothing(tmp_path):
    path, told = write_gguf(tmp_path / "model.gguf", storage="Q8_0"), list[tuple[str, int, int]]()

    def stop(what: str, done: int, total: int) -> None:
        told.append((what, done, total))
        if len(told) == 3:
            raise ModelError("stopped")

    with pytest.raises(ModelError, match="stopped"):
        load(path, report=stop)
    assert not [*kept_weights_folder().iterdir()]
    assert {what for what, _done, _total in told} == {"writing weights that stay on the disk"}
    done = [done for _what, done, _total in told]
    assert done == sorted(set(done)) and done[-1] < told[-1][2] == path.stat().st_size


def test_what_a_killed_process_left_is_removed(tmp_path):
    left = kept_weights_folder() / f"name.1{kept_weights.UNFINISHED}"
    left.mkdir(parents=True)
    load(write_gguf(tmp_path / "model.gguf", storage="Q8_0"))
    assert left.exists()  # another process may be writing it

    os.utime(left, (1, 1))
    load(write_gguf(tmp_path / "another.gguf", storage="Q8_0"))
    assert not left.exists()


def test_without_native_kernels_nothing_is_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_files, "native_kernels", lambda: NativeKernels(None, "no C++ compiler"))

    with pytest.raises(ModelError, match=r"only native kernels can leave them on the disk \(no C\+\+ compiler\)"):
        load(write_gguf(tmp_path / "model.gguf", storage="Q8_0"))


def test_they_are_removed_with_what_was_made_from_their_file(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", storage="Q8_0")
    load(path)
    written = files_of(path)

    plan_removal(str(path)).run()
    assert written and path.exists() and not any(file.exists() for file in written)

    load(path)
    write_gguf(path, "qwen3", storage="Q4_0")
    prepared_gguf(path)  # which removes what was made from the file that was there
    assert not any(file.exists() for file in written)
