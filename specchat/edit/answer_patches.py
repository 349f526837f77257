"""Answers that name changes instead of the whole file: unified diffs and search/replace blocks.

A change is applied where the file says exactly what the answer claims, or not at all: no similar line, no second
candidate. Knows no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from specchat.edit.hunks import DEV_NULL, split_lines

HUNK_HEADER = re.compile(r"@@(?: -(?P<line>\d+)(?:,(?P<count>\d+))? \+\d+(?:,\d+)? @@)?.*")
FILE_HEADER = re.compile(r"(?:---|\+\+\+) (?P<name>\S[^\t\n]*)")
DIFF_NOISE = re.compile(r"(?:diff --git|index [0-9a-f]|new file mode|old mode|new mode|similarity index)")
NO_NEWLINE = "\\ No newline"
SEARCH = re.compile(r"<{5,9} ?(?:SEARCH|ORIGINAL)\b.*")
DIVIDER = re.compile(r"={5,9}\s*")
REPLACE = re.compile(r">{5,9} ?(?:REPLACE|UPDATED)\b.*")


class PatchError(Exception):
    """The changes do not apply to the file; the message says which."""


@dataclass(frozen=True)
class TextChange:
    """Lines of the old text, and those in their place. `line` is where they should stand, from 1, 0 if unknown."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int = 0

    @property
    def excerpt(self) -> str:
        return next((line.strip() for line in self.old if line.strip()), "(no line)")


def is_diff(text: str) -> bool:
    """Whether a text is a unified diff: it has the header of a hunk, and every line after it belongs to one."""
    lines = text.strip("\n").split("\n")
    first = next((number for number, line in enumerate(lines) if HUNK_HEADER.fullmatch(line)), None)
    if first is None or not all(_is_before_hunks(line) for line in lines[:first]):
        return False
    body = [line for line in lines[first:] if line]
    return all(line[0] in " +-@\\" or _is_before_hunks(line) for line in body) and any(line[0] in "+-" for line in body)


def has_search_blocks(text: str) -> bool:
    """Whether a text has a complete search/replace block."""
    kinds = [kind for line in text.split("\n") if (kind := _marker_kind(line))]
    return any(kinds[place : place + 3] == ["search", "divider", "replace"] for place in range(len(kinds)))


def starts_changes(text: str) -> bool:
    """Whether a text that is not complete yet begins as a diff or as a search/replace block."""
    first = text.lstrip("\n").partition("\n")[0]
    return bool(HUNK_HEADER.fullmatch(first) or _is_before_hunks(first) or SEARCH.fullmatch(first))


def apply_diff(old: str, name: str, diff: str) -> str:
    """The new text; PatchError unless every hunk is about this file and applies exactly.

    A hunk with a wrong line number applies if its lines stand in one place only.
    """
    names = {named for named in _changed_files(diff) if named != DEV_NULL}
    if others := [named for named in names if not _is_same_file(named, name)]:
        raise PatchError(f"it also changes {min(others)[2:] if min(others)[:2] in ('a/', 'b/') else min(others)}")
    lines, done, offset = _lines(old), 0, 0
    for change in _hunks(diff):
        first = _place_of_hunk(lines, change, done, offset)
        _replace_lines(lines, first, change)
        done = first + len(change.new)
        offset += len(change.new) - len(change.old)
    return _join(old, lines)


def apply_search_blocks(old: str, answer: str) -> str:
    """The new text; PatchError unless the lines of every search stand in exactly one place.

    That is a place of the old text; if there is none for one of the blocks, they apply one after the other, so that a
    later one may search what an earlier one wrote.
    """
    changes = list(search_blocks(answer))
    lines = _lines(old)
    if any(not change.old for change in changes) and any(lines):
        raise PatchError("a search is empty, and the file is not")
    try:
        places = sorted(((_only_place(lines, change), change) for change in changes), key=lambda each: each[0])
        if any(second[0] < first[0] + len(first[1].old) for first, second in pairwise(places)):
            raise PatchError("two search/replace blocks overlap")
    except PatchError:
        for change in changes:
            _replace_lines(lines, _only_place(lines, change), change)
    else:
        for place, change in reversed(places):
            _replace_lines(lines, place, change)
    return _join(old, lines)


def _only_place(lines: Sequence[str], change: TextChange, first: int = 0) -> int:
    """The only line, from 0, at `first` or below, where the old lines of a change stand."""
    places = [place for place in _places(lines, change.old) if place >= first]
    if len(places) != 1:
        where = f"in {len(places)} places" if places else "nowhere"
        raise PatchError(f"the file has {change.excerpt!r} and what follows {where}")
    return places[0]


def _replace_lines(lines: list[str], place: int, change: TextChange) -> None:
    lines[place : place + len(change.old)] = change.new


def search_blocks(answer: str) -> Iterator[TextChange]:
    """Every search/replace block of an answer; PatchError for one that is not complete."""
    parts: list[list[str]] = []
    for line in answer.split("\n"):
        kind = _marker_kind(line)
        if kind == "search" and not parts:
            parts = [[]]
        elif kind == "divider" and len(parts) == 1:
            parts.append([])
        elif kind == "replace" and len(parts) == 2:
            yield TextChange(tuple(parts[0]), tuple(parts[1]))
            parts = []
        elif kind and parts:  # a heading of the file can look like a divider, and then the block has two meanings
            break
        elif parts:
            parts[-1].append(line)
    if parts:
        raise PatchError("a search/replace block is not complete, or has two dividers")


def without_search_blocks(answer: str) -> str:
    """What an answer says beside its search/replace blocks, their file names and their fences."""
    outside, is_inside = list[str](), False
    for line in answer.split("\n"):
        kind = _marker_kind(line)
        is_inside = kind == "search" or (is_inside and kind != "replace")
        if not is_inside and not kind:
            outside.append(line)
    return "\n".join(outside)


def _marker_kind(line: str) -> str:
    kinds = {"search": SEARCH, "divider": DIVIDER, "replace": REPLACE}
    return next((kind for kind, pattern in kinds.items() if pattern.fullmatch(line)), "")


def _is_before_hunks(line: str) -> bool:
    return not line or bool(FILE_HEADER.match(line) or DIFF_NOISE.match(line))


def _changed_files(diff: str) -> Iterator[str]:
    """The names in the headers of a diff: a "---" line with a "+++" line after it, outside of a hunk's own lines."""
    lines = diff.split("\n")
    for line, following in pairwise(lines):
        before, after = FILE_HEADER.fullmatch(line), FILE_HEADER.fullmatch(following)
        if line.startswith("---") and following.startswith("+++") and before and after:
            yield from (before["name"].strip(), after["name"].strip())


def _is_same_file(named: str, name: str) -> bool:
    """Whether the name in a diff can mean this file: "a/src/x.py" and "x.py" are both "src/x.py"."""
    parts, own = (PurePath(each).parts for each in (named, name))
    parts = parts[1:] if parts[0] in ("a", "b") and len(parts) > 1 else parts
    count = min(len(parts), len(own))
    return parts[-count:] == own[-count:]


def _hunks(diff: str) -> Iterator[TextChange]:
    old, new, line, is_inside = list[str](), list[str](), 0, False
    lines = diff.strip("\n").split("\n")
    for number, text in enumerate(lines):
        if header := HUNK_HEADER.fullmatch(text):
            if old or new:
                yield TextChange(tuple(old), tuple(new), line)
            line = int(header["line"] or 0) + (header["count"] == "0")  # an empty range is named by the line before it
            old, new, is_inside = [], [], True
        elif not is_inside or text.startswith(NO_NEWLINE):
            continue
        elif _starts_file(lines, number):
            is_inside = False
        else:
            sign, content = (text[0], text[1:]) if text else (" ", "")
            old += [content] if sign != "+" else []
            new += [content] if sign != "-" else []
    if old or new:
        yield TextChange(tuple(old), tuple(new), line)


def _starts_file(lines: Sequence[str], number: int) -> bool:
    """Whether the header of another file begins here."""
    following = lines[number + 1] if number + 1 < len(lines) else ""
    is_header = lines[number].startswith("--- ") and following.startswith("+++ ")
    return is_header or bool(DIFF_NOISE.match(lines[number]))


def _place_of_hunk(lines: Sequence[str], change: TextChange, done: int, offset: int) -> int:
    """The line, from 0, where a hunk applies."""
    expected = change.line - 1 + offset
    is_possible = bool(change.line) and done <= expected <= len(lines)
    if is_possible and tuple(lines[expected : expected + len(change.old)]) == change.old:
        return expected
    return _only_place(lines, change, done)


def _places(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Every line, from 0, at which these lines begin; no lines stand in an empty text only."""
    if not wanted:
        return [] if any(lines) else [0]
    starts = (place for place, line in enumerate(lines) if line == wanted[0])
    return [place for place in starts if tuple(lines[place : place + len(wanted)]) == tuple(wanted)]


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\n") for line in split_lines(text)]


def _join(old: str, lines: Sequence[str]) -> str:
    end = "\n" if old.endswith("\n") or not old else ""
    return "\n".join(lines) + (end if lines else "")
