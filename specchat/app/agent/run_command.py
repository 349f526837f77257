"""The tool `run`, and how a command runs: with a time limit and a bounded output, in a process group that ends with it.

It reads nothing from the terminal. What it prints is read all the time and held in part, so a command that prints 100
MB costs no memory. When it ends, is cancelled or takes too long, everything that it started is ended as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specchat.app.agent.agent_tool import Effect, ToolOutcome
from specchat.app.agent.tool_schemas import schema_text
from specchat.chat.tools import Tool
from specchat.errors import InputError

if TYPE_CHECKING:
    from specchat.app.project_files import ProjectFiles  # imports what the search in a process of its own does not need

READ_BYTES = 2**16
POLL_SECONDS = 0.02
TERMINATE_SECONDS = 0.5  # between the request to end and the end
QUIET = {"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
BINARY_NOTE = "[{size} bytes of binary data, which are not shown]"
SHELL = ("cmd", "/d", "/c") if os.name == "nt" else ("/bin/sh", "-c")  # models write commands for it
ENVIRONMENT = {"SPECCHAT_AGENT": "1"}  # so that a program can know that no person waits for it


class HeadAndTail:
    """Bytes as they come; holds a beginning and an end of at most `max_bytes` each, whatever passes through it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        room = self._max_bytes - len(self._head)
        self._head += piece[:room]
        if rest := piece[max(0, room) :]:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= self._max_bytes:
                self._tail_bytes -= len(self._tail.popleft())

    def text(self) -> str:
        """What is held as text; data that is not text is counted and not shown."""
        head, tail = bytes(self._head), b"".join(self._tail)[-self._max_bytes :]
        if b"\0" in head or b"\0" in tail:
            return BINARY_NOTE.format(size=self.size)
        left_out = self.size - len(head) - len(tail)
        if not left_out:
            return (head + tail).decode(errors="replace")
        note = f"\n[… {left_out} bytes left out …]\n"
        return head.decode(errors="replace") + note + tail.decode(errors="replace")


@dataclass(frozen=True)
class CommandRun:
    """What to run, and where."""

    words: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class FinishedRun:
    """The output, which may have a gap, and how it ended. `exit_code` is None for a command that was ended by us."""

    output: str
    exit_code: int | None
    ending: str

    @property
    def is_cut_short(self) -> bool:
        return self.exit_code is None


def run_bounded(
    command: CommandRun, cancelled: threading.Event, limit_seconds: float, held: HeadAndTail
) -> FinishedRun:
    """Run it to its end, to its limit, or until it is cancelled. InputError when it cannot be started."""
    try:
        process = subprocess.Popen(
            command.words, cwd=command.folder, env={**os.environ, **QUIET, **command.environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise InputError(f"{command.words[0]}: cannot be run: {error}") from None
    reader = threading.Thread(target=_read_all, args=(process, held), name="command-output", daemon=True)
    reader.start()
    started = time.monotonic()
    try:
        ending = _wait(process, cancelled, started + limit_seconds)
    finally:
        _end_group(process)
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
        try:
            process.wait(TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # all of it has ended


@dataclass(frozen=True)
class RunTool:
    files: ProjectFiles
    max_characters: int
    limit_seconds: float
    effect: Effect = Effect.EXECUTE
    tool: Tool = Tool(
        "run",
        "Run a shell command in the project folder and return its output. It gets no input and has a time limit.",
        schema_text({"command": {"type": "string", "minLength": 1}}, "command"),
    )

    def describe(self, arguments: Mapping[str, Any]) -> str:
        return f"run {arguments['command']}"

    def subject(self, arguments: Mapping[str, Any]) -> str:
        return arguments["command"]

    def run(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> ToolOutcome:
        command = CommandRun((*SHELL, arguments["command"]), self.files.root, ENVIRONMENT)
        try:
            ran = run_bounded(command, cancelled, self.limit_seconds, HeadAndTail(self.max_characters // 2))
        except InputError as error:
            return ToolOutcome(str(error), is_error=True)
        output = f"{ran.output.rstrip(chr(10))}\n" if ran.output.strip() else ""
        return ToolOutcome(f"{output}[{ran.ending}]", is_error=ran.exit_code != 0)
