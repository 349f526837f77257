"""`specchat edit` on a terminal and in a pipe: renders the events of an edit, and asks about hunks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Any

from specchat.app.consent import Decision
from specchat.app.edit import decide_hunks
from specchat.app.edit_events import (
    AcceptedEdit,
    EditEvent,
    Proposed,
    Rejected,
    Rewriting,
    Talk,
    Unchanged,
    Writing,
    Written,
)  # fmt: skip
from specchat.chat.events import Event, Notice
from specchat.edit.edit_turn import ignore_event, result_of
from specchat.edit.git_commit import commit_files, has_other_changes
from specchat.edit.hunk_prompt import ReviewUI
from specchat.edit.json_report import failure_report, file_report
from specchat.edit.rewrite_alignment import ProgressLine
from specchat.edit.source_text import Source, source_diff
from specchat.edit.terminal_review import colour_hunk, edit_in_editor, prompt_user, wants_colours
from specchat.errors import CancelledError, NoUsableEditError, SpecchatError
from specchat.repl.answer_printer import TemporaryLine
from specchat.repl.interrupt import InterruptFlag, keyboard_interrupts


@dataclass
class EditPrinter:
    """What one run prints. stdout is the diff or the JSON; everything else goes to stderr."""

    instruction: str
    options: dict[str, Any]
    is_writing: bool
    stopped: InterruptFlag
    accepted: list[AcceptedEdit] = field(default_factory=list[AcceptedEdit])
    _name: str = ""  # of the file in progress
    _is_writing_now: bool = False
    _changed_before: list[Path] = field(default_factory=list[Path])
    _progress: Callable[[Event], None] = ignore_event
    _line: TemporaryLine = field(default_factory=TemporaryLine)
    _timer: Timer | None = None
    _is_late: bool = False

    def on_event(self, event: Event | EditEvent) -> None:
        match event:
            case Rewriting(source=source):
                self._name = source.name
                self._start_file(source)
            case Notice(text=text):
                self._line.erase()
                _print_notice(text)
            case Talk(text=text):
                self.note(text)
            case Rejected(diff=diff):
                self._end_file()
                self.show_rejected(diff)
            case Unchanged(name=name, why=why):
                self._end_file()
                self._print_json(failure_report(name, why))
            case AcceptedEdit():
                self._end_file()
                self._accept(event)
            case Writing(edits=edits):
                self._is_writing_now = True
                paths = [each.file.path for each in edits]
                self._changed_before = [each for each in paths if self.options["is_commit"] and has_other_changes(each)]
            case Written():
                self._print_written(event)
            case EditEvent():
                pass
            case _:
                self._progress(event)

    def decide(self, proposed: Proposed) -> Decision:
        self._end_file()
        suffix = Path(proposed.path).suffix
        edit_text: Callable[[str], str | None] = lambda text: edit_in_editor(text, suffix, self.note)

        def rewrite(first: int, end: int, comment: str) -> str:
            self._start_file(proposed.source)
            try:
                return result_of(proposed.rewrite(first, end, comment), self.on_event)
            finally:
                self._end_file()

        with keyboard_interrupts():
            return decide_hunks(proposed, ReviewUI(prompt_user, _print_hunk, self.note, edit_text, rewrite))

    def report_failure(self, error: SpecchatError) -> SpecchatError:
        """Print what became of each file; returns the error for the last line."""
        self._end_file()
        if isinstance(error, CancelledError) and self._is_late:
            error = NoUsableEditError(f"{self._name}: no new text within {self.options['timeout']:g} s")
        if self._is_writing_now:
            for each in self.accepted:
                self._print_json(failure_report(each.source.name, error))
        else:
            self.report_files(is_written=False)
            self._print_json(failure_report(self._name, error))
        return error

    def report_files(self, *, is_written: bool) -> None:
        checks = ["syntax", *self.options["checks"]]
        for each in self.accepted:
            self._print_json(file_report(each.source, each.result, each.run, checks=checks, is_applied=is_written))

    def note(self, message: str) -> None:
        self._line.erase()
        print(message, file=sys.stderr)

    def show_rejected(self, diff: str) -> None:
        if not self.options["is_json"]:
            self.note(colour_hunk(diff) if sys.stderr.isatty() and wants_colours() else diff)

    def _start_file(self, source: Source) -> None:
        if wants_colours():
            self._progress = ProgressLine(source.text, self._line.show).on_event
        if self.options["timeout"] is not None:
            self._timer = Timer(self.options["timeout"], self._expire)
            self._timer.daemon = True
            self._timer.start()

    def _expire(self) -> None:
        self._is_late = True
        self.stopped.set()

    def _end_file(self) -> None:
        self._line.erase()
        if self._timer is not None:
            self._timer.cancel()

    def _accept(self, edit: AcceptedEdit) -> None:
        self.accepted.append(edit)
        if not self.is_writing and not self.options["is_json"]:
            _print_diff(edit.source, edit.text)
            if warning := edit.result.warnings.summary:
                print(f"specchat: {edit.source.name}: {warning}", file=sys.stderr)

    def _print_written(self, event: Written) -> None:
        for path in self._changed_before:
            print(f"specchat: {path}: had uncommitted changes, which are committed with the edit", file=sys.stderr)
        parts = [f"applied {event.hunks} hunks", event.summary, f"undo: specchat undo {event.undo_number}"]
        if self.options["is_commit"]:
            parts.append(f"commit {commit_files([each.file.path for each in event.edits], self.instruction)}")
        print(" · ".join(part for part in parts if part), file=sys.stderr)

    def _print_json(self, report: Mapping[str, Any]) -> None:
        if self.options["is_json"]:
            print(json.dumps(report, ensure_ascii=False), flush=True)


@cache
def _print_notice(text: str) -> None:
    """Print a notice once: every file and every retry may open a session, and each repeats it."""
    print(f"specchat: {text}", file=sys.stderr)


def _print_hunk(hunk: str) -> None:
    sys.stdout.write(colour_hunk(hunk) if wants_colours() else hunk)
    sys.stdout.flush()


def _print_diff(source: Source, text: str) -> None:
    """Print the bytes that `git apply` needs, or text on a terminal."""
    patch = source_diff(source, text)
    if sys.stdout.isatty():
        sys.stdout.write(patch)
    else:
        sys.stdout.buffer.write(patch.encode(source.codec.removesuffix("-sig")))
    sys.stdout.flush()
