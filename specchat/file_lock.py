"""Locks of files, which the system releases when their process ends: by fcntl, or by msvcrt on Windows.

A lock belongs to the open file, and a lock of one byte to the process. Windows forbids others to read what is locked,
so a file is locked there at a byte far behind its content. Knows no path and no process.
"""

import os
from importlib import import_module
from typing import IO, Any

WHOLE_FILE_BYTE = 2**30


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:  # of the other system
        return None


FCNTL, MSVCRT = _module("fcntl"), _module("msvcrt")


def try_lock(file: IO[Any], byte: int | None = None) -> bool:
    """Lock the file until it is closed, or one byte, which need not exist; False when another holder has it.

    OSError on a file system without locks.
    """
    try:
        if FCNTL is None:
            _at_byte(MSVCRT.LK_NBLCK, file, WHOLE_FILE_BYTE if byte is None else byte)
        elif byte is None:
            FCNTL.flock(file, FCNTL.LOCK_EX | FCNTL.LOCK_NB)
        else:
            FCNTL.lockf(file, FCNTL.LOCK_EX | FCNTL.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock_byte(file: IO[Any], place: int) -> None:
    if FCNTL is None:
        _at_byte(MSVCRT.LK_UNLCK, file, place)
    else:
        FCNTL.lockf(file, FCNTL.LOCK_UN, 1, place)


def _at_byte(mode: int, file: IO[Any], place: int) -> None:
    """Lock or unlock at the position of the file, which stays where it was."""
    position = file.seek(0, os.SEEK_CUR)
    try:
        file.seek(place)
        MSVCRT.locking(file.fileno(), mode, 1)
    finally:
        file.seek(position)
