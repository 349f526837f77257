"""The standard streams of a process that serves an editor: its own alone, whoever else prints what."""

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
    """What was 0, 1 and 2 when the process began."""

    stdin: int
    stdout: int
    stderr: int


def redirect_stdio(log_name: str, *, keeps_stderr: bool = False) -> StdioDescriptors:
    """Move the standard streams away; from now on whatever is printed, by whomever, goes to a log.

    stderr too: there are editors that show every line of it to their user as an error. `server` names the log.
    """
    sys.stdout.flush()
    taken = StdioDescriptors(os.dup(0), os.dup(1), os.dup(2))
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.dup(2) if keeps_stderr else _open_log(log_name)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for each in (nothing, log):
        os.close(each)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return taken


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
    """Give stderr back, for the line of somebody who has to give up before it began."""
    sys.stderr.flush()
    os.dup2(descriptors.stderr, 2)


def read_available(descriptor: int) -> bytes:
    """What has come; nothing when no more will."""
    try:
        return os.read(descriptor, READ_BYTES)
    except OSError:
        return b""


def write_all(descriptor: int, data: bytes) -> bool:
    """False when nobody reads any more."""
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        return False
    return True
