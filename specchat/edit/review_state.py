"""A person's decisions about hunks, one after the other, each of which can be taken back. Knows no screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specchat.edit.hunks import Hunk, split_lines, with_hunks


@dataclass(frozen=True)
class Decided:
    """A hunk and what became of it; None while nobody has said."""

    hunk: Hunk
    is_taken: bool | None = None


class Review:
    """Goes through hunks in the order given. Every step can be taken back, splitting and rewriting too."""

    def __init__(self, old: str, hunks: Sequence[Hunk]) -> None:
        self.old, self.lines = old, split_lines(old)
        self.items = tuple(Decided(hunk) for hunk in hunks)
        self._before: list[tuple[Decided, ...]] = []

    @property
    def place(self) -> int:
        """The number of the hunk to decide on, from 0."""
        return next((place for place, each in enumerate(self.items) if each.is_taken is None), len(self.items))

    @property
    def current(self) -> Hunk | None:
        """The hunk to decide on, None when all are decided."""
        return self.items[self.place].hunk if self.place < len(self.items) else None

    @property
    def taken(self) -> list[Hunk]:
        """What was taken so far, in the order of the text."""
        hunks = (each.hunk for each in self.items if each.is_taken)
        return sorted(hunks, key=lambda hunk: (hunk.first, hunk.end))

    @property
    def text(self) -> str:
        """The old text with everything that was taken."""
        return with_hunks(self.old, self.taken)

    def decide(self, *, is_taken: bool) -> None:
        """Take this hunk, or leave it."""
        self._set(self.place, replace(self.items[self.place], is_taken=is_taken))

    def decide_rest(self, *, is_taken: bool) -> None:
        """The same for this hunk and all that come."""
        self._before.append(self.items)
        self.items = tuple(replace(each, is_taken=is_taken) if each.is_taken is None else each for each in self.items)

    def split(self) -> bool:
        """Make this hunk several; False when it is one change."""
        parts = self.items[self.place].hunk.parts()
        if len(parts) > 1:
            self._set(self.place, *map(Decided, parts))
        return len(parts) > 1

    def take_instead(self, hunk: Hunk) -> None:
        """Take something else in the place of this hunk."""
        self._set(self.place, Decided(hunk, is_taken=True))

    def offer_instead(self, hunk: Hunk) -> None:
        """Decide on something else in the place of this hunk."""
        self._set(self.place, Decided(hunk))

    def back(self) -> bool:
        """Take the last step back; False when there was none."""
        if self._before:
            self.items = self._before.pop()
            return True
        return False

    def free_lines(self) -> tuple[int, int]:
        """The old lines around this hunk that no other hunk touches: first and end, from 0."""
        here = self.items[self.place].hunk
        others = [each.hunk for each in self.items if each.hunk != here]
        before = max((hunk.end for hunk in others if hunk.end <= here.first), default=0)
        behind = min((hunk.first for hunk in others if hunk.first >= here.end), default=len(self.lines))
        return before, behind

    def _set(self, place: int, *items: Decided) -> None:
        self._before.append(self.items)
        self.items = (*self.items[:place], *items, *self.items[place + 1 :])
