"""The median of several measurements, with the lowest and highest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class MedianRange:
    median: float
    lowest: float
    highest: float

    @classmethod
    def from_values(cls, values: Iterable[float]) -> MedianRange:
        """Of at least one value."""
        ordered = sorted(values)
        return cls(median(ordered), ordered[0], ordered[-1])

    def to_text(self, digits: int, unit: float = 1.0) -> str:
        """`1.23 (1.20-1.31)`, in milliseconds when the unit is 1000."""
        middle, low, high = (f"{value * unit:.{digits}f}" for value in (self.median, self.lowest, self.highest))
        return f"{middle} ({low}-{high})"
