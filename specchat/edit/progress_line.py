"""Turns the events of a rewrite into a status line: progress, hunks, tokens/s, time left. Draws nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from specchat.chat.events import Event, LoadingProgress, PrefillProgress, StepDone, TextDelta
from specchat.edit.rewrite_alignment import RewriteAlignment

REFRESH_SECONDS = 0.1


class ProgressLine:
    """Consumes events and calls `show` with a new line at most every REFRESH_SECONDS."""

    def __init__(self, original: str, show: Callable[[str], None]) -> None:
        self._alignment, self._show = RewriteAlignment(original), show
        self._tokens, self._started_at, self._shown_at = 0, 0.0, 0.0

    def on_event(self, event: Event) -> None:
        """Update the progress from one event."""
        match event:
            case LoadingProgress(text=text):
                self._show(text)
            case PrefillProgress(processed_tokens=done, prompt_tokens=total) if done < total:
                self._show(f"prefill: {done} of {total} tokens…")
            case TextDelta(text=text):
                self._started_at = self._started_at or time.monotonic()
                self._alignment.feed(text)
                self._refresh()
            case StepDone(committed_tokens=committed):
                self._tokens += len(committed)
            case _:
                pass

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._shown_at >= REFRESH_SECONDS:
            self._shown_at = now
            self._show(format_progress(self._alignment, self._tokens, now - self._started_at))


def format_progress(alignment: RewriteAlignment, tokens: int, elapsed_seconds: float) -> str:
    """Format one status line.

    "74 % · 281/380 lines · 3 hunks · 187 tokens/s · 5 s left"
    """
    count = alignment.hunk_count
    parts = [
        f"{alignment.fraction_done:.0%}".replace("%", " %"),
        f"{alignment.lines_done}/{alignment.line_count} lines",
        f"{count} hunk{'' if count == 1 else 's'}",
    ]
    if elapsed_seconds > 0:
        parts.append(f"{tokens / elapsed_seconds:.0f} tokens/s")
    left = alignment.seconds_left(elapsed_seconds)
    return " · ".join(parts if left is None else [*parts, f"{left:.0f} s left"])
