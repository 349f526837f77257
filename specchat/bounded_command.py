"""How a command of a person or a model runs: with a time limit and a bounded output; what it started ends with it.

It reads nothing from the terminal. What it prints is read all the time and held in part, so a command that prints 100
MB costs no memory. When it ends, is cancelled or takes too long, everything that it started is ended as well: its
process group, and, where /proc tells the environment of a process, what left the group. Knows neither tool nor edit.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from specchat.errors import InputError

READ_BYTES = 2**16
POLL_SECONDS = 0.02
TERMINATE_SECONDS = 0.5  # between the request to end and the end
QUIET = {"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
BINARY_NOTE = "[{size} bytes of binary data, which are not shown]"
SHELL = ("cmd", "/d", "/c") if os.name == "nt" else ("/bin/sh", "-c")  # people and models write commands for it
MARK = "SPECCHAT_COMMAND"  # in the environment of all that a command starts
MAX_SEARCHES = 5  # for processes that left the group, while they start others


class HeadAndTail:
    """Bytes as they come; holds a beginning and an end of at most `max_bytes` each, whatever passes through it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._head, self._tail = bytearray(), bytearray()
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        room = self._max_bytes - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._max_bytes:  # seldom, as it moves what stays
            del self._tail[: -self._max_bytes]

    def text(self) -> str:
        """What is held as text; data that is not text is counted and not shown."""
        head, tail = bytes(self._head), bytes(self._tail[-self._max_bytes :])
        if b"\0" in head or b"\0" in tail:
            return BINARY_NOTE.format(size=self.size)
        left_out = self.size - len(head) - len(tail)
        if not left_out:
            return (head + tail).decode(errors="replace")
        note = f"\n[… {left_out} bytes left out …]\n"
        return head.decode(errors="replace") + note + tail.decode(errors="replace")


@dataclass(frozen=True)
class CommandRun:
    """What to run and where, how long it may take, and how much of each end of its output is kept."""

    words: tuple[str, ...]
    folder: Path
    limit_seconds: float
    max_bytes: int
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class FinishedRun:
    """The output, which may have a gap, and how it ended. `exit_code` is None for a command that was ended by us."""

    output: str
    exit_code: int | None
    ending: str


def run_bounded(command: CommandRun, cancelled: threading.Event) -> FinishedRun:
    """Run it to its end, to its limit, or until it is cancelled. InputError when it cannot be started."""
    mark, outer_marks = token_hex(16), os.environ.get(MARK, "")
    environment = {**os.environ, **QUIET, **command.environment, MARK: outer_marks + mark}
    try:
        process = subprocess.Popen(
            command.words, cwd=command.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise InputError(f"{command.words[0]}: cannot be run: {error}") from None
    held = HeadAndTail(command.max_bytes)
    reader = threading.Thread(target=_read_all, args=(process, held), name="command-output", daemon=True)
    reader.start()
    started = time.monotonic()
    try:
        ending = _wait(process, cancelled, started + command.limit_seconds)
    finally:
        _end_group(process)
        _end_marked(mark)
    reader.join(TERMINATE_SECONDS)  # a process that left the group may hold the pipe open
    seconds = f"{time.monotonic() - started:.1f} s"
    if ending:
        return FinishedRun(held.text(), None, f"{ending} after {seconds}")
    return FinishedRun(held.text(), process.returncode, f"exit code {process.returncode} after {seconds}")


def _wait(process: subprocess.Popen[bytes], cancelled: threading.Event, deadline: float) -> str:
    """Why it was not waited for longer; "" when it has ended."""
    while process.poll() is None:
        if cancelled.wait(POLL_SECONDS):
            return "stopped by the user"
        if time.monotonic() > deadline:
            return "stopped by the time limit"
    return ""


def _read_all(process: subprocess.Popen[bytes], held: HeadAndTail) -> None:
    assert process.stdout
    with process.stdout as pipe:
        while piece := os.read(pipe.fileno(), READ_BYTES):
            held.add(piece)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what the command started and left behind, and the command itself if it still runs."""
    if not hasattr(os, "killpg"):
        process.kill()
        process.wait()
        return
    was_running = process.poll() is None
    _signal_group(process.pid, signal.SIGTERM if was_running else signal.SIGKILL)
    if was_running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(TERMINATE_SECONDS)
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # all of it has ended
        os.killpg(group, number)


def _end_marked(mark: str) -> None:
    """End what has the mark in its environment: a child with a session of its own is in no group of ours."""
    for _search in range(MAX_SEARCHES):
        environments = Path("/proc").glob("[0-9]*/environ")
        found = [int(path.parent.name) for path in environments if mark.encode() in _content(path)]
        if not found:
            return
        for process_id in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process_id, signal.SIGKILL)


def _content(path: Path) -> bytes:
    """The environment of a process; nothing when it has ended or belongs to another user."""
    with suppress(OSError):
        return path.read_bytes()
    return b""
