"""A program on a terminal of its own, to be watched from outside."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from specchat.errors import InputError

TERMINAL_COLUMNS, TERMINAL_LINES = 100, 30
READ_BYTES = 2**16


class PtyProgram(AbstractContextManager["PtyProgram"]):
    """100 columns by 30 lines. Leaving the context kills the program."""

    def __init__(self, command: Sequence[str]) -> None:
        self._pid, self._master_fd = pty.fork()
        if not self._pid:
            os.execvp(command[0], list(command))  # noqa: S606 (there is nothing for a shell to do)
        fcntl.ioctl(self._master_fd, termios.TIOCSWINSZ, struct.pack("HHHH", TERMINAL_LINES, TERMINAL_COLUMNS, 0, 0))
        self._output = b""

    def __exit__(self, *_error: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._master_fd)

    def type(self, text: str) -> None:
        """As if by a person."""
        os.write(self._master_fd, text.encode())

    def read(self, timeout_seconds: float) -> bytes:
        """What the program shows next; nothing, if it shows nothing within this time. InputError when it has ended."""
        readable, _, _ = select.select([self._master_fd], [], [], timeout_seconds)
        if not readable:
            return b""
        try:
            return os.read(self._master_fd, READ_BYTES)
        except OSError:
            raise InputError(f"the program ended: {self._output[-500:].decode(errors='replace')}") from None

    def wait_for(self, expected: bytes | re.Pattern[bytes], timeout_seconds: float) -> re.Match[bytes]:
        """Read until this is shown. InputError when it does not come."""
        pattern = re.compile(re.escape(expected)) if isinstance(expected, bytes) else expected
        until, self._output = time.monotonic() + timeout_seconds, b""
        while time.monotonic() < until:
            self._output += self.read(until - time.monotonic())
            if found := pattern.search(self._output):
                return found
        raise InputError(f"{expected!r} was not shown within {timeout_seconds:.0f} s: {self._output[-500:]!r}")

    @property
    def cpu_seconds(self) -> float:
        """What the process has computed so far. InputError where the system does not tell."""
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            raise InputError("the CPU time of a process is read from /proc, which is not here") from None
        user, system = int(fields[11]), int(fields[12])
        return (user + system) / os.sysconf("SC_CLK_TCK")
