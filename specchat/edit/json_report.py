"""An edit as JSON, for programs: what became of each file, hunk by hunk. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specchat.edit.answer_check import RejectedError
from specchat.edit.edit_task import Edited
from specchat.edit.edit_turn import Talk, sum_of
from specchat.edit.hunks import Hunk, hunks_between, split_lines
from specchat.edit.source_text import Source
from specchat.errors import SpecchatError


def file_report(source: Source, edited: Edited, talk: Talk, *, checks: Sequence[str], is_taken: bool) -> dict[str, Any]:
    """One file with a new text."""
    lines = split_lines(source.text)
    hunks = enumerate(hunks_between(source.text, edited.text), 1)
    return {
        "status": "applied" if is_taken else "offered",
        "exit": 0,
        "file": source.name,
        "format": edited.plan.format,
        "hunks": [{"id": number, **_hunk(lines, hunk), "taken": is_taken} for number, hunk in hunks],
        "flags": edited.flags.words,
        "checks": dict.fromkeys(checks, "passed"),
        "spec": _spec(talk),
    }


def _hunk(lines: Sequence[str], hunk: Hunk) -> dict[str, Any]:
    old, new = lines[hunk.first : hunk.end], hunk.new_lines(lines)
    return {"line": hunk.first + 1, "old": "".join(old), "new": "".join(new)}


def failure_report(name: str, error: SpecchatError) -> dict[str, Any]:
    """One file without."""
    status = str(error.verdict) if isinstance(error, RejectedError) else type(error).__name__.removesuffix("Error")
    return {"status": status, "exit": error.exit_code, "file": name, "message": str(error), "hunks": []}


def _spec(talk: Talk) -> dict[str, Any]:
    totals = sum_of(talk.finished)
    return {
        "variant": talk.routed.variant if talk.routed else "", "tokens": totals.tokens, "steps": totals.steps,
        "drafted": totals.drafted, "accepted": sum(totals.accepted.values()),
        "tokens_per_pass": round(totals.tokens_per_pass, 3), "tokens_per_second": round(totals.tokens_per_second, 1),
        "times_plain": None if totals.times_plain is None else round(totals.times_plain, 2),
        "turns": len(talk.finished),
    }  # fmt: skip
