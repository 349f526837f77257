"""The ways to make an edit: the whole file anew, regions of it (the lines that an instruction is about), or changes.

It estimates four bytes per token, more than most tokenizers reach: a text that is too long by this estimate is too
long. The opposite error shows after prefill, see `edit_turn`. Knows no model.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specchat.edit.asked_changes import AskedChanges, May, has_word
from specchat.edit.operations import Rename
from specchat.edit.source_text import Source
from specchat.errors import ContextError, InputError, UsageError
from specchat.syntax import Definition, definitions, enclosing_definition

CODE_IDENTIFIER = re.compile(r"`[^`]+`|\b\w+(?:\.\w+)+\b|\b\w*(?:_\w|[a-z][A-Z]|\d)\w*\b|\b\w+(?=\()")
CODE_KINDS = ("function", "class", "method")
MAX_REGIONS = 40  # each one is a request
MAX_SHOWN_REGIONS = 3
BYTES_PER_TOKEN = 4
PROMPT_OVERHEAD_TOKENS = 64  # the system prompt and what the template adds
GROWTH_FACTOR = 1.1  # an edited text is about this much longer than the original
Format = Literal["refactoring", "merge", "whole", "region", "blocks"]
Formats = Sequence[Format]
FORMATS: Formats = ("whole", "region", "blocks")  # of a model
LINE_RANGE = re.compile(r"(\d+)(?:[-:,](\d+))?")


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
    covers every place where the old name occurs: the definition alone would leave its callers behind.
    """
    found = definitions(source.text, source.language)
    if isinstance(rename := AskedChanges.of(instruction, source.text).operation, Rename):
        return _regions_with(source, found, rename.old)
    verb, *words = re.findall(r"\w+", instruction) or [""]
    old = [word for word in words if any(each.name == word for each in found)]
    if old and verb.lower() == "rename":  # and something more, which is for a model
        return _regions_with(source, found, old[0])
    code = " ".join(CODE_IDENTIFIER.findall(instruction))
    named = _definitions_named_in(found, code) or _definitions_named_in(found, instruction.partition(" ")[2])
    inner = [each for each in named if not any(_contains(each, other) for other in named)]
    return tuple(dict.fromkeys(Region(each.first_line, each.last_line, each.qualified_name) for each in inner))


def _regions_with(source: Source, found: Sequence[Definition], name: str) -> tuple[Region, ...]:
    """Every innermost definition that mentions a name, and every other line that does."""
    lines = enumerate(source.text.split("\n"), 1)
    regions = dict.fromkeys(_region_around(found, number) for number, line in lines if has_word(line, name))
    return tuple(regions) if len(regions) <= MAX_REGIONS else ()


def _region_around(found: Sequence[Definition], line: int) -> Region:
    """The definition that contains a line, if no other definition lies inside it; else the line alone."""
    inner = enclosing_definition(found, line)
    if inner is None or any(_contains(inner, other) for other in found):
        return Region(line, line)
    return Region(inner.first_line, inner.last_line, inner.qualified_name)


def _definitions_named_in(found: Sequence[Definition], words: str) -> list[Definition]:
    whole = [each for each in found if each.container and has_word(words, each.qualified_name)]
    return whole or [each for each in found if has_word(words, each.name)]


def _contains(outer: Definition, inner: Definition) -> bool:
    return outer != inner and outer.first_line <= inner.first_line and inner.last_line <= outer.last_line


@dataclass(frozen=True)
class EditPlan:
    """One way to make an edit. Without regions it is about the whole text.

    `is_in_blocks`: the model is asked for search/replace blocks instead of the new text. `refactoring` describes what
    the syntax tree does instead of the model; `is_named`: the model names it. `merged` is the text that a sketch makes
    without a model. `is_answer`: the instruction is a question, and the text stays.
    """

    regions: tuple[Region, ...] = ()
    is_in_blocks: bool = False
    refactoring: str = ""
    is_named: bool = False
    merged: str = ""
    is_answer: bool = False

    @property
    def format(self) -> Format:
        if self.refactoring:
            return "refactoring"
        if self.merged:
            return "merge"
        return "blocks" if self.is_in_blocks else "region" if self.regions else "whole"

    @property
    def description(self) -> str:
        """What is done: "the whole text", "lines 3-9 (total)", "search/replace blocks", or the refactoring."""
        if self.refactoring:
            how = "the model names it" if self.is_named else "without a model"
            return f"{self.refactoring} (by the syntax tree, {how})"
        if self.merged:
            return "the sketch, merged by structure, without a model"
        if self.is_answer:
            return "an answer to the question, and no new text"
        lines = [f"{each.first}-{each.last}{f' ({each.name})' if each.name else ''}" for each in self.regions]
        where = f"lines {', '.join(lines[:MAX_SHOWN_REGIONS])}{'…' if len(lines) > MAX_SHOWN_REGIONS else ''}"
        if self.is_in_blocks:
            return f"search/replace blocks{f' in {where}' if lines else ''}"
        return where if lines else "the whole text"


def parse_line_range(text: str) -> Region:
    """Parse lines written as "10-40", "10:40" or "10"."""
    match = LINE_RANGE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a range of lines; write FIRST-LAST, as in -l 10-40")
    return Region(int(match[1]), int(match[2] or match[1]))


def possible_plans(
    source: Source, instruction: str, window_tokens: int, region: Region | None = None, order: Formats = FORMATS
) -> list[EditPlan | ContextError]:
    """The ways to make an edit, in this order of their formats; a ContextError is one that does not fit the window.

    The whole text; the chosen lines, or the regions that the instruction names; search/replace blocks.
    """
    plans, chosen = dict[Format, EditPlan | ContextError](), (_clamp_region(source, region),) if region else ()
    if not chosen and needed_tokens(source.text, instruction) <= window_tokens:
        plans["whole"] = EditPlan()
    if (regions := chosen or smaller_scope(source, instruction)) or not plans:
        plans["region"] = _plan_regions(source, instruction, window_tokens, regions)
    scope = region_source(source, chosen[0]) if chosen else source
    if scope.text.strip() and needed_tokens(scope.text, instruction, is_in_blocks=True) <= window_tokens:
        plans["blocks"] = EditPlan(chosen, is_in_blocks=True)
    return [plans[each] for each in order if each in plans]


def smaller_scope(source: Source, instruction: str) -> tuple[Region, ...]:
    """The regions that an instruction names; the only function or class of a file needs no name."""
    if named := named_regions(source, instruction):
        return named
    outer = [each for each in definitions(source.text, source.language) if not each.container]
    if (
        len(outer) != 1
        or outer[0].kind not in CODE_KINDS
        or May.DEFINE in AskedChanges.of(instruction, source.text).may
    ):
        return ()
    return (Region(outer[0].first_line, outer[0].last_line, outer[0].qualified_name),)


def _plan_regions(
    source: Source, instruction: str, window_tokens: int, regions: tuple[Region, ...]
) -> EditPlan | ContextError:
    """A plan for these regions; a ContextError with the numbers when there are none, or one of them is too long."""
    whole = needed_tokens(source.text, instruction)
    longest = max((needed_tokens(region_source(source, each).text, instruction) for each in regions), default=whole)
    if not regions or longest > window_tokens:
        return ContextError(
            f"{source.name}: reading and writing {'a part of ' if regions else ''}it takes about {longest} tokens and "
            f"the window holds {window_tokens}; name a function or class in it, choose lines with -l FIRST-LAST, or "
            "raise limits.context"
        )
    return EditPlan(regions)


def needed_tokens(text: str, instruction: str, *, is_in_blocks: bool = False) -> int:
    """Lower bound of the tokens in the prompt and the answer; blocks hold the changes only."""
    text_tokens, instruction_tokens = (len(each.encode()) / BYTES_PER_TOKEN for each in (text, instruction))
    answer_tokens = instruction_tokens if is_in_blocks else text_tokens * GROWTH_FACTOR
    return round(PROMPT_OVERHEAD_TOKENS + instruction_tokens + text_tokens + answer_tokens)


def region_source(source: Source, region: Region) -> Source:
    """The lines of a region as a text of their own, with the name and the language of the file."""
    lines = source.text.split("\n")
    text = "\n".join(lines[region.first - 1 : region.last]) + ("\n" if region.last < len(lines) else "")
    raw = text.replace("\n", source.newline).encode(source.codec)
    return Source(f"lines {region.first}-{region.last} of {source.name}", raw, text, source.newline, source.codec)


def replace_region(source_text: str, region: Region, new: str) -> str:
    """The whole text with the lines of one region replaced."""
    lines = source_text.split("\n")
    before, after = lines[: region.first - 1], lines[region.last :]
    return "\n".join([*before, new.removesuffix("\n") if after else new, *after])


def _clamp_region(source: Source, region: Region) -> Region:
    count = len(source.text.split("\n")) - source.text.endswith("\n")
    if region.first > count:
        raise InputError(f"{source.name}: has {count} lines, so there is no line {region.first}")
    return Region(region.first, min(region.last, count))
