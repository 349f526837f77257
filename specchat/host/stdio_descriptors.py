"""The standard streams of a server on stdio: only the protocol uses them, and prints go to a log."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import HostError
from specchat.host.spawn import runtime_folder

MAX_LOG_FILES = 5
READ_BYTES = 2**18


@dataclass(frozen=True)
class StdioDescriptors:
    """Copies of the descriptors 0, 1 and 2."""

    stdin: int
    stdout: int
    stderr: int


def redirect_stdio(log_name: str, *, keeps_stderr: bool = False) -> StdioDescriptors:
    """Copy the standard streams, and redirect 1 and 2 to the log file `log_name`.

    stderr goes to the log as well, because some editors show each of its lines as an error.
    """
    sys.stdout.flush()
    originals = StdioDescriptors(os.dup(0), os.dup(1), os.dup(2))
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.dup(2) if keeps_stderr else _open_log(log_name)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return originals


def _open_log(log_name: str) -> int:
    try:
        folder = runtime_folder()
        for old in sorted(folder.glob(f"{log_name}-*.log"), key=_modified_at)[: 1 - MAX_LOG_FILES]:
            old.unlink(missing_ok=True)
        return os.open(folder / f"{log_name}-{os.getpid()}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except (OSError, HostError):
        return os.open(os.devnull, os.O_WRONLY)


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def restore_stderr(descriptors: StdioDescriptors) -> None:
    """Restore stderr, for an error message before the server starts."""
    sys.stderr.flush()
    os.dup2(descriptors.stderr, 2)


def read_available(descriptor: int) -> bytes:
    """The available bytes; b"" at the end of input."""
    try:
        return os.read(descriptor, READ_BYTES)
    except OSError:
        return b""


def write_all(descriptor: int, data: bytes) -> bool:
    """Write everything; False when the reader has closed its end."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        return False
    return True
