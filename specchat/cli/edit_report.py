"""`specchat edit --json`: one object for each file."""

from collections.abc import Sequence
from typing import Any

from specchat.app.edit_events import AcceptedEdit
from specchat.chat.sum_totals import sum_totals
from specchat.chat.turn_summary import speculation_to_json
from specchat.edit.answer_check import UnusableAnswerError
from specchat.edit.edit_turn import EditRun
from specchat.edit.hunks import Hunk, diff_hunks, split_lines
from specchat.errors import SpecchatError


def file_report(edit: AcceptedEdit, checks: Sequence[str], *, is_applied: bool) -> dict[str, Any]:
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
        "spec": _speculation_stats(edit.run),
    }


def _hunk_texts(lines: Sequence[str], hunk: Hunk) -> dict[str, Any]:
    old, new = lines[hunk.first : hunk.end], hunk.new_lines(lines)
    return {"line": hunk.first + 1, "old": "".join(old), "new": "".join(new)}


def failure_report(name: str, error: SpecchatError) -> dict[str, Any]:
    name_of_error = type(error).__name__.removesuffix("Error")
    status = str(error.problem) if isinstance(error, UnusableAnswerError) else name_of_error
    return {"status": status, "exit": error.exit_code, "file": name, "message": str(error), "hunks": []}


def _speculation_stats(edit_run: EditRun) -> dict[str, Any]:
    totals = sum_totals(edit_run.finished_turns)
    return {
        "drafter": edit_run.route.variant if edit_run.route else "",
        "tokens": totals.completion_tokens, **speculation_to_json(totals), "turns": len(edit_run.finished_turns),
    }  # fmt: skip
