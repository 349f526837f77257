"""How far a rewrite is, told by where the text written so far stands in the original. Knows no clock and no screen."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

LOOKAHEAD_LINES = 400  # lines; a piece that moved farther is not found again
MIN_DISTINCTIVE_CHARS = 3  # a line with fewer, a bracket or a blank one, stands everywhere


class RewriteAlignment:
    """Follows a text while it is written. After a divergence it finds its place again at the next telling line."""

    def __init__(self, original: str) -> None:
        self._lines = original.split("\n")
        self._line_positions: defaultdict[str, list[int]] = defaultdict(list)
        for place, line in enumerate(self._lines):
            self._line_positions[line].append(place)
        self._chars_before = [0]
        for line in self._lines:
            self._chars_before.append(self._chars_before[-1] + len(line) + 1)
        self._partial_line = ""
        self._position = 0
        self._has_diverged = False
        self.hunk_count = 0
        self.written_chars = 0

    @property
    def line_count(self) -> int:
        """Lines of the original, one for an empty one."""
        return len(self._lines)

    @property
    def lines_done(self) -> int:
        """Lines of the original that are done with."""
        return self._position

    @property
    def fraction_done(self) -> float:
        """How much of the original is done with, from 0 to 1."""
        return self._chars_before[self._position] / self._chars_before[-1]

    def feed(self, text: str) -> None:
        """More of the new text."""
        self.written_chars += len(text)
        *whole, self._partial_line = (self._partial_line + text).split("\n")
        for line in whole:
            self._advance(line)

    def seconds_left(self, elapsed_seconds: float) -> float | None:
        """How long the rest takes at the pace so far; None while there is no pace yet."""
        if not self.written_chars or not self._position:
            return None
        return elapsed_seconds * (self._chars_before[-1] - self._chars_before[self._position]) / self.written_chars

    def _advance(self, line: str) -> None:
        found = self._find_line(line)
        if found is not None:
            if found > self._position and not self._has_diverged:
                self.hunk_count += 1  # lines are left out
            self._position, self._has_diverged = found + 1, False
        elif not self._has_diverged:
            self._has_diverged = True
            self.hunk_count += 1

    def _find_line(self, line: str) -> int | None:
        """Where the original goes on with this line."""
        if self._position < len(self._lines) and self._lines[self._position] == line:
            return self._position
        if len(line.strip()) < MIN_DISTINCTIVE_CHARS:
            return None
        places = self._line_positions.get(line, [])
        later = bisect_left(places, self._position)
        return places[later] if later < len(places) and places[later] - self._position <= LOOKAHEAD_LINES else None
