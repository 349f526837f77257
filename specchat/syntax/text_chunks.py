"""A text in pieces that make sense alone: whole definitions where they fit, cut at blank lines where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from specchat.syntax.definitions import definitions

MAX_LINES = 60


@dataclass(frozen=True)
class Chunk:
    """Some lines of a text, counted from 1, the last one included."""

    first_line: int
    last_line: int
    text: str


def split_chunks(text: str, language: str, max_lines: int = MAX_LINES) -> list[Chunk]:
    """Pieces of at most so many lines that together are the text; blank ones are left out."""
    lines = _lines(text)
    pieces = _merge_neighbours(_split_long(lines, _boundaries(text, language, len(lines)), max_lines), max_lines)
    found = [Chunk(first + 1, end, "".join(lines[first:end])) for first, end in pieces]
    return [chunk for chunk in found if chunk.text.strip()]


def _lines(text: str) -> list[str]:
    """Lines as tree-sitter counts them: a form feed begins none."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] + [text.rpartition("\n")[2]] * (not text.endswith("\n"))


def _boundaries(text: str, language: str, count: int) -> list[int]:
    """Where a definition begins or has just ended, and both ends of the text; lines count from 0."""
    found = definitions(text, language)
    inside = {each.first_line - 1 for each in found} | {each.last_line for each in found}
    return sorted({0, count} | {border for border in inside if border < count})


def _split_long(lines: list[str], borders: list[int], most: int) -> Iterator[tuple[int, int]]:
    """The pieces between borders; one that is too long is cut at blank lines, or where it must be."""
    for first, end in pairwise(borders):
        while end - first > most:
            blank = (place for place in range(first + most, first + most // 2, -1) if not lines[place - 1].strip())
            middle = next(blank, first + most)
            yield first, middle
            first = middle  # noqa: PLW2901 (what is left of the piece)
        yield first, end


def _merge_neighbours(pieces: Iterator[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Neighbours put together as long as they fit."""
    begun, ended = 0, 0
    for first, end in pieces:
        if end - begun > most and ended > begun:
            yield begun, ended
            begun = first
        ended = end
    if ended > begun:
        yield begun, ended
