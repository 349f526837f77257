"""Measures the progress of a rewrite: the position of the streamed text in the original, and a status line from it."""

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable

from specchat.chat.events import Notice, Routed, Stage, TextDelta

LOOKAHEAD_LINES = 400  # a block that moved farther is not found
MIN_DISTINCTIVE_CHARS = 3  # shorter lines (brackets, blank lines) occur everywhere
REFRESH_SECONDS = 0.1


class RewriteAlignment:
    """Follows a streamed text. After a divergence it aligns again at the next distinctive line."""

    def __init__(self, original: str) -> None:
        self._lines = original.split("\n")
        self._line_positions: defaultdict[str, list[int]] = defaultdict(list)
        for index, line in enumerate(self._lines):
            self._line_positions[line].append(index)
        self._chars_before = [0]
        for line in self._lines:
            self._chars_before.append(self._chars_before[-1] + len(line) + 1)
        self._partial_line = ""
        self.lines_done = 0  # lines of the original that the rewrite has passed
        self.written_chars = 0

    @property
    def line_count(self) -> int:
        """Lines of the original, 1 for an empty text."""
        return len(self._lines)

    @property
    def fraction_done(self) -> float:
        """Fraction of the original that the rewrite has passed, from 0 to 1."""
        return self._chars_before[self.lines_done] / self._chars_before[-1]

    def feed(self, text: str) -> None:
        self.written_chars += len(text)
        *whole, self._partial_line = (self._partial_line + text).split("\n")
        for line in whole:
            found = self._find_line(line)
            self.lines_done = self.lines_done if found is None else found + 1

    def seconds_left(self, elapsed_seconds: float) -> float | None:
        """Estimated time left at the speed so far; None while there is no estimate."""
        if not self.written_chars or not self.lines_done:
            return None
        return elapsed_seconds * (self._chars_before[-1] - self._chars_before[self.lines_done]) / self.written_chars

    def _find_line(self, line: str) -> int | None:
        if self.lines_done < len(self._lines) and self._lines[self.lines_done] == line:
            return self.lines_done
        if len(line.strip()) < MIN_DISTINCTIVE_CHARS:
            return None
        positions = self._line_positions.get(line, [])
        index = bisect_left(positions, self.lines_done)
        is_near = index < len(positions) and positions[index] - self.lines_done <= LOOKAHEAD_LINES
        return positions[index] if is_near else None


class ProgressLine:
    """Consumes events and calls `show` with a new line at most every REFRESH_SECONDS."""

    def __init__(self, original: str, show: Callable[[str], None]) -> None:
        self._original, self._alignment, self._show = original, RewriteAlignment(original), show
        self._started_at = self._shown_at = 0.0

    def on_event(self, event: object) -> None:
        match event:
            case Stage() | Notice():
                self._show(event.text)
            case Routed():  # another answer begins
                self._alignment, self._started_at = RewriteAlignment(self._original), 0.0
            case TextDelta(text=text):
                self._started_at = self._started_at or time.monotonic()
                self._alignment.feed(text)
                self._refresh()
            case _:
                pass

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._shown_at >= REFRESH_SECONDS:
            self._shown_at = now
            self._show(format_progress(self._alignment, now - self._started_at))


def format_progress(alignment: RewriteAlignment, elapsed_seconds: float) -> str:
    """Format one status line.

    "74 % · 281/380 lines · 5 s left"
    """
    percent = f"{alignment.fraction_done:.0%}".replace("%", " %")
    parts = [percent, f"{alignment.lines_done}/{alignment.line_count} lines"]
    left = alignment.seconds_left(elapsed_seconds)
    return " · ".join(parts if left is None else [*parts, f"{left:.0f} s left"])
