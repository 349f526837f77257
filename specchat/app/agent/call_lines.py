"""A call and its outcome in one line, for every front end that prints lines, and the kind of a call for editors."""

from __future__ import annotations

from typing import Literal

from specchat.app.agent.agent_tool import ToolOutcome
from specchat.chat.tools import ToolCall

CallKind = Literal["read", "search", "edit", "execute", "other"]  # of the Agent Client Protocol
KINDS: dict[str, CallKind] = {
    "read": "read", "list": "search", "search": "search", "edit": "edit", "write": "edit", "run": "execute",
}  # fmt: skip

MAX_SUMMARY_CHARACTERS = 120


def call_kind(call: ToolCall) -> CallKind:
    return KINDS.get(call.name, "other")


def call_line(summary: str, outcome: ToolOutcome) -> str:
    """For example "read shop/cart.py: 5 lines", or the last line of an outcome that is a status."""
    return f"{short(summary)}: {outcome_text(outcome)}"


def outcome_text(outcome: ToolOutcome) -> str:
    lines = [line for line in outcome.text.strip().split("\n") if line.strip()] or ["nothing"]
    last = lines[-1].strip()
    if outcome.is_error or len(lines) == 1 or last.startswith("["):
        return short(last.strip("[]"))
    return f"{len(lines)} lines"


def short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_SUMMARY_CHARACTERS else f"{line[: MAX_SUMMARY_CHARACTERS - 3]}..."
