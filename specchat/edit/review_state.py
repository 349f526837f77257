"""A person's decisions about hunks, one after the other, each of which can be taken back. Knows no screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specchat.edit.hunks import Hunk, apply_hunks, split_lines


@dataclass(frozen=True)
class HunkDecision:
    """A hunk and what became of it; None while nobody has said."""

    hunk: Hunk
    is_accepted: bool | None = None


class Review:
    """Goes through hunks in the order given. Every step can be taken back, splitting and rewriting too."""

    def __init__(self, old: str, hunks: Sequence[Hunk]) -> None:
        self.old_text, self.old_lines = old, split_lines(old)
        self.decisions = tuple(HunkDecision(hunk) for hunk in hunks)
        self._undo_stack: list[tuple[HunkDecision, ...]] = []

    @property
    def index(self) -> int:
        """The number of the hunk to decide on, from 0."""
        return next(
            (place for place, each in enumerate(self.decisions) if each.is_accepted is None), len(self.decisions)
        )

    @property
    def current_hunk(self) -> Hunk | None:
        """The hunk to decide on, None when all are decided."""
        return self.decisions[self.index].hunk if self.index < len(self.decisions) else None

    @property
    def accepted_hunks(self) -> list[Hunk]:
        """What was taken so far, in the order of the text."""
        hunks = (each.hunk for each in self.decisions if each.is_accepted)
        return sorted(hunks, key=lambda hunk: (hunk.first, hunk.end))

    @property
    def text(self) -> str:
        """The old text with everything that was taken."""
        return apply_hunks(self.old_text, self.accepted_hunks)

    def decide(self, *, is_accepted: bool) -> None:
        """Take this hunk, or leave it."""
        self._replace_decision(self.index, replace(self.decisions[self.index], is_taken=is_accepted))

    def decide_remaining(self, *, is_accepted: bool) -> None:
        """The same for this hunk and all that come."""
        self._undo_stack.append(self.decisions)
        self.decisions = tuple(
            replace(each, is_taken=is_accepted) if each.is_accepted is None else each for each in self.decisions
        )

    def split(self) -> bool:
        """Make this hunk several; False when it is one change."""
        parts = self.decisions[self.index].hunk.split()
        if len(parts) > 1:
            self._replace_decision(self.index, *map(HunkDecision, parts))
        return len(parts) > 1

    def replace_and_accept(self, hunk: Hunk) -> None:
        """Take something else in the place of this hunk."""
        self._replace_decision(self.index, HunkDecision(hunk, is_accepted=True))

    def replace_current(self, hunk: Hunk) -> None:
        """Decide on something else in the place of this hunk."""
        self._replace_decision(self.index, HunkDecision(hunk))

    def undo(self) -> bool:
        """Take the last step back; False when there was none."""
        if self._undo_stack:
            self.decisions = self._undo_stack.pop()
            return True
        return False

    def untouched_range(self) -> tuple[int, int]:
        """The old lines around this hunk that no other hunk touches: first and end, from 0."""
        here = self.decisions[self.index].hunk
        others = [each.hunk for each in self.decisions if each.hunk != here]
        before = max((hunk.end for hunk in others if hunk.end <= here.first), default=0)
        behind = min((hunk.first for hunk in others if hunk.first >= here.end), default=len(self.old_lines))
        return before, behind

    def _replace_decision(self, index: int, *new_decisions: HunkDecision) -> None:
        self._undo_stack.append(self.decisions)
        self.decisions = (*self.decisions[:index], *new_decisions, *self.decisions[index + 1 :])
