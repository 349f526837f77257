"""Changes of a text by position: what is outside them stays as it is, byte for byte.

Positions count the bytes of the text in UTF-8, as syntax trees do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

TOO_LONG = "the file is too long, or too deeply nested, to look at all of it"


class RefusedError(Exception):
    """The tree cannot do an operation with certainty; the message says why."""


class UnknownLanguageError(RefusedError):
    """The tree knows nothing about an operation in this language, so a model may do it."""


@dataclass(frozen=True)
class Splice:
    """`new` replaces the bytes from `start` to `end`."""

    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Area:
    """The part of a text that may change, from `start` to `end`."""

    start: int
    end: int

    def holds(self, start: int, end: int) -> bool:
        return self.start <= start and end <= self.end

    def overlap(self, other: Area) -> Area:
        return Area(max(self.start, other.start), min(self.end, other.end))


@dataclass(frozen=True)
class Step:
    """What one operation changes, with one sentence about it. No splices: there is nothing to do."""

    summary: str
    splices: tuple[Splice, ...]

    def apply(self, text: str) -> str:
        return splice_text(text, self.splices)


def splice_text(text: str, splices: Iterable[Splice]) -> str:
    """The text with all changes made. Changes must not overlap; equal ones count once."""
    raw = text.encode()
    parts: list[bytes] = []
    done = 0
    for each in sorted(set(splices), key=lambda splice: (splice.start, splice.end)):
        assert each.start >= done
        parts += [raw[done : each.start], each.new.encode()]
        done = each.end
    return b"".join([*parts, raw[done:]]).decode()


def line_area(text: str, first: int, last: int) -> Area:
    """The lines from `first` to `last`, counted from 1."""
    lines = text.encode().split(b"\n")
    starts, end = list(accumulate((len(line) + 1 for line in lines), initial=0)), min(last, len(lines))
    return Area(starts[min(first - 1, end)], min(starts[end], len(text.encode())))


def whole_area(text: str) -> Area:
    return Area(0, len(text.encode()))


def count_of(things: Sequence[object] | int, noun: str) -> str:
    """`1 place`, `4 places`."""
    count = things if isinstance(things, int) else len(things)
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
