"""One turn on a terminal or in a pipe: the answer streams to stdout, everything else goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Protocol

from specchat.app.agent.agent_loop import AgentEvent
from specchat.chat.events import (
    TRUNCATED_REASONS,
    Event,
    Failed,
    Finished,
    LoadingProgress,
    Notice,
    PrefillProgress,
    Routed,
    TextDelta,
)
from specchat.chat.request import Request
from specchat.chat.sum_totals import sum_totals
from specchat.chat.turn_summary import summary_line
from specchat.errors import ContextError, error_with_exit_code
from specchat.profile import Profile
from specchat.repl.interrupt import interruptible
from specchat.repl.terminal_agent import CallPrinter
from specchat.repl.thinking_printer import ThinkingPrinter
from specchat.terminal import Styled, printable_with_tabs

ENDED_EARLY_EXIT_CODE = 1  # of work with tools that a limit ended
ERASE_LINE = "\r\x1b[2K"


class Answering(Protocol):
    """What answers a request."""

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event | AgentEvent]: ...


class Conversation(Answering, Protocol):
    """What a front end needs from a session."""

    def close(self) -> None: ...


ConversationFactory = Callable[[Profile], AbstractContextManager[Conversation]]  # replaces the host in tests


@dataclass
class TemporaryLine:
    """A line on stderr while the user waits; only on a terminal."""

    line: str = ""

    def show(self, line: str) -> None:
        if sys.stderr.isatty() and line != self.line:
            self.line = line
            sys.stderr.write(Styled(f"{ERASE_LINE}{printable_with_tabs(line)}"))
            sys.stderr.flush()

    def erase(self) -> None:
        self.show("")


@dataclass
class TurnPrinter:
    routed: Routed | None = None
    finished_turns: list[Finished] = field(default_factory=list[Finished])  # several where the model calls tools
    ends_with_newline: bool = True
    waiting_line: TemporaryLine = field(default_factory=TemporaryLine)
    thinking: ThinkingPrinter = field(default_factory=ThinkingPrinter)
    calls: CallPrinter = field(default_factory=CallPrinter)

    def on_event(self, event: Event | AgentEvent) -> None:
        """Print text; raise the error of a failed turn."""
        if isinstance(event, AgentEvent):
            self._on_agent_event(event)
            return
        if not isinstance(event, LoadingProgress | PrefillProgress):
            self.waiting_line.erase()
        self.thinking.on_event(event)
        match event:
            case LoadingProgress(text=text):
                self.waiting_line.show(text)
            case PrefillProgress(processed_tokens=done, prompt_tokens=total) if done < total:
                self.waiting_line.show(f"reading {done} of {total} tokens…")
            case TextDelta(text=text):
                sys.stdout.write(text)
                sys.stdout.flush()
                self.ends_with_newline = text.endswith("\n")
            case Notice(text=text):
                self._end_line()
                print(f"specchat: {text}", file=sys.stderr)
            case Routed():
                self.routed = event
            case Finished():
                self.finished_turns.append(event)
            case Failed(message=message, exit_code=code):
                raise error_with_exit_code(message, code)
            case _:
                pass

    def _on_agent_event(self, event: AgentEvent) -> None:
        if line := self.calls.on_event(event):
            self.close()
            print(line, file=sys.stderr)

    def close(self) -> None:
        self.waiting_line.erase()
        self.thinking.end_line()
        self._end_line()

    def _end_line(self) -> None:
        if not self.ends_with_newline:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self.ends_with_newline = True


def print_answer(session: Answering, request: Request) -> int:
    """Ask, print, and sum up on stderr; returns the exit code. Ctrl-C ends within a step and keeps the text so far."""
    turn = TurnPrinter()
    with interruptible() as stopped:
        try:
            for event in session.ask(request, stopped):
                turn.on_event(event)
        finally:
            turn.close()
    if turn.routed and turn.finished_turns:
        last = turn.finished_turns[-1]
        if last.explanation:
            print(f"specchat: {last.explanation}", file=sys.stderr)
        print(summary_line(turn.routed, sum_totals(turn.finished_turns)), file=sys.stderr)
        if request.answer_format and last.finish_reason in TRUNCATED_REASONS:
            raise ContextError(request.answer_format.truncated_message)
    if stopped.is_set():
        return stopped.exit_code
    return ENDED_EARLY_EXIT_CODE if turn.calls.end_reason else 0
