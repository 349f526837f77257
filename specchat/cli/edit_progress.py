"""A passing line on stderr while a file is written anew: how far, how many hunks, how fast, how long still."""

from __future__ import annotations

import os
import sys
import time

from specchat.chat.events import Event, Loading, Prefill, StepDone, Text
from specchat.cli.conversation import ERASE_LINE
from specchat.edit.progress import Alignment

LOOK_SECONDS = 0.1  # between two drawings


class Progress:
    """Draws on a terminal only, and leaves nothing behind."""

    def __init__(self, original: str) -> None:
        self._alignment = Alignment(original)
        self._tokens, self._begun, self._drawn = 0, 0.0, 0.0
        self._shown = ""
        self._is_visible = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ

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
                self._draw()
            case StepDone(committed=committed):
                self._tokens += len(committed)
            case _:
                pass

    def erase(self) -> None:
        """Make room for what stays."""
        if self._shown:
            self._shown = ""
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()

    def _draw(self) -> None:
        now = time.monotonic()
        if now - self._drawn >= LOOK_SECONDS:
            self._drawn = now
            self._show(progress_line(self._alignment, self._tokens, now - self._begun))

    def _show(self, line: str) -> None:
        if self._is_visible and line != self._shown:
            self._shown = line
            sys.stderr.write(f"{ERASE_LINE}{line}")
            sys.stderr.flush()


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
