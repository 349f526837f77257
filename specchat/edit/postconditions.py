"""What must stay equal when an instruction asks for one kind of change only.

    comments, docstrings   the code
    type hints             the code without annotations, and more imports
    format                 the words and signs, whatever lines they stand on
    renaming               everything but the name
    anything else          the blanks and tabs of the lines that stay

Texts are compared line by line without what may change. Lines that differ all the same get their old text back.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import zip_longest
from math import gcd

from tree_sitter import Node

from specchat.edit.asked_changes import Only
from specchat.edit.hunks import common_prefix_length, split_lines
from specchat.edit.operations import Rename
from specchat.syntax.parse import blanked, comment_nodes, find_nodes, syntax_tree
from specchat.syntax.statements import TOKEN

IMPORT_LINE = re.compile(r"\s*(?:import|from|use|#include)\b")
LAYOUT = frozenset((",", ";", "(", ")", "\\"))
NO_OPERATION = frozenset(("pass", "..."))


@dataclass(frozen=True)
class Postcondition:
    """`normal` is what counts in each line, "" for a line that does not; `allows` says which other lines may differ."""

    normal: Callable[[str, str], list[str]]
    allows: Callable[[Sequence[str], Sequence[str]], bool] = lambda old, new: _joined(old) == _joined(new)


def postcondition_of(only: Only | Rename) -> Postcondition:
    """What must stay equal of a text where an instruction asks for one kind of change."""
    match only:
        case Rename(old=old, new=new):
            return Postcondition(partial(_without_name, old, new))
        case Only.TYPES:
            return Postcondition(_code_without_types, _adds_imports)
        case Only.COMMENTS:
            return Postcondition(_code)
        case Only.FORMAT:
            return Postcondition(_code, _is_reformatted)


def broken_lines(condition: Postcondition, old: str, new: str, language: str) -> Iterator[tuple[int, str, str]]:
    """Where the new text breaks a postcondition: the line, from 1, the old text and the new one."""
    lines, new_lines = old.split("\n"), new.split("\n")
    for first, end, new_first, new_end in _breaks(condition, old, new, language):
        yield first + 1, _first_line(lines[first:end]), _first_line(new_lines[new_first:new_end])


def _first_line(lines: Sequence[str]) -> str:
    return next((line.strip() for line in lines if line.strip()), "")


def put_back_lines(condition: Postcondition, old: str, new: str, language: str) -> str:
    """The new text with the old lines wherever it breaks a postcondition; comment lines between them stay."""
    old_lines, lines = old.split("\n"), new.split("\n")
    counting = condition.normal(new, language)
    for first, end, new_first, new_end in reversed(list(_breaks(condition, old, new, language))):
        if new_first == new_end:
            place = _place_of_gone(counting, new_first, (old_lines[:first], old_lines[end:]), lines)
            lines[place:place] = old_lines[first:end]
            continue
        kept = [line for line, counts in zip(lines[new_first:new_end], counting[new_first:new_end], strict=True)
                if not counts and line not in old_lines[first:end]]  # fmt: skip
        lines[new_first:new_end] = [*kept, *old_lines[first:end]]
    return "\n".join(lines)


def _place_of_gone(
    counting: Sequence[str], following: int, around: tuple[Sequence[str], Sequence[str]], lines: Sequence[str]
) -> int:
    """Where lines were that stood before this one: below a docstring of the line before, or where most around fits."""
    before = next((number for number in range(following - 1, -1, -1) if counting[number]), -1)
    if before >= 0 and counting[before].endswith(":"):
        return following

    def likeness(place: int) -> int:
        above, below = around
        return common_prefix_length(above[::-1], lines[:place][::-1]) + common_prefix_length(below, lines[place:])

    return max(range(before + 1, following + 1), key=likeness)


def _breaks(condition: Postcondition, old: str, new: str, language: str) -> Iterator[tuple[int, int, int, int]]:
    """Lines of the old and the new text, from 0, that differ and may not: first, end, first, end."""
    sides = [condition.normal(text, language) for text in (old, new)]
    places = [[number for number, line in enumerate(side) if line] for side in sides]
    before, after = ([side[place] for place in found] for side, found in zip(sides, places, strict=True))
    for kind, first, end, new_first, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal" and not condition.allows(before[first:end], after[new_first:new_end]):
            yield *_span(places[0], first, end), *_span(places[1], new_first, new_end)


def _span(places: Sequence[int], first: int, end: int) -> tuple[int, int]:
    """The lines from the first to the last of these; without any, the place before the next one."""
    if first < end:
        return places[first], places[end - 1] + 1
    place = places[first] if first < len(places) else places[-1] + 1 if places else 0
    return place, place


def _without_name(old: str, new: str, text: str, _language: str) -> list[str]:
    """The tokens of each line with one name for both; `{old: new}` is what becomes of `{old}` in JavaScript."""
    same = re.sub(rf"\b{re.escape(new)}\b", old, text)
    return _tokens(re.sub(rf"\b({re.escape(old)}): \1\b", r"\1", same).split("\n"))


def _tokens(lines: Sequence[str]) -> list[str]:
    return [" ".join(TOKEN.findall(line)) for line in lines]


def _joined(lines: Sequence[str]) -> str:
    return " ".join(line for line in lines if line not in NO_OPERATION)


def _lines_without(text: str, nodes: Sequence[Node]) -> list[str]:
    return blanked(text, nodes).decode(errors="replace").split("\n")


def _code(text: str, language: str) -> list[str]:
    """The tokens of each line without comments and docstrings."""
    root = syntax_tree(text, language)
    return _tokens(_lines_without(text, comment_nodes(root, language) if root else []))


def _code_without_types(text: str, language: str) -> list[str]:
    root = syntax_tree(text, language)
    if root is None:
        return _tokens(text.split("\n"))
    types = find_nodes(root, language, ("type", "type_annotation") if language == "python" else ("type_annotation",))
    signs = [each.prev_sibling for each in types if each.prev_sibling and each.prev_sibling.type in (":", "->")]
    bare = [each.parent for each in types if _is_bare(each.parent)]
    return _tokens(_lines_without(text, [*comment_nodes(root, language), *types, *signs, *filter(None, bare)]))


def _is_bare(node: Node | None) -> bool:
    """Whether this is an annotation without a value: `x: int`."""
    return node is not None and node.type == "assignment" and node.child_by_field_name("right") is None


def _adds_imports(old: Sequence[str], new: Sequence[str]) -> bool:
    rest = [line for line in new if line in old or not line.startswith(("import ", "from "))]
    return _is_reformatted(old, rest)


def _is_reformatted(old: Sequence[str], new: Sequence[str]) -> bool:
    before, after = (
        [token.replace('"', "'") for token in _joined(lines).split(" ") if token not in LAYOUT] for lines in (old, new)
    )
    return before == after


def keep_blanks(
    old: str, new: str, *, is_prose: bool = False, is_sorted: bool = False, keeps_levels: bool = False
) -> str:
    """The new text with the tabs, trailing blanks and blank lines of the old one at the lines that stay.

    In prose a blank line between two others is a change, and so it is between two imports that are to be sorted.
    `keeps_levels`: no line that stays goes to another level of indentation.
    """
    lines = split_lines(old)
    for line in (each for each in lines if "\r" in each):  # which a model writes as the end of a line
        new = new.replace(line.replace("\r", "\n"), line)
    new_lines = split_lines(new)
    units, result, done = (_indent_unit(lines), _indent_unit(new_lines)), list[str](), 0
    pairs = list(_same_lines(lines, new_lines))
    for (place, new_place), following in zip_longest(pairs, pairs[1:]):
        result += [_indented(line, units) for line in new_lines[done:new_place]]
        is_level = _level(lines[place], units[0]) == _level(new_lines[new_place], units[1])
        result.append(lines[place] if is_level or keeps_levels else _indented(new_lines[new_place], units))
        done = new_place + 1
        blank, new_blank = (_blank_after(side, each) for side, each in ((lines, place), (new_lines, new_place)))
        if is_prose or following != (place + blank + 1, new_place + new_blank + 1):
            continue
        if not (is_sorted and IMPORT_LINE.match(lines[place]) and IMPORT_LINE.match(lines[following[0]])):
            result += lines[place + 1 : place + blank + 1]
            done += new_blank
    return "".join([*result, *(_indented(line, units) for line in new_lines[done:])])


def _same_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The lines that differ by blanks at most, by their places in both texts."""
    sides = [
        [(number, "".join(line.split())) for number, line in enumerate(side) if line.strip()] for side in (old, new)
    ]
    keys = [[key for _number, key in side] for side in sides]
    for block in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            yield sides[0][block.a + offset][0], sides[1][block.b + offset][0]


def _blank_after(lines: Sequence[str], place: int) -> int:
    count = 0
    while place + count + 1 < len(lines) and not lines[place + count + 1].strip():
        count += 1
    return count


def _indent_unit(lines: Sequence[str]) -> str:
    """One level of indentation: a tab, or some blanks."""
    indents = [indent for line in lines if line.strip() and (indent := line[: len(line) - len(line.lstrip(" \t"))])]
    tabs = sum(indent[0] == "\t" for indent in indents)
    if 2 * tabs > len(indents):
        return "\t"
    width = gcd(*(len(indent) for indent in indents if "\t" not in indent))
    return " " * width


def _level(line: str, unit: str) -> float:
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    if unit == "\t":
        return indent.count("\t") + indent.count(" ") / 100
    return len(indent.expandtabs(len(unit) or 1)) / (len(unit) or 1)


def _indented(line: str, units: tuple[str, str]) -> str:
    """A new line with the tabs or blanks of the old text."""
    unit, new_unit = units
    if not line.strip() or (unit == "\t") == (new_unit == "\t") or not unit or not new_unit:
        return line
    level = _level(line, new_unit)
    return unit * round(level) + line.lstrip(" \t") if level == round(level) else line
