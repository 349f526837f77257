"""Several measurements of one thing: the middle one, and how far the others were from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class MedianRange:
    """The median, and the lowest and highest."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def from_values(cls, values: Iterable[float]) -> MedianRange:
        """What at least one measurement came to."""
        found = sorted(values)
        return cls(median(found), found[0], found[-1])

    def to_text(self, digits: int, unit: float = 1.0) -> str:
        """`1.23 (1.20-1.31)`, in thousandths when the unit is 1000."""
        middle, low, high = (f"{value * unit:.{digits}f}" for value in (self.median, self.lowest, self.highest))
        return f"{middle} ({low}-{high})"
