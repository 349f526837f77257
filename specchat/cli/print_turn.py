"""One turn on a terminal or in a pipe: the answer streams to stdout, everything else goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Protocol

from specchat.chat.events import Event, Failed, Finished, LoadingProgress, PrefillProgress, Routed, TextDelta
from specchat.chat.request import Request
from specchat.chat.turn_summary import summary_line
from specchat.errors import ContextError, error_with_exit_code
from specchat.profile import Profile
from specchat.repl.interrupt import interruptible

ERASE_LINE = "\r\x1b[2K"


class Conversation(Protocol):
    """What a front end needs from a session."""

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]: ...

    def close(self) -> None: ...


ConversationFactory = Callable[[Profile], AbstractContextManager[Conversation]]  # replaces the host in tests


@dataclass
class StatusLine:
    """A temporary line on stderr while the user waits; only on a terminal."""

    is_shown: bool = False

    def on_event(self, event: Event) -> None:
        """Show what the user waits for."""
        match event:
            case LoadingProgress(text=text):
                self._write(text)
            case PrefillProgress(processed_tokens=done, prompt_tokens=total) if done < total:
                self._write(f"reading {done} of {total} tokens…")
            case _:
                self.erase()

    def erase(self) -> None:
        """Remove the line."""
        if self.is_shown:
            self.is_shown = False
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()

    def _write(self, line: str) -> None:
        if sys.stderr.isatty():
            self.is_shown = True
            sys.stderr.write(f"{ERASE_LINE}{line}")
            sys.stderr.flush()


@dataclass
class TurnPrinter:
    """Prints the events of a turn and keeps what the summary needs."""

    routed: Routed | None = None
    finished: Finished | None = None
    ends_with_newline: bool = True
    status_line: StatusLine = field(default_factory=StatusLine)

    def on_event(self, event: Event) -> None:
        """Print text; raise the error of a failed turn."""
        self.status_line.on_event(event)
        match event:
            case TextDelta(text=text):
                sys.stdout.write(text)
                sys.stdout.flush()
                self.ends_with_newline = text.endswith("\n")
            case Routed():
                self.routed = event
            case Finished():
                self.finished = event
            case Failed(message=message, exit_code=code):
                raise error_with_exit_code(message, code)
            case _:
                pass

    def close(self) -> None:
        """End the last line."""
        self.status_line.erase()
        if not self.ends_with_newline:
            sys.stdout.write("\n")
            sys.stdout.flush()


def print_answer(session: Conversation, request: Request) -> int:
    """Ask, print, and sum up on stderr; returns the exit code. Ctrl-C ends within a step and keeps the text so far."""
    turn = TurnPrinter()
    with interruptible() as stopped:
        try:
            for event in session.ask(request, stopped):
                turn.on_event(event)
        finally:
            turn.close()
    if turn.routed and turn.finished:
        print(summary_line(turn.routed, turn.finished.totals), file=sys.stderr)
        if request.answer_format and turn.finished.finish_reason == "length":
            raise ContextError(request.answer_format.truncated_message)
    return stopped.exit_code if stopped.is_set() else 0
