"""One turn on a terminal or in a pipe: the answer to stdout as it comes, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Protocol

from specchat.chat.events import Event, Failed, Finished, Loading, Prefill, Routed, Text
from specchat.chat.request import Request
from specchat.chat.turn_summary import summary_line
from specchat.errors import ContextError, failure
from specchat.profile import Profile
from specchat.repl.interrupt import stoppable

ERASE_LINE = "\r\x1b[2K"


class Conversation(Protocol):
    """What a front end needs of a session."""

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]: ...

    def close(self) -> None: ...


Opener = Callable[[Profile], AbstractContextManager[Conversation]]  # stands in for the host in tests


@dataclass
class Notes:
    """A passing line on stderr while nothing else happens; nothing at all when stderr is no terminal."""

    shown: bool = False

    def show(self, event: Event) -> None:
        """What is being waited for."""
        match event:
            case Loading(what=what):
                self._write(f"loading the {what} model…")
            case Prefill(done=done, total=total) if done < total:
                self._write(f"reading {done} of {total} tokens…")
            case _:
                self.erase()

    def erase(self) -> None:
        """Make room for what stays."""
        if self.shown:
            self.shown = False
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()

    def _write(self, line: str) -> None:
        if sys.stderr.isatty():
            self.shown = True
            sys.stderr.write(f"{ERASE_LINE}{line}")
            sys.stderr.flush()


@dataclass
class Turn:
    """What is known of an answer when it is over."""

    routed: Routed | None = None
    finished: Finished | None = None
    ends_line: bool = True
    notes: Notes = field(default_factory=Notes)

    def hear(self, event: Event) -> None:
        """Print what is to be printed."""
        self.notes.show(event)
        match event:
            case Text(text=text):
                sys.stdout.write(text)
                sys.stdout.flush()
                self.ends_line = text.endswith("\n")
            case Routed():
                self.routed = event
            case Finished():
                self.finished = event
            case Failed(message=message, exit_code=code):
                raise failure(message, code)
            case _:
                pass

    def close(self) -> None:
        """End the last line, so that what follows begins a new one."""
        self.notes.erase()
        if not self.ends_line:
            sys.stdout.write("\n")
            sys.stdout.flush()


def answer(session: Conversation, request: Request) -> int:
    """Ask, print, and sum up on stderr; returns the exit code. Ctrl-C ends within a step and keeps what was said."""
    turn = Turn()
    with stoppable() as stopped:
        try:
            for event in session.ask(request, stopped):
                turn.hear(event)
        finally:
            turn.close()
    if turn.routed and turn.finished:
        print(summary_line(turn.routed, turn.finished.totals), file=sys.stderr)
        if request.structure and turn.finished.reason == "length":
            raise ContextError(request.structure.when_cut)
    return stopped.exit_code if stopped.is_set() else 0
