"""A text in pieces that make sense alone: whole definitions that fit; longer ones are split at blank lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from specchat.syntax.definitions import definitions

MAX_LINES = 60


@dataclass(frozen=True)
class Chunk:
    """Some lines of a text, counted from 1, `last_line` included."""

    first_line: int
    last_line: int
    text: str


def split_chunks(text: str, language: str, max_lines: int = MAX_LINES) -> list[Chunk]:
    """Pieces of at most `max_lines` lines that together are the text, without blank pieces."""
    lines = _lines(text)
    pieces = _merge_neighbours(_split_long(lines, _boundaries(text, language, len(lines)), max_lines), max_lines)
    chunks = [Chunk(first + 1, end, "".join(lines[first:end])) for first, end in pieces]
    return [chunk for chunk in chunks if chunk.text.strip()]


def _lines(text: str) -> list[str]:
    """Lines as tree-sitter counts them: a form feed does not end a line."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] + [text.rpartition("\n")[2]] * (not text.endswith("\n"))


def _boundaries(text: str, language: str, count: int) -> list[int]:
    """The lines where a definition starts or has just ended, and both ends of the text; lines count from 0."""
    edges = {edge for each in definitions(text, language) for edge in (each.first_line - 1, each.last_line)}
    return sorted({0, count} | {edge for edge in edges if edge < count})


def _split_long(lines: list[str], boundaries: list[int], max_lines: int) -> Iterator[tuple[int, int]]:
    """The pieces between boundaries; a long one is split after a blank line, or after `max_lines` lines."""
    for start, end in pairwise(boundaries):
        first = start
        while end - first > max_lines:
            blank = (n for n in range(first + max_lines, first + max_lines // 2, -1) if not lines[n - 1].strip())
            middle = next(blank, first + max_lines)
            yield first, middle
            first = middle
        yield first, end


def _merge_neighbours(pieces: Iterator[tuple[int, int]], max_lines: int) -> Iterator[tuple[int, int]]:
    start, stop = 0, 0
    for first, end in pieces:
        if end - start > max_lines and stop > start:
            yield start, stop
            start = first
        stop = end
    if stop > start:
        yield start, stop
