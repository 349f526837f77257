"""Cost curves: seconds of a pass by its rows, or of a draft by its depth.

This file knows no model and no file (`costs.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from specchat.chooser.drift import DRIFT_TEST_MEASUREMENTS, MAX_NORMAL_RATIO, DriftDetector, confirmed_detector

ANCHORS = (1, 2, 4, 8, 16, 32, 64, 128)  # counts at which a curve has points
LEARNING_RATE = 0.2
MAX_CHANGE = 0.25  # largest relative change by one measurement, which may be a stall
SHARED_CHANGE = 0.5  # share of a change that applies to all other counts: a slower machine slows all of them
UNKNOWN_SLOPE = 0.1  # of a plain pass, for each additional row, while only plain passes are measured
FIRST_TRIAL_ROWS = 4  # rows of the first pass with draft tokens, while the slope comes only from a file
STORED_SLOPE_WEIGHT = 0.5  # weight of a stored slope; a pass over two rows has weight 1, one over five has 16


@dataclass
class Curve:
    """Seconds by a count: linear between the measured points, and never decreasing.

    With only one point, each additional count adds `slope` of it; a slope of 1 from count 1 is proportional.
    """

    points: dict[int, float] = field(default_factory=dict[int, float])
    slope: float = UNKNOWN_SLOPE
    drift_detector: DriftDetector = field(default_factory=confirmed_detector)
    _interpolated: list[float] = field(default_factory=list[float], repr=False, compare=False)

    def seconds_up_to(self, max_count: int) -> list[float] | None:
        """Seconds for 0, 1, ... `max_count`; None without any measurement."""
        if max_count < len(self._interpolated):
            return self._interpolated[: max_count + 1]
        points = sorted(self.points.items())
        if not points:
            return None
        seconds, index, highest = list[float](), 0, 0.0
        for count in range(max_count + 1):
            while index + 1 < len(points) and points[index + 1][0] <= count:
                index += 1
            highest = max(highest, self._interpolate(points, index, count))
            seconds.append(highest)
        self._interpolated = seconds
        return list(seconds)

    def trusted_seconds_up_to(self, max_count: int) -> list[float] | None:
        """As `seconds_up_to`, but only as far as the curve is reliable now."""
        return self.seconds_up_to(max_count)

    def copy(self) -> Curve:
        """A new curve with the same points; unconfirmed if this one is."""
        return Curve(
            dict(self.points),
            self.slope,
            DriftDetector() if self.drift_detector.is_unconfirmed else confirmed_detector(),
        )

    def set_point(self, count: int, seconds: float) -> None:
        self.points[count] = seconds
        self._interpolated = []

    def seconds_at(self, count: int) -> float | None:
        """Seconds for this count; None without any measurement."""
        if (exact := self.points.get(count)) is not None:
            return exact
        seconds = self.seconds_up_to(count)
        return None if seconds is None else seconds[count]

    def learn(self, count: int, seconds: float) -> None:
        expected = self.seconds_at(count)
        self._interpolated = []
        if expected is None or expected <= 0:
            self.points[count] = seconds
            self.drift_detector.is_unconfirmed = False
            return
        if (factor := self.drift_detector.scale_factor(seconds, expected)) is not None:
            self.points = {point: old * factor for point, old in self.points.items()}
        elif not self.drift_detector.is_unconfirmed:
            self._adjust(count, seconds, expected)

    def _adjust(self, count: int, seconds: float, expected: float) -> None:
        """Move the neighbouring points towards the measurement by their nearness, and all others by half as much."""
        change = LEARNING_RATE * max(-MAX_CHANGE, min(seconds / expected - 1, MAX_CHANGE))
        below, above = _neighbouring_counts(count, self.points)
        self._add_points((below, above))
        nearness = {below: 1.0} if below == above else _interpolation_weights(below, count, above)
        for point in self.points:
            self.points[point] *= 1 + change * max(nearness.get(point, 0.0), SHARED_CHANGE)
        self._keep_order(below, above)

    def _keep_order(self, below: int, above: int) -> None:
        """Make the curve increase again where its newest measurement, between these points, contradicts older ones.

        Else a point that was measured beside other load would hide all cheaper points behind it, for ever.
        """
        self.points[below] = lowest = min(self.points[below], self.points[above])
        for point, seconds in self.points.items():
            if point < below:
                self.points[point] = min(seconds, lowest)
            elif point > above:
                self.points[point] = max(seconds, self.points[above])
        self._interpolated = []

    def _add_points(self, counts: tuple[int, ...]) -> None:
        """Add points at these counts without changing the curve."""
        for count in counts:
            self.points.setdefault(count, self.seconds_at(count) or 0.0)

    def _interpolate(self, sorted_points: list[tuple[int, float]], index: int, count: int) -> float:
        if len(sorted_points) == 1:
            at, seconds = sorted_points[0]
            return max(seconds * (1 + self.slope * (count - at) / (at if self.slope == 1 else 1)), 0.0)
        (low, less), (high, more) = (
            sorted_points[index : index + 2] if index + 1 < len(sorted_points) else sorted_points[-2:]
        )
        return max(less + max(more - less, 0.0) * (count - low) / (high - low), 0.0)


@dataclass
class StoredCurve(Curve):
    """A curve of passes from an earlier process, until passes of this process confirm or correct it.

    A plain pass that takes longer than expected scales all counts. Wider passes correct the slope through the plain
    pass: recursive least squares for one number, in which wide passes, which measure the slope best, count most.
    """

    drift_detector: DriftDetector = field(default_factory=DriftDetector)  # of the plain pass
    slope_updates: int = 0  # passes of this process that have corrected the slope
    _slope_weight: float = STORED_SLOPE_WEIGHT  # sum of the weights of all slope measurements
    _stall_ratio: float = 0.0  # the last pass by its expected seconds, if it may have been a stall

    def trusted_seconds_up_to(self, max_count: int) -> list[float] | None:
        """Allow a plain pass first, then a few draft tokens, then as many as the curve covers.

        The few get the cost of an unknown machine if the stored cost is higher: otherwise a stored curve that is too
        steep would prevent all drafting, and with it its own correction.
        """
        if self.drift_detector.is_unconfirmed:
            return self.seconds_up_to(min(max_count, 1))
        seconds = self.seconds_up_to(max_count if self.slope_updates else min(max_count, FIRST_TRIAL_ROWS))
        if self.slope_updates or seconds is None or len(seconds) < 2:
            return seconds
        optimistic = (seconds[1] * (1 + UNKNOWN_SLOPE * (count - 1)) for count in range(1, len(seconds)))
        return [seconds[0], *map(min, seconds[1:], optimistic)]

    def copy(self) -> Curve:
        """A new curve with the same points; a stored curve if no plain pass is measured yet."""
        return StoredCurve(dict(self.points)) if self.drift_detector.is_unconfirmed else Curve(dict(self.points))

    def set_point(self, count: int, seconds: float) -> None:
        super().set_point(count, seconds)
        if count == 1:
            self.drift_detector = confirmed_detector()
        else:
            self.slope_updates = DRIFT_TEST_MEASUREMENTS

    def learn(self, count: int, seconds: float) -> None:
        expected = self.seconds_at(count)
        if count == 1 or not expected:
            super().learn(count, seconds)
        elif self.slope_updates >= DRIFT_TEST_MEASUREMENTS:
            self._adjust(count, seconds, expected)
        else:
            self._update_slope(count, seconds, expected)

    def _update_slope(self, count: int, seconds: float, expected: float) -> None:
        """Correct the slope by this measurement. A pass that is much too slow, maybe by a stall, needs a second one."""
        ratio, previous = seconds / expected, self._stall_ratio
        self._stall_ratio = ratio if ratio > MAX_NORMAL_RATIO else 0.0
        if self._stall_ratio and not previous:
            return
        excess = (min(ratio, previous) if self._stall_ratio else ratio) * expected - expected
        self.slope_updates += 1
        self._slope_weight += (count - 1) ** 2
        below, above = _neighbouring_counts(count, self.points)
        self._add_points((1, below, above))
        plain, slope = self.points[1], (count - 1) * excess / self._slope_weight
        self.points = {point: max(old + slope * (point - 1), plain) for point, old in self.points.items()}
        self._keep_order(below, above)


def proportional_curve() -> Curve:
    """The initial curve of a drafter: cost in proportion to the depth of the tree."""
    return Curve(slope=1, drift_detector=DriftDetector(is_new=True))


def stored_points(stored_curves: Mapping[str, Any]) -> dict[int, dict[int, float]]:
    """The points of stored curves by bucket; ValueError for values that are no durations."""
    curves = dict[int, dict[int, float]]()
    for bucket, points in stored_curves.items():
        seconds = {int(count): float(value) for count, value in cast("dict[str, Any]", points).items()}
        if not seconds or not all(0 < value < 3600 and count > 0 for count, value in seconds.items()):
            raise ValueError(f"no seconds: {points}")
        curves[int(bucket)] = seconds
    return curves


def _neighbouring_counts(count: int, points: Collection[int]) -> tuple[int, int]:
    counts = sorted({*ANCHORS, *points})
    index = bisect_left(counts, count)
    if index == len(counts):
        return counts[-1], counts[-1]
    return (count, count) if counts[index] == count else (counts[max(index - 1, 0)], counts[index])


def _interpolation_weights(below: int, count: int, above: int) -> dict[int, float]:
    share = (count - below) / (above - below)
    return {below: 1 - share, above: share}
