"""Answers that name changes instead of the whole file: unified diffs and search/replace blocks.

A change is applied where the file says what the answer claims, or not at all: no similar line, no second candidate.
Where no lines are exactly the same, those count that differ by the blanks at their ends, by the indentation of all of
them, or by up to two outer lines that stay. Knows no model.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePath

from specchat.edit.hunks import DEV_NULL, Change, apply_changes, common_prefix_length, split_lines
from specchat.edit.source_text import fit_tabs

HUNK_HEADER = re.compile(r"@@(?: -(?P<line>\d+)(?:,(?P<count>\d+))? \+\d+(?:,\d+)? @@)?.*")
FILE_HEADER = re.compile(r"(?:---|\+\+\+) (?P<name>\S[^\t\n]*)")
DIFF_NOISE = re.compile(r"(?:diff --git|index [0-9a-f]|new file mode|old mode|new mode|similarity index)")
UNKNOWN = -1  # the place of a change
MAX_FUZZ = 2  # outer lines that stay and need not be the same, as in `patch`
NO_NEWLINE = "\\ No newline"
SEARCH, DIVIDER, REPLACE = r"<{5,9} ?(?:SEARCH|ORIGINAL)\b.*", r"={5,9}[^\S\n]*", r">{5,9} ?(?:REPLACE|UPDATED)\b.*"
MARKER = re.compile(rf"^(?:{SEARCH}|{DIVIDER}|{REPLACE})$", re.MULTILINE)
SEARCH_BLOCK = re.compile(
    rf"^{SEARCH}\n(?P<old>(?:.*\n)*?){DIVIDER}\n(?P<new>(?:.*\n)*?){REPLACE}(?:\n|\Z)", re.MULTILINE
)


class PatchError(Exception):
    """The changes do not apply to the file; the message says which."""


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
    return bool(SEARCH_BLOCK.search(text))


def starts_changes(text: str) -> bool:
    """Whether a text that is not complete yet begins as a diff or as a search/replace block."""
    first = text.lstrip("\n").partition("\n")[0]
    return bool(HUNK_HEADER.fullmatch(first) or _is_before_hunks(first) or re.fullmatch(SEARCH, first))


def apply_diff(old: str, name: str, diff: str) -> str:
    """The new text; PatchError unless every hunk is about this file and applies exactly.

    A hunk with a wrong line number applies if its lines stand in one place only.
    """
    names = {named for named in _changed_files(diff) if named != DEV_NULL}
    if others := [named for named in names if not _is_same_file(named, name)]:
        raise PatchError(f"it also changes {min(others)[2:] if min(others)[:2] in ('a/', 'b/') else min(others)}")
    return _apply(old, list(_hunks(diff)))


def apply_search_blocks(old: str, answer: str) -> str:
    """The new text; PatchError unless the lines of every search stand in exactly one place."""
    return _apply(old, list(search_blocks(answer)))


def _apply(old: str, changes: Sequence[Change]) -> str:
    """The new text. The changes are about the old one; if there is no place for one of them, each is about what those
    before it have made, so that a later one may search what an earlier one wrote.
    """
    lines, changes = [line.removesuffix("\n") for line in split_lines(old)], [_fit_tabs(old, each) for each in changes]
    try:
        placed = sorted((_placed(lines, change) for change in changes), key=lambda each: each.first)
        if any(second.first < first.end for first, second in pairwise(placed)):
            raise PatchError("two changes overlap")
        lines = apply_changes(lines, placed)
    except PatchError:
        for change in changes:
            lines = apply_changes(lines, [_placed(lines, replace(change, first=UNKNOWN))])
    end = "\n" if old.endswith("\n") or not old else ""
    return "\n".join(lines) + (end if lines else "")


def _fit_tabs(text: str, change: Change) -> Change:
    count = len(change.old)
    lines = fit_tabs(text, "\n".join((*change.old, *change.new))).split("\n")
    return replace(change, old=tuple(lines[:count]), new=tuple(lines[count : count + len(change.new)]))


def _placed(lines: Sequence[str], change: Change) -> Change:
    """The change where its old lines stand: where it says, or in the only place."""
    stands_at = lambda place: tuple(lines[place : place + len(change.old)]) == change.old
    if 0 <= change.first <= len(lines) and stands_at(change.first):
        return change
    if not change.old and any(lines):
        raise PatchError("a search is empty, and the file is not")
    places = [place for place in range(len(lines)) if stands_at(place)] if change.old else [0]
    near = list(_near_places(lines, change)) if not places else []
    if len(near) == 1:
        return near[0]
    places = places or [each.first for each in near]
    if len(places) != 1:
        excerpt = next((line.strip() for line in change.old if line.strip()), "(no line)")
        where = f"in {len(places)} places" if places else "nowhere"
        raise PatchError(f"the file has {excerpt!r} and what follows {where}")
    return replace(change, first=places[0])


def _near_places(lines: Sequence[str], change: Change) -> set[Change]:
    """The change wherever it nearly stands, with as few outer lines left out as possible."""
    head = common_prefix_length(change.old, change.new)
    tail = common_prefix_length(change.old[::-1], change.new[::-1])
    for left_out in range(2 * MAX_FUZZ + 1):
        found = set[Change]()
        for above in range(max(0, left_out - min(MAX_FUZZ, tail)), min(left_out, MAX_FUZZ, head) + 1):
            below = left_out - above
            old, new = (side[above : len(side) - below] for side in (change.old, change.new))
            if any(line.strip() for line in old) and above + below <= min(len(change.old), len(change.new)):
                found |= {each for place in range(len(lines)) if (each := _near_change(lines, place, old, new))}
        if found:
            return found
    return set()


def _near_change(lines: Sequence[str], place: int, old: Sequence[str], new: Sequence[str]) -> Change | None:
    """The change at this place, in the indentation of the file, without the lines that stay; None for another text."""
    there = lines[place : place + len(old)]
    if len(there) < len(old) or [line.strip() for line in there] != [line.strip() for line in old]:
        return None
    indents = [(_indent(line), _indent(own)) for line, own in zip(there, old, strict=True) if own.strip()]
    deeper, dedented = indents[0][0].removesuffix(indents[0][1]), indents[0][1].removesuffix(indents[0][0])
    is_deeper = all(indent == deeper + own for indent, own in indents)
    if not is_deeper and not all(dedented + indent == own for indent, own in indents):
        return None
    own_lines = {own.rstrip(): line for line, own in zip(there, old, strict=True)}
    shifted = [deeper + line if is_deeper and line.strip() else line.removeprefix(dedented) for line in new]
    written = [own_lines.get(line.rstrip(), moved) for line, moved in zip(new, shifted, strict=True)]
    head = common_prefix_length(there, written)
    tail = common_prefix_length(there[head:][::-1], written[head:][::-1])
    return Change(place + head, tuple(there[head : len(there) - tail]), tuple(written[head : len(written) - tail]))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def may_be_searched(text: str, searched: str) -> bool:
    """Whether lines of a search may stand in a text, up to what `_placed` allows."""
    lines, old = ([line.strip() for line in each.split("\n")] for each in (text, searched.removesuffix("\n")))
    size = len(old) - 2 * MAX_FUZZ if len(old) > 2 * MAX_FUZZ else 1
    starts = (old[start : start + size] for start in range(len(old) - size + 1))
    return any(part == lines[place : place + size] for part in starts for place in range(len(lines)))


def changes_in(text: str) -> list[Change]:
    """The changes of a diff or of search/replace blocks; none in another text."""
    return list(search_blocks(text) if has_search_blocks(text) else _hunks(text) if is_diff(text) else ())


def search_blocks(answer: str) -> Iterator[Change]:
    """Every search/replace block of an answer; PatchError for one that is not complete."""
    for block in SEARCH_BLOCK.finditer(answer):
        if MARKER.search(block["old"]) or MARKER.search(block["new"]):  # a heading of the file can look like a divider
            raise PatchError("a search/replace block is not complete, or has two dividers")
        old, new = (tuple(block[side].split("\n")[:-1]) for side in ("old", "new"))
        yield Change(UNKNOWN, old, new)
    if re.search(rf"^{SEARCH}$", without_search_blocks(answer), re.MULTILINE):
        raise PatchError("a search/replace block is not complete")


def without_search_blocks(answer: str) -> str:
    """What an answer says beside its search/replace blocks, their file names and their fences."""
    return SEARCH_BLOCK.sub("", answer)


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


def _hunks(diff: str) -> Iterator[Change]:
    old, new, first, is_inside = list[str](), list[str](), UNKNOWN, False
    lines = diff.strip("\n").split("\n")
    for number, text in enumerate(lines):
        if header := HUNK_HEADER.fullmatch(text):
            if old or new:
                yield Change(first, tuple(old), tuple(new))
            first = int(header["line"] or 0) - (header["count"] != "0")  # an empty range is named by the line before it
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
        yield Change(first, tuple(old), tuple(new))


def _starts_file(lines: Sequence[str], number: int) -> bool:
    """Whether the header of another file begins here."""
    following = lines[number + 1] if number + 1 < len(lines) else ""
    is_header = lines[number].startswith("--- ") and following.startswith("+++ ")
    return is_header or bool(DIFF_NOISE.match(lines[number]))
