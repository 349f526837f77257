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

COLUMNS, LINES = 100, 30
READ_BYTES = 2**16


class Terminal(AbstractContextManager["Terminal"]):
    """100 columns by 30 lines. Leaving the context kills the program."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process, self._master = pty.fork()
        if not self._process:
            os.execvp(command[0], list(command))  # noqa: S606 (there is nothing for a shell to do)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._shown = b""

    def __exit__(self, *_error: object) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._master)

    def type(self, text: str) -> None:
        """As if by a person."""
        os.write(self._master, text.encode())

    def read(self, seconds: float) -> bytes:
        """What the program shows next; nothing, if it shows nothing within this time. InputError when it has ended."""
        readable, _, _ = select.select([self._master], [], [], seconds)
        if not readable:
            return b""
        try:
            return os.read(self._master, READ_BYTES)
        except OSError:
            raise InputError(f"the program ended: {self._shown[-500:].decode(errors='replace')}") from None

    def wait_for(self, wanted: bytes | re.Pattern[bytes], seconds: float) -> re.Match[bytes]:
        """Read until this is shown. InputError when it does not come."""
        pattern = re.compile(re.escape(wanted)) if isinstance(wanted, bytes) else wanted
        until, self._shown = time.monotonic() + seconds, b""
        while time.monotonic() < until:
            self._shown += self.read(until - time.monotonic())
            if found := pattern.search(self._shown):
                return found
        raise InputError(f"{wanted!r} was not shown within {seconds:.0f} s: {self._shown[-500:]!r}")

    @property
    def cpu_seconds(self) -> float:
        """What the process has computed so far. InputError where the system does not tell."""
        try:
            fields = Path(f"/proc/{self._process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            raise InputError("the CPU time of a process is read from /proc, which is not here") from None
        user, system = int(fields[11]), int(fields[12])
        return (user + system) / os.sysconf("SC_CLK_TCK")
