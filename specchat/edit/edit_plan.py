"""Decides whether a file is rewritten as a whole or in regions, by what fits the context window. Knows no model.

It estimates four bytes per token, more than most tokenizers reach: a text that is too long by this estimate is too
long.
The opposite error shows after prefill, see `edit_turn`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from specchat.edit.edit_regions import Region, named_regions
from specchat.edit.source_text import Source
from specchat.errors import ContextError, InputError, UsageError

BYTES_PER_TOKEN = 4
PROMPT_OVERHEAD_TOKENS = 64  # the system prompt and what the template adds
GROWTH_FACTOR = 1.1  # an edited text is about this much longer than the original
LINE_RANGE = re.compile(r"(\d+)(?:[-:,](\d+))?")


@dataclass(frozen=True)
class EditPlan:
    """The regions to rewrite (none: the whole file), the tokens they need, and the size of the window."""

    needed_tokens: int
    window_tokens: int
    regions: tuple[Region, ...] = ()

    @property
    def format(self) -> Literal["whole", "region"]:
        return "region" if self.regions else "whole"


def parse_line_range(text: str) -> Region:
    """Parse lines written as "10-40", "10:40" or "10"."""
    match = LINE_RANGE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a range of lines; write FIRST-LAST, as in -l 10-40")
    return Region(int(match[1]), int(match[2] or match[1]))


def make_plan(source: Source, instruction: str, window_tokens: int, region: Region | None = None) -> EditPlan:
    """The whole file if it fits, else the definitions that the instruction names. ContextError with the numbers."""
    if region:
        regions = (_clamp_region(source, region),)
    elif (needed := needed_tokens(source.text, instruction)) <= window_tokens:
        return EditPlan(needed, window_tokens)
    else:
        regions = named_regions(source, instruction)
    return plan_regions(source, instruction, window_tokens, regions)


def plan_regions(source: Source, instruction: str, window_tokens: int, regions: tuple[Region, ...]) -> EditPlan:
    """A plan for these regions. ContextError when there are none, or when one of them alone is too long."""
    whole = needed_tokens(source.text, instruction)
    longest = max((needed_tokens(region_source(source, each).text, instruction) for each in regions), default=whole)
    if not regions or longest > window_tokens:
        raise ContextError(
            f"{source.name}: reading and writing {'a part of ' if regions else ''}it takes about {longest} tokens and "
            f"the window holds {window_tokens}; name a function or class in it, choose lines with -l FIRST-LAST, or "
            "raise limits.context"
        )
    return EditPlan(longest, window_tokens, regions)


def needed_tokens(text: str, instruction: str) -> int:
    """Lower bound of the tokens in the prompt and the answer."""
    text_tokens, instruction_tokens = (len(each.encode()) / BYTES_PER_TOKEN for each in (text, instruction))
    return round(PROMPT_OVERHEAD_TOKENS + instruction_tokens + text_tokens * (1 + GROWTH_FACTOR))


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
