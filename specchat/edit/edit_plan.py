"""Whether a file is written anew as a whole or in parts, by what fits the window. Knows no model: it estimates.

Four bytes a token is more than most tokenizers manage: what is too long by this measure is too long. What only seems to
fit is found out when the model has read it, see `task`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from specchat.edit.scope import Region, named_regions
from specchat.edit.source_text import Source
from specchat.errors import ContextError, InputError, UsageError

BYTES_PER_TOKEN = 4
AROUND_TOKENS = 64  # the system prompt and what the template adds
GROWTH = 1.1  # an edited text is about this much longer than it was
LINES = re.compile(r"(\d+)(?:[-:,](\d+))?")


@dataclass(frozen=True)
class Plan:
    """What is written anew, and what it takes: tokens to read and write, and those that the window holds.

    Without regions it is the whole file.
    """

    needed: int
    window: int
    regions: tuple[Region, ...] = ()

    @property
    def format(self) -> Literal["whole", "region"]:
        """The word for it."""
        return "region" if self.regions else "whole"


def parse_lines(given: str) -> Region:
    """Lines as people write them: "10-40", "10:40" and "10"."""
    found = LINES.fullmatch(given.strip())
    if not found:
        raise UsageError(f"{given!r} are no lines; write FIRST-LAST, as in -l 10-40")
    return Region(int(found[1]), int(found[2] or found[1]))


def make_plan(source: Source, instruction: str, window: int, lines: Region | None = None) -> Plan:
    """The whole file when it fits, else the definitions that the instruction names; ContextError with the numbers."""
    if lines:
        regions = (_within(source, lines),)
    elif (needed := needed_tokens(source.text, instruction)) <= window:
        return Plan(needed, window)
    else:
        regions = named_regions(source, instruction)
    return plan_of_parts(source, instruction, window, regions)


def plan_of_parts(source: Source, instruction: str, window: int, regions: tuple[Region, ...]) -> Plan:
    """A plan for these parts; ContextError when there is none, or when one of them is too long alone."""
    whole = needed_tokens(source.text, instruction)
    longest = max((needed_tokens(part(source, each).text, instruction) for each in regions), default=whole)
    if not regions or longest > window:
        raise ContextError(
            f"{source.name}: reading and writing {'a part of ' if regions else ''}it takes about {longest} tokens and "
            f"the window holds {window}; name a function or class in it, choose lines with -l FIRST-LAST, or raise "
            "limits.context"
        )
    return Plan(longest, window, regions)


def needed_tokens(text: str, instruction: str) -> int:
    """Tokens to read the question and to write the answer, at least."""
    written = len(text.encode()) / BYTES_PER_TOKEN
    return round(AROUND_TOKENS + len(instruction.encode()) / BYTES_PER_TOKEN + written * (1 + GROWTH))


def part(source: Source, region: Region) -> Source:
    """Some lines as a text of their own, known by the file's name and language."""
    lines = source.text.split("\n")
    text = "\n".join(lines[region.first - 1 : region.last]) + ("\n" if region.last < len(lines) else "")
    raw = text.replace("\n", source.newline).encode(source.codec)
    return Source(f"lines {region.first}-{region.last} of {source.name}", raw, text, source.newline, source.codec)


def with_part(source_text: str, region: Region, new: str) -> str:
    """The whole text with other lines in this place."""
    lines = source_text.split("\n")
    before, after = lines[: region.first - 1], lines[region.last :]
    return "\n".join([*before, new.removesuffix("\n") if after else new, *after])


def _within(source: Source, lines: Region) -> Region:
    count = len(source.text.split("\n")) - source.text.endswith("\n")
    if lines.first > count:
        raise InputError(f"{source.name}: has {count} lines, so there is no line {lines.first}")
    return Region(lines.first, min(lines.last, count))
