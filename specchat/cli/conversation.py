"""One turn on a terminal or in a pipe: the answer to stdout as it comes, everything else to stderr."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import Event as Flag
from threading import current_thread, main_thread
from typing import Protocol

from specchat.chat.events import Event, Failed, Finished, Loading, Prefill, Routed, Text
from specchat.chat.request import Request
from specchat.chat.summary import summary_line
from specchat.errors import SpecchatError
from specchat.profile import Profile

ERASE_LINE = "\r\x1b[2K"


class Conversation(Protocol):
    """What a front end needs of a session."""

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]: ...

    def close(self) -> None: ...


Opener = Callable[..., AbstractContextManager[Conversation]]


def open_conversation(opener: Opener | None, profile: Profile) -> AbstractContextManager[Conversation]:
    """A session for a profile; says on a terminal how far the loading is. An `opener` replaces the usual one."""
    if opener is None:
        from specchat.assemble import open_session as opener
    notes = Notes()
    try:
        return opener(profile, progress=notes.show)
    finally:
        notes.erase()


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
                raise _failure(message, code)
            case _:
                pass

    def close(self) -> None:
        """End the last line, so that what follows begins a new one."""
        self.notes.erase()
        if not self.ends_line:
            sys.stdout.write("\n")
            sys.stdout.flush()


def answer(session: Conversation, request: Request) -> Finished | None:
    """Ask, print, and sum up on stderr. Ctrl-C ends the answer within a step and keeps what was said; None then."""
    turn = Turn()
    with _interruptible() as cancelled:
        try:
            for event in session.ask(request, cancelled):
                turn.hear(event)
        finally:
            turn.close()
    if turn.routed and turn.finished:
        print(summary_line(turn.routed, turn.finished.totals), file=sys.stderr)
    return None if cancelled.is_set() else turn.finished


@contextmanager
def _interruptible() -> Generator[Flag]:
    """The first Ctrl-C sets the flag, the second interrupts as usual."""
    cancelled = Flag()
    if current_thread() is not main_thread():
        yield cancelled  # signals reach the main thread only
        return
    before = signal.getsignal(signal.SIGINT)

    def cancel(_number: int, _frame: object) -> None:
        cancelled.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, cancel)
    try:
        yield cancelled
    finally:
        signal.signal(signal.SIGINT, before)


def _failure(message: str, exit_code: int) -> SpecchatError:
    error = SpecchatError(message)
    error.exit_code = exit_code
    return error
