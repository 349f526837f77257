"""What is written beside answers, where the disk has no room: locks hold, and the host is still found and stopped."""

from __future__ import annotations

import sys

import pytest

from specchat.host import host_lock as lock_of_host
from specchat.host.client import connect
from specchat.host.host_lock import host_lock, running_host, write_holder
from specchat.host.spawn import file_lock
from tests.faults.full_disk import full_disk, without_limits
from tests.front import command
from tests.host.conftest import FAKE_HOST
from tests.host.test_spawn import is_alive, until

pytestmark = without_limits
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
    monkeypatch.setattr(lock_of_host, "STOP_SECONDS", 0.5 if options else 60.0)
    pid = connect("test").host_info["pid"]
    with full_disk(), (runtime / "host.lock").open("r+b") as lock:
        lock.truncate(0)  # as the host left it
        assert running_host() == pid

        ran = command(monkeypatch, "host", "stop")

    assert (ran.code, f"(process {pid})" in ran.out.decode()) == (0, True)
    until(lambda: not is_alive(pid))
