"""How far a rewrite is, told by where the text written so far stands in the original. Knows no clock and no screen."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

LOOK_AHEAD = 400  # lines; a piece that moved farther is not found again
TELLING_LETTERS = 3  # a line with fewer, a bracket or a blank one, stands everywhere


class Alignment:
    """Follows a text while it is written. After a divergence it finds its place again at the next telling line."""

    def __init__(self, original: str) -> None:
        self._lines = original.split("\n")
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, line in enumerate(self._lines):
            self._places[line].append(place)
        self._behind = [0]
        for line in self._lines:
            self._behind.append(self._behind[-1] + len(line) + 1)
        self._begun = ""
        self._place = 0
        self._is_apart = False
        self.hunks = 0
        self.written = 0

    @property
    def lines(self) -> int:
        """Lines of the original, one for an empty one."""
        return len(self._lines)

    @property
    def line(self) -> int:
        """Lines of the original that are done with."""
        return self._place

    @property
    def share(self) -> float:
        """How much of the original is done with, from 0 to 1."""
        return self._behind[self._place] / self._behind[-1]

    def feed(self, text: str) -> None:
        """More of the new text."""
        self.written += len(text)
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._follow(line)

    def seconds_left(self, seconds: float) -> float | None:
        """How long the rest takes at the pace so far; None while there is no pace yet."""
        if not self.written or not self._place:
            return None
        return seconds * (self._behind[-1] - self._behind[self._place]) / self.written

    def _follow(self, line: str) -> None:
        found = self._find(line)
        if found is not None:
            if found > self._place and not self._is_apart:
                self.hunks += 1  # lines are left out
            self._place, self._is_apart = found + 1, False
        elif not self._is_apart:
            self._is_apart = True
            self.hunks += 1

    def _find(self, line: str) -> int | None:
        """Where the original goes on with this line."""
        if self._place < len(self._lines) and self._lines[self._place] == line:
            return self._place
        if len(line.strip()) < TELLING_LETTERS:
            return None
        places = self._places.get(line, [])
        later = bisect_left(places, self._place)
        return places[later] if later < len(places) and places[later] - self._place <= LOOK_AHEAD else None
