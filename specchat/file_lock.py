"""Locks of files, which the system releases when their process ends: by fcntl, or by msvcrt on Windows.

A lock belongs to the open file, and a lock of one byte to the process. Windows forbids others to read what is locked,
so a file is locked there at a byte far behind its content. Knows no path and no process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

WHOLE_FILE_BYTE = 2**30


@dataclass(frozen=True)
class FileLocks:
    """How a system locks. The functions raise BlockingIOError or PermissionError where another one holds the lock."""

    lock_file: Callable[[IO[Any]], None]
    lock_byte: Callable[[IO[Any], int], None]
    unlock_byte: Callable[[IO[Any], int], None]


def try_lock(file: IO[Any]) -> bool:
    """Lock the file until it is closed; False when another holder has it. OSError on a file system without locks."""
    try:
        _LOCKS.lock_file(file)
    except (BlockingIOError, PermissionError):
        return False
    return True


def try_lock_byte(file: IO[Any], place: int) -> bool:
    """Lock one byte, which need not exist; False when another process has it."""
    try:
        _LOCKS.lock_byte(file, place)
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock_byte(file: IO[Any], place: int) -> None:
    _LOCKS.unlock_byte(file, place)


def _posix_locks() -> FileLocks:
    fcntl: Any = import_module("fcntl")
    now = fcntl.LOCK_EX | fcntl.LOCK_NB
    return FileLocks(
        lambda file: fcntl.flock(file, now),
        lambda file, place: fcntl.lockf(file, now, 1, place),
        lambda file, place: fcntl.lockf(file, fcntl.LOCK_UN, 1, place),
    )


def _windows_locks() -> FileLocks:
    msvcrt: Any = import_module("msvcrt")

    def at_byte(mode: int, file: IO[Any], place: int) -> None:
        with _kept_position(file):
            file.seek(place)
            msvcrt.locking(file.fileno(), mode, 1)

    return FileLocks(
        lambda file: at_byte(msvcrt.LK_NBLCK, file, WHOLE_FILE_BYTE),
        lambda file, place: at_byte(msvcrt.LK_NBLCK, file, place),
        lambda file, place: at_byte(msvcrt.LK_UNLCK, file, place),
    )


@contextmanager
def _kept_position(file: IO[Any]) -> Generator[None]:
    position = file.seek(0, os.SEEK_CUR)
    try:
        yield
    finally:
        file.seek(position)


def _system_locks() -> FileLocks:
    try:
        return _posix_locks()
    except ImportError:
        return _windows_locks()


_LOCKS = _system_locks()
