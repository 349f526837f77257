"""Locks of files, by fcntl and by a made-up msvcrt: the same facts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specchat import file_lock
from tests.windows import FakeMsvcrt

OTHER = """
import sys
from pathlib import Path
if sys.argv[2] == "windows":
    from tests.windows import hide_posix
    hide_posix()
from specchat import file_lock
with Path(sys.argv[1]).open("a+b", buffering=0) as file:
    found = [file_lock.try_lock(file), file_lock.try_lock(file, 7)]
    file.seek(0)
    print(*found, file.read().decode())
"""


@pytest.fixture(params=["posix", "windows"])
def system(request, monkeypatch) -> str:
    if request.param == "windows":
        monkeypatch.setattr(file_lock, "MSVCRT", FakeMsvcrt())
        monkeypatch.setattr(file_lock, "FCNTL", None)
    return request.param


def other_process(path: Path, system: str) -> str:
    """Whether another process can lock the file and its seventh byte, and what it reads there."""
    run = subprocess.run(
        [sys.executable, "-c", OTHER, str(path), system], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    return run.stdout.strip()


def test_a_locked_file_can_be_read_but_not_locked_by_another_process(system, tmp_path):
    path = tmp_path / "lock"
    with path.open("a+b", buffering=0) as file:
        assert file_lock.try_lock(file)
        file.write(b"the holder")

        assert other_process(path, system) == "False True the holder"
        file.write(b", still")  # behind the text, wherever the lock is

    assert other_process(path, system) == "True True the holder, still"


def test_bytes_are_locked_one_by_one(system, tmp_path):
    path = tmp_path / "lock"
    with path.open("a+b", buffering=0) as file:
        assert file_lock.try_lock(file, 7) and file_lock.try_lock(file, 8)
        assert other_process(path, system) == "True False"
        file_lock.unlock_byte(file, 7)

        assert other_process(path, system) == "True True"


def test_other_errors_are_not_taken_for_a_lock(system, tmp_path):
    with (tmp_path / "lock").open("a+b", buffering=0) as file:
        file.close()
        with pytest.raises((OSError, ValueError)):
            file_lock.try_lock(file)
