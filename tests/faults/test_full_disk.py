"""What is written beside answers, where the disk has no room: locks hold, and only their holder is not named."""

from specchat.host.host_lock import host_lock, running_host, write_holder
from specchat.host.spawn import file_lock
from tests.faults.full_disk import full_disk, without_limits

pytestmark = without_limits


def test_a_lock_holds_on_a_full_disk(tmp_path):
    with full_disk(), file_lock(tmp_path / "spawn.lock"):
        pass

    assert b"" == (tmp_path / "spawn.lock").read_bytes()


def test_an_engine_process_starts_on_a_full_disk(runtime):
    with host_lock() as lock, full_disk():
        write_holder(lock)

    assert running_host() is None
