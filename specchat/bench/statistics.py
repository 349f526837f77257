"""Several measurements of one thing: the middle one, and how far the others were from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Spread:
    """The median, and the lowest and highest."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """What at least one measurement came to."""
        found = sorted(values)
        return cls(median(found), found[0], found[-1])

    def shown(self, digits: int, unit: float = 1.0) -> str:
        """`1.23 (1.20-1.31)`, in thousandths when the unit is 1000."""
        middle, low, high = (f"{value * unit:.{digits}f}" for value in (self.middle, self.low, self.high))
        return f"{middle} ({low}-{high})"
