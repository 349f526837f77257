"""The one printer of an answer for pipes and lines: the answer goes to stdout, everything else to stderr.

What passes while the user waits is a line that is drawn over on a terminal that can do so, and a line for each model
elsewhere. A thought is dimmed, and shown on a terminal only: the line about the answer says how long it took.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event as Flag

from specchat.app.agent.agent_loop import AgentEvent, CallFinished, CallStarted, LoopEnded
from specchat.app.agent.agent_tool import call_line
from specchat.app.ask import Answered, AskEvent, ask
from specchat.app.chat_state import ChatState
from specchat.app.question import Question
from specchat.chat.events import Event, Notice, PrefillProgress, Stage, TextDelta, ThinkingDelta
from specchat.chat.request import Request
from specchat.repl.word_wrap import WordWrap, wrapped
from specchat.terminal import Styled, printable_with_tabs, write_line

STAGE_LINE_SECONDS = 10.0  # between two lines about what takes long, where they cannot be drawn over
ERASE_LINE = "\r\x1b[2K"
DIM, NORMAL = "\x1b[2m", "\x1b[22m"


def print_answer(chat: ChatState, question: Question | Request, stopped: Flag, columns: int = 0) -> Answered:
    """Ask, and print the answer as it streams; returns how it ended. A failure is not printed.

    With columns, lines are broken between words.
    """
    printer, event = AnswerPrinter(columns), None
    try:
        for event in ask(chat, question, stopped):
            printer.on_event(event)
    finally:
        printer.close()
    assert isinstance(event, Answered)
    return event


def print_notice(line: str) -> None:
    """Print a line beside the answers."""
    write_line(line, sys.stderr)


@dataclass
class TemporaryLine:
    """A line on stderr while the user waits, which the next one replaces; only where the cursor can be moved."""

    line: str = ""

    @property
    def is_possible(self) -> bool:
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")

    def show(self, line: str) -> None:
        if line != self.line and self.is_possible:
            self.line = line
            sys.stderr.write(Styled(f"{ERASE_LINE}{printable_with_tabs(line)}"))
            sys.stderr.flush()

    def erase(self) -> None:
        self.show("")


@dataclass
class StagePrinter:
    """Shows what the user waits for: a temporary line, or where none is possible a line for each stage, once."""

    print_line: Callable[[str], None]
    line: TemporaryLine = field(default_factory=TemporaryLine)
    _printed_at: dict[str, float] = field(default_factory=dict[str, float])  # by stage

    def on_event(self, event: Event) -> None:
        if not isinstance(event, Stage):
            return
        if self.line.is_possible:
            self.line.show(event.text)
            return
        now = time.monotonic()
        if event.stage not in self._printed_at:
            self._printed_at[event.stage] = now
            if not isinstance(event, PrefillProgress):  # which is mostly short
                self.print_line(f"{event.stage}…")
        elif 0 < event.fraction < 1 and now - self._printed_at[event.stage] >= STAGE_LINE_SECONDS:
            self._printed_at[event.stage] = now
            self.print_line(event.text)


class CallPrinter:
    """One line for each call of a tool that has its outcome, and one that says why the work ended early."""

    def __init__(self) -> None:
        self._summary = ""

    def on_event(self, event: AgentEvent) -> str:
        """The line to print, "" for none."""
        match event:
            case CallStarted(summary=summary):
                self._summary = summary
            case CallFinished(outcome=outcome):
                return f"* {call_line(self._summary, outcome)}"
            case LoopEnded(reason=reason):
                return f"specchat: the work ended early: {reason}"
            case _:
                pass
        return ""


class AnswerPrinter:
    def __init__(self, columns: int = 0) -> None:
        self._columns, self._wrap = columns, WordWrap(columns)
        self._stages, self._calls = StagePrinter(self._print_beside), CallPrinter()
        self._is_inside_line = self._is_inside_thought = False

    def on_event(self, event: AskEvent) -> None:
        if not isinstance(event, Stage):
            self._stages.line.erase()
        match event:
            case Stage():
                self._stages.on_event(event)
            case ThinkingDelta(text=text):
                self._print_thought(text)
            case TextDelta(text=text) if text:
                self._end_thought()
                sys.stdout.write(self._wrap.add(text))
                sys.stdout.flush()
                self._is_inside_line = not text.endswith("\n")
            case Notice(text=text):
                self._print_beside(text)
            case Answered(summary=summary, notices=notices):
                self._print_beside(*filter(None, [summary]), *notices)
            case CallStarted() | CallFinished() | LoopEnded() if line := self._calls.on_event(event):
                self._print_beside(line)
            case _:
                pass

    def close(self) -> None:
        self._stages.line.erase()
        self._end_thought()
        if self._is_inside_line:
            sys.stdout.write(self._wrap.add("", is_last=True) + "\n")
            self._wrap = WordWrap(self._columns)
            sys.stdout.flush()
        self._is_inside_line = False

    def _print_beside(self, *lines: str) -> None:
        self.close()
        for line in lines:
            print_notice(wrapped(line, self._columns))

    def _print_thought(self, text: str) -> None:
        if not (text and sys.stderr.isatty()):
            return
        shown = printable_with_tabs(text)
        sys.stderr.write(shown if os.environ.get("NO_COLOR") else Styled(f"{DIM}{shown}{NORMAL}"))
        sys.stderr.flush()
        self._is_inside_thought = True

    def _end_thought(self) -> None:
        if self._is_inside_thought:
            sys.stderr.write("\n\n")
            sys.stderr.flush()
        self._is_inside_thought = False
