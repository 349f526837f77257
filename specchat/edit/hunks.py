"""The differences between two texts as hunks that can be accepted or rejected one by one.

Lines keep their line ends. Accepting every hunk gives the new text, accepting none the old one. Knows no file and no
screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

CONTEXT_LINES = 3
MERGE_DISTANCE_LINES = 2 * CONTEXT_LINES  # changes with fewer lines between them are shown together
AUTOJUNK_MIN_LINES = 5000  # above, difflib may ignore frequent lines: a worse diff in acceptable time
DEV_NULL = "/dev/null"
NO_NEWLINE_MARKER = "\n\\ No newline at end of file\n"


@dataclass(frozen=True)
class Change:
    """Replaced lines; `first` counts from 0. Either side may be empty."""

    first: int
    old: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def end(self) -> int:
        return self.first + len(self.old)


@dataclass(frozen=True)
class Hunk:
    changes: tuple[Change, ...]

    @property
    def first(self) -> int:
        return self.changes[0].first

    @property
    def end(self) -> int:
        return self.changes[-1].end

    def split(self) -> list[Hunk]:
        return [Hunk((change,)) for change in self.changes]

    def new_lines(self, old: Sequence[str]) -> list[str]:
        """The lines of this range once the hunk is accepted."""
        return apply_changes(old[: self.end], self.changes)[self.first :]

    def with_new_lines(self, old: Sequence[str], lines: Sequence[str]) -> Hunk:
        return Hunk((Change(self.first, tuple(old[self.first : self.end]), tuple(lines)),))


def split_lines(text: str) -> list[str]:
    """Lines as git sees them; `splitlines` also splits at form feeds and other separators."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def diff_lines(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """A nearly minimal line diff. The common prefix and suffix are removed first: most edits are small."""
    head = common_prefix_length(old, new)
    tail = common_prefix_length(old[head:][::-1], new[head:][::-1])
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    matcher = SequenceMatcher(None, middle_old, middle_new, autojunk=len(middle_old) > AUTOJUNK_MIN_LINES)
    return [
        Change(head + first, tuple(middle_old[first:end]), tuple(middle_new[start:stop]))
        for kind, first, end, start, stop in matcher.get_opcodes()
        if kind != "equal"
    ]


def group_changes(line_changes: Sequence[Change]) -> list[Hunk]:
    hunks: list[list[Change]] = []
    for change in line_changes:
        if hunks and change.first - hunks[-1][-1].end <= MERGE_DISTANCE_LINES:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    return [Hunk(tuple(each)) for each in hunks]


def diff_hunks(old: str, new: str) -> list[Hunk]:
    return group_changes(diff_lines(split_lines(old), split_lines(new)))


def apply_changes(old: Sequence[str], accepted: Iterable[Change]) -> list[str]:
    lines: list[str] = []
    done = 0
    for change in accepted:
        lines += [*old[done : change.first], *change.new]
        done = change.end
    return [*lines, *old[done:]]


def apply_hunks(old: str, accepted: Iterable[Hunk]) -> str:
    return "".join(apply_changes(split_lines(old), [change for hunk in accepted for change in hunk.changes]))


def common_prefix_length(left: Sequence[str], right: Sequence[str]) -> int:
    """How many lines are equal at the beginning."""
    pairs = zip(left, right, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))


def unified_diff(name: str, old: str | None, new: str | None) -> str:
    """A unified diff of two texts with their own line ends; None where there is no file."""
    lines, new_lines = split_lines(old or ""), split_lines(new or "")
    hunks = group_changes(diff_lines(lines, new_lines))
    if not hunks:
        return ""
    body = "".join(line for each in format_hunks(lines, hunks) for line in each)
    name = name.lstrip("/")
    before, after = DEV_NULL if old is None else f"a/{name}", DEV_NULL if new is None else f"b/{name}"
    return f"--- {before}\n+++ {after}\n{body}"


def format_hunks(old: Sequence[str], hunks: Sequence[Hunk]) -> Iterator[list[str]]:
    """Each hunk as diff lines, beginning with its `@@` line."""
    offset = 0  # of new line numbers
    for hunk in hunks:
        shown = hunk_lines(old, hunk)
        first = max(0, hunk.first - CONTEXT_LINES)
        removed, added = (sum(line[0] in signs for line in shown) for signs in (" -", " +"))
        yield [
            f"@@ -{_hunk_range(first, removed)} +{_hunk_range(first + offset, added)} @@\n",
            *(line if line.endswith("\n") else f"{line}{NO_NEWLINE_MARKER}" for line in shown),
        ]
        offset += added - removed


def hunk_lines(old: Sequence[str], hunk: Hunk) -> list[str]:
    """The lines of a hunk with context: " " unchanged, "-" removed, "+" added."""
    shown = [f" {line}" for line in old[max(0, hunk.first - CONTEXT_LINES) : hunk.first]]
    done = hunk.first
    for change in hunk.changes:
        shown += [f" {line}" for line in old[done : change.first]]
        shown += [*(f"-{line}" for line in change.old), *(f"+{line}" for line in change.new)]
        done = change.end
    return shown + [f" {line}" for line in old[done : done + CONTEXT_LINES]]


def _hunk_range(first: int, count: int) -> str:
    """The line and count of a range; an empty range is named by the line before it."""
    return f"{first + 1 if count else first},{count}"
