"""Which lines of a file an instruction is about, told by its words and the definitions of the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from specchat.edit.source_text import Source
from specchat.errors import UsageError
from specchat.syntax import Definition, definitions, enclosing, language_of

CODE_WORD = re.compile(r"`[^`]+`|\b\w+(?:\.\w+)+\b|\b\w*(?:_\w|[a-z][A-Z]|\d)\w*\b|\b\w+(?=\()")
# "rename the method `feed` to push": the old name is the first that the file defines, or the word before "to"
RENAME = re.compile(r"\s*rename\b", re.IGNORECASE)
OLD_NAME = re.compile(r"(\w+)\W+(?:to|into|as)\b")
WORD = re.compile(r"\w+")
MOST_PARTS = 40  # each is a turn


@dataclass(frozen=True)
class Region:
    """Some lines of a file, counted from 1, the last one included; `name` is what they are, if it has one."""

    first: int
    last: int
    name: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise UsageError(f"lines {self.first}-{self.last} are none; they count from 1, the first one first")


def named_regions(source: Source, instruction: str) -> tuple[Region, ...]:
    """The functions and classes that an instruction names; of two that contain each other the inner one.

    Words that look like code count before plain ones, for "add a test to feed" need not be about a function `add`.
    A renaming is about every place where the old name stands: a definition alone would leave its callers behind.
    """
    found = definitions(source.text, language_of(source.name, source.text))
    if RENAME.match(instruction):
        return _uses(source, found, instruction)
    code = " ".join(CODE_WORD.findall(instruction))
    named = _named(found, code) or _named(found, instruction.partition(" ")[2])
    inner = [each for each in named if not any(_contains(each, other) for other in named)]
    return tuple(dict.fromkeys(Region(each.first, each.last, each.full_name) for each in inner))


def _uses(source: Source, found: Sequence[Definition], instruction: str) -> tuple[Region, ...]:
    """Every innermost definition that says the old name, and every line outside of them that does."""
    known = {each.name for each in found}
    defined = [word for word in WORD.findall(instruction)[1:] if word in known]
    old = defined[:1] or OLD_NAME.findall(instruction)[:1]
    lines = enumerate(source.text.split("\n"), 1)
    places = dict.fromkeys(_around(found, number) for number, line in lines if old and _says(line, old[0]))
    return tuple(places) if len(places) <= MOST_PARTS else ()


def _around(found: Sequence[Definition], line: int) -> Region:
    """The definition that a line belongs to, if there is no other inside of it; else the line alone."""
    inner = enclosing(found, line)
    if inner is None or any(_contains(inner, other) for other in found):
        return Region(line, line)
    return Region(inner.first, inner.last, inner.full_name)


def _named(found: Sequence[Definition], words: str) -> list[Definition]:
    whole = [each for each in found if each.within and _says(words, each.full_name)]
    return whole or [each for each in found if _says(words, each.name)]


def _says(words: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words) is not None


def _contains(outer: Definition, inner: Definition) -> bool:
    return outer != inner and outer.first <= inner.first and inner.last <= outer.last
