"""Unified diffs. Knows no model and no file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specchat.edit.hunks import CONTEXT_LINES, Hunk, diff_lines, group_changes, split_lines
from specchat.edit.source_text import Source

DEV_NULL = "/dev/null"
NO_NEWLINE_MARKER = "\n\\ No newline at end of file\n"


def source_diff(source: Source, text: str) -> str:
    """A unified diff that `patch -p1` and `git apply` accept."""
    codec = source.codec.removesuffix("-sig")
    return unified_diff(source.name, source.raw.decode(codec), source.encode(text).decode(codec))


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
            *map(_with_newline_marker, shown),
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


def _with_newline_marker(line: str) -> str:
    return line if line.endswith("\n") else f"{line}{NO_NEWLINE_MARKER}"
