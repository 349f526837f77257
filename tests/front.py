"""Runs a specchat command in this process, with the fake host of the test."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass
from threading import Event

import pytest

from specchat.app.ask import Asked, AskEvent, ask
from specchat.app.chat_state import ChatState, CommandResult
from specchat.app.command_registry import run_line
from specchat.app.question import Question
from specchat.chat.request import Request
from specchat.cli.lazy_group import LazyCommand
from specchat.cli.main import COMMANDS, run
from specchat.repl.loop import run_input_line
from specchat.repl.terminal_ui import terminal_ui
from specchat.terminal import PLAIN

FRONT_ENDS = {
    "ask": "specchat.cli.ask:ask",
    "edit": "specchat.cli.edit:edit",
    "chat": "specchat.cli.chat:chat",
    "script": "specchat.cli.script:script",
    "host": "specchat.cli.host:host",
}


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    code: int
    out: bytes
    err: str


class Bytes(io.TextIOWrapper):
    """A standard stream that stores its bytes; optionally a terminal."""

    def __init__(self, content: bytes = b"", *, is_terminal: bool = False) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8", newline="")
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    def content(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()


def command(patch: pytest.MonkeyPatch, *arguments: str, stdin: bytes = b"", on_terminal: bool = False) -> Ran:
    """Run a command with these streams."""
    for name, where in FRONT_ENDS.items():
        patch.setitem(COMMANDS, name, LazyCommand(where, ""))
    out, err = Bytes(is_terminal=on_terminal), Bytes(is_terminal=on_terminal)
    with patch.context() as streams:
        streams.setenv(PLAIN, os.environ.get(PLAIN, ""))  # `--plain` sets it for the whole process
        streams.setattr(sys, "stdin", Bytes(stdin, is_terminal=on_terminal))
        streams.setattr(sys, "stdout", out)
        streams.setattr(sys, "stderr", err)
        code = run(arguments)
        if sys.stderr is not err:
            sys.stderr.close()
    return Ran(code, out.content(), err.content().decode())


def events_of(chat: ChatState, question: Question | Request) -> list[AskEvent]:
    """What the verb yields for this question."""
    return list(ask(chat, question, Event()))


def request_of(chat: ChatState, line: str) -> Request:
    """The request that a typed line becomes, with its files."""
    question = run_line(chat, line).request
    assert question
    [request] = [event.request for event in events_of(chat, question) if isinstance(event, Asked)]
    return request


def type_line(chat: ChatState, line: str) -> CommandResult:
    """Type a line in the line mode."""
    chat.ui = terminal_ui()
    return run_input_line(chat, line)
