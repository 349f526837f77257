"""The state of a review: decisions about hunks, each of which can be undone. Knows no screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specchat.edit.hunks import Hunk, apply_hunks, split_lines


@dataclass(frozen=True)
class HunkDecision:
    hunk: Hunk
    is_accepted: bool | None = None


class Review:
    """Goes through hunks in the given order. Every step can be undone, including splitting and rewriting."""

    def __init__(self, old: str, hunks: Sequence[Hunk]) -> None:
        self.old_text, self.old_lines = old, split_lines(old)
        self.decisions = tuple(HunkDecision(hunk) for hunk in hunks)
        self._undo_stack: list[tuple[HunkDecision, ...]] = []

    @property
    def index(self) -> int:
        is_open = (index for index, each in enumerate(self.decisions) if each.is_accepted is None)
        return next(is_open, len(self.decisions))

    @property
    def current_hunk(self) -> Hunk | None:
        return self.decisions[self.index].hunk if self.index < len(self.decisions) else None

    @property
    def accepted_hunks(self) -> list[Hunk]:
        hunks = (each.hunk for each in self.decisions if each.is_accepted)
        return sorted(hunks, key=lambda hunk: (hunk.first, hunk.end))

    @property
    def text(self) -> str:
        return apply_hunks(self.old_text, self.accepted_hunks)

    def decide(self, *, is_accepted: bool) -> None:
        self._replace_decision(self.index, replace(self.decisions[self.index], is_accepted=is_accepted))

    def decide_remaining(self, *, is_accepted: bool) -> None:
        self._undo_stack.append(self.decisions)
        self.decisions = tuple(
            replace(each, is_accepted=is_accepted) if each.is_accepted is None else each for each in self.decisions
        )

    def split(self) -> bool:
        parts = self.decisions[self.index].hunk.split()
        if len(parts) > 1:
            self._replace_decision(self.index, *map(HunkDecision, parts))
        return len(parts) > 1

    def replace_and_accept(self, hunk: Hunk) -> None:
        self._replace_decision(self.index, HunkDecision(hunk, is_accepted=True))

    def replace_current(self, hunk: Hunk) -> None:
        self._replace_decision(self.index, HunkDecision(hunk))

    def undo(self) -> bool:
        """Undo the last step; False when there is none."""
        if self._undo_stack:
            self.decisions = self._undo_stack.pop()
            return True
        return False

    def untouched_range(self) -> tuple[int, int]:
        """The old lines around the current hunk that no other hunk touches: first and end, from 0."""
        current = self.decisions[self.index].hunk
        others = [each.hunk for each in self.decisions if each.hunk != current]
        first = max((hunk.end for hunk in others if hunk.end <= current.first), default=0)
        end = min((hunk.first for hunk in others if hunk.first >= current.end), default=len(self.old_lines))
        return first, end

    def _replace_decision(self, index: int, *new_decisions: HunkDecision) -> None:
        self._undo_stack.append(self.decisions)
        self.decisions = (*self.decisions[:index], *new_decisions, *self.decisions[index + 1 :])
