"""The events of a rewrite as a line that changes: how far, how many hunks, how fast, how long still. Draws nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from specchat.chat.events import Event, Loading, Prefill, StepDone, Text
from specchat.edit.rewrite_position import Alignment

LOOK_SECONDS = 0.1  # between two lines of numbers


class Following:
    """Hears what happens and shows a line of it now and then."""

    def __init__(self, original: str, show: Callable[[str], None]) -> None:
        self._alignment, self._show = Alignment(original), show
        self._tokens, self._begun, self._shown = 0, 0.0, 0.0

    def hear(self, event: Event) -> None:
        """Follow what happens."""
        match event:
            case Loading(what=what):
                self._show(f"loading the {what} model…")
            case Prefill(done=done, total=total) if done < total:
                self._show(f"reading {done} of {total} tokens…")
            case Text(text=text):
                self._begun = self._begun or time.monotonic()
                self._alignment.feed(text)
                self._tell()
            case StepDone(committed=committed):
                self._tokens += len(committed)
            case _:
                pass

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._shown >= LOOK_SECONDS:
            self._shown = now
            self._show(progress_line(self._alignment, self._tokens, now - self._begun))


def progress_line(alignment: Alignment, tokens: int, seconds: float) -> str:
    """The line for a moment.

    "74 % · 281/380 lines · 3 hunks · 187 tokens/s · 5 s left"
    """
    count = alignment.hunks
    parts = [
        f"{alignment.share:.0%}".replace("%", " %"),
        f"{alignment.line}/{alignment.lines} lines",
        f"{count} hunk{'' if count == 1 else 's'}",
    ]
    if seconds > 0:
        parts.append(f"{tokens / seconds:.0f} tokens/s")
    left = alignment.seconds_left(seconds)
    return " · ".join(parts if left is None else [*parts, f"{left:.0f} s left"])
