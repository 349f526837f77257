"""Runs a specchat command in this process, with the fake host of the test."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass

import pytest

from specchat.cli.lazy_group import LazyCommand
from specchat.cli.main import COMMANDS, run

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
        streams.setattr(sys, "stdin", Bytes(stdin, is_terminal=on_terminal))
        streams.setattr(sys, "stdout", out)
        streams.setattr(sys, "stderr", err)
        code = run(arguments)
        if sys.stderr is not err:
            sys.stderr.close()
    return Ran(code, out.content(), err.content().decode())
