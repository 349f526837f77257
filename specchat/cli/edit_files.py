"""`specchat edit` on a terminal and in a pipe: what it prints beside the review, and when it gives up."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Timer
from typing import Any

from specchat.app.consent import Decision
from specchat.app.edit_commit import PlannedCommit, plan_commit
from specchat.app.edit_events import AcceptedEdit, EditEvent, Proposed, Rejected, Rewriting, Unchanged, Writing, Written
from specchat.app.edit_renderer import EditRenderer
from specchat.chat.events import Event
from specchat.chat.sum_totals import sum_totals
from specchat.chat.turn_summary import speculation_to_json
from specchat.edit.answer_check import UnusableAnswerError
from specchat.edit.edit_turn import EditRun
from specchat.edit.hunks import Hunk, diff_hunks, split_lines
from specchat.edit.source_text import Source, source_diff
from specchat.errors import CancelledError, NoUsableEditError, SpecchatError
from specchat.repl.interrupt import InterruptFlag
from specchat.repl.terminal_ui import terminal_edit_ui


@dataclass
class EditPrinter:
    """What one run prints. stdout is the diff or the JSON; everything else goes to stderr."""

    instruction: str
    options: dict[str, Any]
    is_writing: bool
    stopped: InterruptFlag
    runs: Sequence[EditRun]  # of the session, the current one last
    accepted: list[AcceptedEdit] = field(default_factory=list[AcceptedEdit])
    _name: str = ""  # of the file in progress
    _is_writing_now: bool = False
    _commit: PlannedCommit | None = None
    _timer: Timer | None = None
    _is_late: bool = False

    def __post_init__(self) -> None:
        self._ui = terminal_edit_ui(self.stopped)
        self._renderer = EditRenderer(self._ui, "specchat undo")

    def on_event(self, event: Event | EditEvent) -> None:
        if isinstance(event, EditEvent):
            self._stop_timer()
        if not (isinstance(event, Rejected) and self.options["is_json"]):
            self._renderer.on_event(event)
        match event:
            case Rewriting(source=source):
                self._name = source.name
                self._start_timer()
            case Unchanged(name=name, why=why):
                self._print_json(failure_report(name, why, self.runs[-1:]))
            case AcceptedEdit():
                self._accept(event)
            case Writing(edits=edits):
                if self.options["is_commit"]:
                    self._commit = plan_commit([each.replacement for each in edits], self.instruction)
                self._is_writing_now = True
            case Written():
                commit = f" · commit {self._commit.make()}" if self._commit else ""
                print(f"{self._renderer.report}{commit}", file=sys.stderr)
            case _:
                pass

    def decide(self, proposed: Proposed) -> Decision:
        self._stop_timer()
        return self._renderer.decide(proposed)

    def report_failure(self, error: SpecchatError) -> SpecchatError:
        """Print what became of each file; returns the error for the last line."""
        self._stop_timer()
        if isinstance(error, CancelledError) and self._is_late:
            error = NoUsableEditError(f"{self._name}: no new text within {self.options['timeout']:g} s")
        if self._is_writing_now:
            for each in self.accepted:
                self._print_json(failure_report(each.source.name, error, [each.run]))
        else:
            self.report_files(is_written=False)
            self._print_json(failure_report(self._name, error, self.runs[-1:]))
        return error

    def report_files(self, *, is_written: bool) -> None:
        checks = ["syntax", *self.options["checks"]]
        for each in self.accepted:
            self._print_json(file_report(each, checks, is_applied=is_written))

    def _start_timer(self) -> None:
        if self.options["timeout"] is not None:
            self._timer = Timer(self.options["timeout"], self._expire)
            self._timer.daemon = True
            self._timer.start()

    def _expire(self) -> None:
        self._is_late = True
        self.stopped.set()

    def _stop_timer(self) -> None:
        self._ui.show_progress("")
        if self._timer is not None:
            self._timer.cancel()

    def _accept(self, edit: AcceptedEdit) -> None:
        self.accepted.append(edit)
        if not self.is_writing and not self.options["is_json"]:
            _print_diff(edit.source, edit.text)
            if warning := edit.result.warnings.summary:
                print(f"specchat: {edit.source.name}: {warning}", file=sys.stderr)

    def _print_json(self, report: Mapping[str, Any]) -> None:
        if self.options["is_json"]:
            print(json.dumps(report, ensure_ascii=False), flush=True)


def _print_diff(source: Source, text: str) -> None:
    """Print the bytes that `git apply` needs, or text on a terminal."""
    patch = source_diff(source, text)
    if sys.stdout.isatty():
        sys.stdout.write(patch)
    else:
        sys.stdout.buffer.write(patch.encode(source.codec.removesuffix("-sig")))
    sys.stdout.flush()


def file_report(edit: AcceptedEdit, checks: Sequence[str], *, is_applied: bool) -> dict[str, Any]:
    """The object of `--json` for a file."""
    source, result = edit.source, edit.result
    lines = split_lines(source.text)
    hunks = enumerate(diff_hunks(source.text, result.text), 1)
    return {
        "status": "applied" if is_applied else "proposed",
        "exit": 0,
        "file": source.name,
        "format": result.plan.format,
        "way": result.plan.description,
        "failed_ways": [str(failure) for failure in result.failures],
        "hunks": [{"id": number, **_hunk_texts(lines, hunk), "accepted": is_applied} for number, hunk in hunks],
        "warnings": result.warnings.summary,
        "checks": dict.fromkeys(checks, "passed"),
        "spec": _speculation_stats([edit.run]),
    }


def _hunk_texts(lines: Sequence[str], hunk: Hunk) -> dict[str, Any]:
    old, new = lines[hunk.first : hunk.end], hunk.new_lines(lines)
    return {"line": hunk.first + 1, "old": "".join(old), "new": "".join(new)}


def failure_report(name: str, error: SpecchatError, runs: Sequence[EditRun]) -> dict[str, Any]:
    """The same for a file without a new text; the refused answers have cost what they cost."""
    name_of_error = type(error).__name__.removesuffix("Error")
    status = str(error.problem) if isinstance(error, UnusableAnswerError) else name_of_error
    return {
        "status": status,
        "exit": error.exit_code,
        "file": name,
        "message": str(error),
        "hunks": [],
        "spec": _speculation_stats(runs),
    }


def _speculation_stats(runs: Sequence[EditRun]) -> dict[str, Any]:
    turns = [turn for run in runs for turn in run.finished_turns]
    drafter, totals = next((run.route.variant for run in runs if run.route), ""), sum_totals(turns)
    tokens = totals.completion_tokens
    return {"drafter": drafter, "tokens": tokens, **speculation_to_json(totals), "turns": len(turns)}
