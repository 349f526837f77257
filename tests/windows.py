"""A process without what Windows lacks: modules, calls and signals of POSIX; its locks are those of a made-up msvcrt.

The paths stay those of POSIX, so `os.name` does. Nothing here says that Windows was tried.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from functools import partial
from types import ModuleType
from typing import Any

HIDDEN_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
HIDDEN_NAMES: dict[Any, tuple[str, ...]] = {
    os: ("fork", "getuid", "geteuid", "fchmod", "fchown", "sched_getaffinity"),
    select: ("poll",),
    signal: ("SIGHUP", "SIGKILL", "SIGCONT", "pause"),
    socket: ("AF_UNIX", "SO_PEERCRED"),
}


class FakeMsvcrt(ModuleType):
    """Locks of single bytes at the position of a file, by those of fcntl."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self._fcntl: Any = __import__("fcntl")

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        position, fcntl = os.lseek(descriptor, 0, os.SEEK_CUR), self._fcntl
        if mode == self.LK_UNLCK:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, count, position)
            return
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, position)
        except BlockingIOError as error:
            raise PermissionError(*error.args) from None  # EACCES, as msvcrt reports it


def hide_posix() -> None:
    """For a process of its own, before specchat is imported. Other packages find what they need."""
    import asyncio
    import multiprocessing.util  # noqa: F401
    import subprocess  # noqa: F401

    assert asyncio and not any(name.startswith("specchat.host") for name in sys.modules)
    sys.modules["msvcrt"] = FakeMsvcrt()
    socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)
    for module, names in HIDDEN_NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in HIDDEN_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
