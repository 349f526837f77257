"""The footer of an answer: cost, speculation, and why it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specchat.chat.events import Totals
from specchat.host.protocol import totals_from_json
from specchat.tui.glyphs import UNICODE, Glyphs

END_REASON_TEXTS = {
    "stop": "stop: end",
    "length": "stop: length limit",
    "repetition": "stop: repeats itself",
    "cancelled": "stopped, the partial answer is kept",
    "interrupted": "interrupted, the partial answer is kept",
    "failed": "failed",
}


def answer_footer(finish_reason: str, totals: Totals, glyphs: Glyphs = UNICODE) -> str:
    """For example: 412 tok · 2.9 s · 142 t/s · ×2.7 · accepted 82% · lookup→draft · stop: end."""
    parts: list[str] = []
    if totals.completion_tokens:
        seconds = totals.prefill_seconds + totals.decode_seconds
        parts = [f"{totals.completion_tokens} tok", f"{seconds:.1f} s", f"{totals.tokens_per_second:.0f} t/s"]
    if totals.speedup is not None:
        parts.append(f"{glyphs.times}{totals.speedup:.1f}")
    if totals.acceptance_rate is not None:
        parts.append(f"accepted {totals.acceptance_rate:.0%}")
    sources = sorted(
        (source for source, count in totals.accepted_by_drafter.items() if count),
        key=lambda each: -totals.accepted_by_drafter[each],
    )
    if sources:
        parts.append(glyphs.arrow.join(sources))
    return f" {glyphs.dot} ".join([*parts, END_REASON_TEXTS.get(finish_reason, finish_reason)])


def stored_footer(state: str, totals: Mapping[str, Any], glyphs: Glyphs = UNICODE) -> str:
    """The footer of a stored turn; a failed turn shows its error."""
    if message := totals.get("message"):
        return f"failed: {message}"
    return answer_footer(state, totals_from_json(dict(totals)), glyphs)
