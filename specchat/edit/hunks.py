"""What differs between two texts, as pieces that can be taken or left one by one.

Lines keep their ends. Taking every hunk gives the new text, taking none the old one. Knows no file and no screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

CONTEXT_LINES = 3
MERGE_DISTANCE_LINES = 2 * CONTEXT_LINES  # changes with fewer lines between them are shown together
AUTOJUNK_MIN_LINES = 5000  # above, difflib may ignore frequent lines: a worse diff, but one that comes


@dataclass(frozen=True)
class Change:
    """Some lines that others take the place of; `first` counts from 0. Either side may be empty."""

    first: int
    old: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def end(self) -> int:
        """The first old line behind it."""
        return self.first + len(self.old)


@dataclass(frozen=True)
class Hunk:
    """Changes that stand close together, at least one."""

    changes: tuple[Change, ...]

    @property
    def first(self) -> int:
        """Its first old line, from 0."""
        return self.changes[0].first

    @property
    def end(self) -> int:
        """The first old line behind it."""
        return self.changes[-1].end

    def split(self) -> list[Hunk]:
        """Each change alone."""
        return [Hunk((change,)) for change in self.changes]

    def new_lines(self, old: Sequence[str]) -> list[str]:
        """What stands in its place once it is taken."""
        return apply_changes(old[: self.end], self.changes)[self.first :]

    def with_new_lines(self, old: Sequence[str], lines: Sequence[str]) -> Hunk:
        """The same place with other new lines."""
        return Hunk((Change(self.first, tuple(old[self.first : self.end]), tuple(lines)),))


def split_lines(text: str) -> list[str]:
    """Lines as git sees them; `splitlines` would also cut at form feeds and other separators."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def diff_lines(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """The fewest lines that differ, nearly. What is equal at both ends is left out first: most edits are small."""
    head = _common_prefix_length(old, new)
    tail = _common_prefix_length(old[head:][::-1], new[head:][::-1])
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    matcher = SequenceMatcher(None, middle_old, middle_new, autojunk=len(middle_old) > AUTOJUNK_MIN_LINES)
    return [
        Change(head + first, tuple(middle_old[first:end]), tuple(middle_new[start:stop]))
        for kind, first, end, start, stop in matcher.get_opcodes()
        if kind != "equal"
    ]


def group_changes(line_changes: Sequence[Change]) -> list[Hunk]:
    """Changes as hunks: those that stand close together are one."""
    hunks: list[list[Change]] = []
    for change in line_changes:
        if hunks and change.first - hunks[-1][-1].end <= MERGE_DISTANCE_LINES:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    return [Hunk(tuple(each)) for each in hunks]


def diff_hunks(old: str, new: str) -> list[Hunk]:
    """All hunks from one text to another."""
    return group_changes(diff_lines(split_lines(old), split_lines(new)))


def apply_changes(old: Sequence[str], accepted: Iterable[Change]) -> list[str]:
    """The old lines with these changes, which stand in their order and do not overlap."""
    lines: list[str] = []
    done = 0
    for change in accepted:
        lines += [*old[done : change.first], *change.new]
        done = change.end
    return [*lines, *old[done:]]


def apply_hunks(old: str, accepted: Iterable[Hunk]) -> str:
    """The old text with these hunks."""
    return "".join(apply_changes(split_lines(old), [change for hunk in accepted for change in hunk.changes]))


def _common_prefix_length(left: Sequence[str], right: Sequence[str]) -> int:
    pairs = zip(left, right, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))
