"""Finds the lines of a file that an instruction is about, from its words and the definitions in the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from specchat.edit.source_text import Source
from specchat.errors import UsageError
from specchat.syntax import Definition, definitions, enclosing_definition, language_of

CODE_IDENTIFIER = re.compile(r"`[^`]+`|\b\w+(?:\.\w+)+\b|\b\w*(?:_\w|[a-z][A-Z]|\d)\w*\b|\b\w+(?=\()")
# "rename the method `feed` to push": the old name is the first that the file defines, or the word before "to"
RENAME_INSTRUCTION = re.compile(r"\s*rename\b", re.IGNORECASE)
OLD_NAME = re.compile(r"(\w+)\W+(?:to|into|as)\b")
WORD = re.compile(r"\w+")
MAX_REGIONS = 40  # each one is a request


@dataclass(frozen=True)
class Region:
    """Lines of a file, from 1, `last` included; `name` is the definition that they hold, if any."""

    first: int
    last: int
    name: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise UsageError(f"{self.first}-{self.last} is not a range of lines; lines count from 1")


def named_regions(source: Source, instruction: str) -> tuple[Region, ...]:
    """The functions and classes that an instruction names; of nested ones the inner one.

    Words that look like code take precedence: "add a test to feed" need not be about a function `add`. A renaming
    covers
    every place where the old name occurs: the definition alone would leave its callers behind.
    """
    found = definitions(source.text, language_of(source.name, source.text))
    if RENAME_INSTRUCTION.match(instruction):
        return _rename_regions(source, found, instruction)
    code = " ".join(CODE_IDENTIFIER.findall(instruction))
    named = _definitions_named_in(found, code) or _definitions_named_in(found, instruction.partition(" ")[2])
    inner = [each for each in named if not any(_contains(each, other) for other in named)]
    return tuple(dict.fromkeys(Region(each.first_line, each.last_line, each.qualified_name) for each in inner))


def _rename_regions(source: Source, found: Sequence[Definition], instruction: str) -> tuple[Region, ...]:
    """Every innermost definition that mentions the old name, and every other line that does."""
    names = {each.name for each in found}
    defined = [word for word in WORD.findall(instruction)[1:] if word in names]
    old = defined[:1] or OLD_NAME.findall(instruction)[:1]
    lines = enumerate(source.text.split("\n"), 1)
    regions = dict.fromkeys(_region_around(found, number) for number, line in lines if old and _mentions(line, old[0]))
    return tuple(regions) if len(regions) <= MAX_REGIONS else ()


def _region_around(found: Sequence[Definition], line: int) -> Region:
    """The definition that contains a line, if no other definition lies inside it; else the line alone."""
    inner = enclosing_definition(found, line)
    if inner is None or any(_contains(inner, other) for other in found):
        return Region(line, line)
    return Region(inner.first_line, inner.last_line, inner.qualified_name)


def _definitions_named_in(found: Sequence[Definition], words: str) -> list[Definition]:
    whole = [each for each in found if each.container and _mentions(words, each.qualified_name)]
    return whole or [each for each in found if _mentions(words, each.name)]


def _mentions(words: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words) is not None


def _contains(outer: Definition, inner: Definition) -> bool:
    return outer != inner and outer.first_line <= inner.first_line and inner.last_line <= outer.last_line
