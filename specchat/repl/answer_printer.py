"""The one printer of an answer for pipes and lines: the answer goes to stdout, everything else to stderr.

What passes while the user waits is a temporary line. A thought is shown on a terminal only, dimmed or between words
that say what it is; the line about the answer says how long it took.
"""

import sys
from dataclasses import dataclass, field
from threading import Event as Flag

from specchat.app.agent.agent_loop import AgentEvent, CallFinished, CallProgressed, CallStarted, LoopEnded
from specchat.app.agent.agent_tool import call_line
from specchat.app.ask import Answered, AskEvent, ask
from specchat.app.chat_state import ChatState
from specchat.app.question import Question
from specchat.chat.events import Event, Notice, PrefillProgress, Stage, TextDelta, ThinkingDelta
from specchat.chat.request import Request
from specchat.own_text import translated
from specchat.repl.temporary_line import TemporaryLine
from specchat.repl.word_wrap import WordWrap, reading_columns, wrapped
from specchat.terminal import Styled, can_redraw, printable_with_tabs, write_line

DIM, NORMAL = "\x1b[2m", "\x1b[22m"


def print_answer(chat: ChatState, question: Question | Request, stopped: Flag, *, wraps: bool = False) -> Answered:
    """Ask, and print the answer as it streams; returns how it ended. A failure is not printed.

    It may break the lines of an answer between words, too.
    """
    printer, event = AnswerPrinter(reading_columns() if wraps else 0), None
    try:
        for event in ask(chat, question, stopped):
            printer.on_event(event)
    finally:
        printer.close()
    assert isinstance(event, Answered)
    return event


def print_notice(line: str) -> None:
    """Print a line beside the answers."""
    write_line(line if isinstance(line, Styled) else translated(line), sys.stderr)


@dataclass
class StagePrinter:
    """Shows what the user waits for; where a line cannot be drawn over, each stage or call once, then now and then.

    Reading the prompt is mostly short, and has no first line of its own.
    """

    line: TemporaryLine = field(default_factory=TemporaryLine)
    _begun: set[str] = field(default_factory=set[str])

    def on_event(self, event: Event | CallProgressed) -> None:
        if isinstance(event, CallProgressed):
            name, text = event.call.id, f"{event.call.name}: {event.line}"
            first_line = text
        elif isinstance(event, Stage):
            name, text = event.stage, event.text
            first_line = "" if isinstance(event, PrefillProgress) else f"{event.stage}…"
        else:
            return
        self.line.show(text, "" if name in self._begun else first_line)
        self._begun.add(name)


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
        self._stages, self._calls = StagePrinter(), CallPrinter()
        self._is_inside_line = self._is_inside_thought = False

    def on_event(self, event: AskEvent) -> None:
        if not isinstance(event, Stage | CallProgressed):
            self._stages.line.erase()
        elif self._is_inside_line:
            self.close()
        match event:
            case Stage() | CallProgressed():
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
            write_line(wrapped(translated(line), reading_columns()), sys.stderr)

    def _print_thought(self, text: str) -> None:
        if not (text and sys.stderr.isatty()):
            return
        shown = printable_with_tabs(text)
        start = "" if self._is_inside_thought else "thinking:\n"
        sys.stderr.write(Styled(f"{DIM}{shown}{NORMAL}") if can_redraw(sys.stderr) else start + shown)
        sys.stderr.flush()
        self._is_inside_thought = True

    def _end_thought(self) -> None:
        if self._is_inside_thought:
            sys.stderr.write("\n\n" if can_redraw(sys.stderr) else "\n\nanswer:\n")
            sys.stderr.flush()
        self._is_inside_thought = False
