"""Seconds by a count: of a pass by its rows, of a draft by its depth. Measured, learnt, and doubted when it is old.

Knows no model and no file: those are in `costs.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field

from specchat.chooser.drift import DRIFT_TEST_MEASUREMENTS, MAX_NORMAL_RATIO, DriftDetector, confirmed_detector

ANCHORS = (1, 2, 4, 8, 16, 32, 64, 128)  # counts at which a curve may bend
LEARNING_RATE = 0.2
MAX_CHANGE = 0.25  # of one observation: a stall is no news
SHARED_CHANGE = 0.5  # of a change holds for other widths too: a machine that slows down slows all
UNKNOWN_SLOPE = 0.1  # of a plain pass, for each more row, while only plain passes were seen
FIRST_TRIAL_ROWS = 4  # rows of the first pass with guesses, where a file is all that speaks for more
STORED_SLOPE_WEIGHT = 0.5  # of a slope that was kept; a pass over two rows weighs 1, one over five 16


@dataclass
class Curve:
    """Seconds by a count: straight between the points that were measured, and never falling.

    Where only one point is known, `slope` of it is added for each more; a slope of 1 from one is a proportion.
    """

    points: dict[int, float] = field(default_factory=dict[int, float])
    slope: float = UNKNOWN_SLOPE
    drift_detector: DriftDetector = field(default_factory=confirmed_detector)  # whether to believe a jump
    _interpolated: list[float] = field(
        default_factory=list[float], repr=False, compare=False
    )  # as far as was asked for

    def seconds_up_to(self, max_count: int) -> list[float] | None:
        """Seconds for 0, 1, ... `most`; None when nothing was measured."""
        if max_count < len(self._interpolated):
            return self._interpolated[: max_count + 1]
        known = sorted(self.points.items())
        if not known:
            return None
        seconds, place, highest = list[float](), 0, 0.0
        for count in range(max_count + 1):
            while place + 1 < len(known) and known[place + 1][0] <= count:
                place += 1
            highest = max(highest, self._interpolate(known, place, count))
            seconds.append(highest)
        self._interpolated = seconds
        return list(seconds)

    def trusted_seconds_up_to(self, max_count: int) -> list[float] | None:
        """As `up_to`, but no further than may be tried now."""
        return self.seconds_up_to(max_count)

    def copy(self) -> Curve:
        """A curve of its own that begins with the same points, and no less in doubt."""
        return Curve(
            dict(self.points),
            self.slope,
            DriftDetector() if self.drift_detector.is_unconfirmed else confirmed_detector(),
        )

    def set_point(self, count: int, seconds: float) -> None:
        """A point that was measured for itself."""
        self.points[count] = seconds
        self._interpolated = []

    def seconds_at(self, count: int) -> float | None:
        """Seconds for so many; None when nothing was measured."""
        if (exact := self.points.get(count)) is not None:
            return exact
        seconds = self.seconds_up_to(count)
        return None if seconds is None else seconds[count]

    def learn(self, count: int, seconds: float) -> None:
        """One more observation. It moves its neighbours by their nearness, and all others by half as much."""
        expected = self.seconds_at(count)
        self._interpolated = []
        if expected is None or expected <= 0:
            self.points[count] = seconds
            self.drift_detector.is_unconfirmed = False
            return
        if (factor := self.drift_detector.scale_factor(seconds, expected)) is not None:
            self.points = {point: known * factor for point, known in self.points.items()}
        elif not self.drift_detector.is_unconfirmed:
            self._adjust(count, seconds, expected)

    def _adjust(self, count: int, seconds: float, expected: float) -> None:
        """A small step towards what was measured."""
        change = LEARNING_RATE * max(-MAX_CHANGE, min(seconds / expected - 1, MAX_CHANGE))
        if abs(change) < 1e-9:
            return
        below, above = _neighbouring_counts(count, self.points)
        self._add_points((below, above))
        nearness = {below: 1.0} if below == above else _interpolation_weights(below, count, above)
        for point in self.points:
            self.points[point] *= 1 + change * max(nearness.get(point, 0.0), SHARED_CHANGE)
        self._interpolated = []

    def _add_points(self, counts: tuple[int, ...]) -> None:
        """Let it have points at these counts, where it is now."""
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
    """A curve of passes that was measured on another day, until passes of today have confirmed or changed it.

    A plain pass that takes longer than it should moves all widths with it. Wider passes turn the curve about its plain
    pass: recursive least squares for one number, so that those that tell most of the slope, the wide ones, count most.
    """

    drift_detector: DriftDetector = field(default_factory=DriftDetector)  # of the plain pass
    slope_updates: int = 0  # passes of today that have turned it
    _slope_weight: float = STORED_SLOPE_WEIGHT  # of all that is known of the slope
    _stall_ratio: float = 0.0  # how many times slower than expected the last one was, if it may have been a stall

    def trusted_seconds_up_to(self, max_count: int) -> list[float] | None:
        """No further than a file may be trusted: a plain pass first, and then a few guesses before many.

        Those few get the price of an unknown machine where the kept one is higher: a curve that has become too steep
        would keep everybody from guessing, and so from finding out.
        """
        if self.drift_detector.is_unconfirmed:
            return self.seconds_up_to(min(max_count, 1))
        seconds = self.seconds_up_to(max_count if self.slope_updates else min(max_count, FIRST_TRIAL_ROWS))
        if self.slope_updates or seconds is None or len(seconds) < 2:
            return seconds
        hoped = (seconds[1] * (1 + UNKNOWN_SLOPE * (count - 1)) for count in range(1, len(seconds)))
        return [seconds[0], *map(min, seconds[1:], hoped)]

    def copy(self) -> Curve:
        """As doubtful as this one, when no plain pass was seen yet."""
        return StoredCurve(dict(self.points)) if self.drift_detector.is_unconfirmed else Curve(dict(self.points))

    def set_point(self, count: int, seconds: float) -> None:
        """A point that was measured for itself, today."""
        super().set_point(count, seconds)
        if count == 1:
            self.drift_detector = confirmed_detector()
        else:
            self.slope_updates = DRIFT_TEST_MEASUREMENTS

    def learn(self, count: int, seconds: float) -> None:
        """One more observation of today."""
        expected = self.seconds_at(count)
        if count == 1 or not expected:
            super().learn(count, seconds)
        elif self.slope_updates >= DRIFT_TEST_MEASUREMENTS:
            self._adjust(count, seconds, expected)
        else:
            self._update_slope(count, seconds, expected)

    def _update_slope(self, count: int, seconds: float, expected: float) -> None:
        """Turn it towards this observation. One that is much too slow waits for a second: it may be a stall."""
        ratio, before = seconds / expected, self._stall_ratio
        self._stall_ratio = ratio if ratio > MAX_NORMAL_RATIO else 0.0
        if self._stall_ratio and not before:
            return
        excess = (min(ratio, before) if self._stall_ratio else ratio) * expected - expected
        self.slope_updates += 1
        self._slope_weight += (count - 1) ** 2
        self._add_points((1, *_neighbouring_counts(count, self.points)))
        plain, slope = self.points[1], (count - 1) * excess / self._slope_weight
        self.points = {point: max(known + slope * (point - 1), plain) for point, known in self.points.items()}
        self._interpolated = []


def proportional_curve() -> Curve:
    """The curve of a drafter: a tree twice as deep costs twice as much, until something else was measured."""
    return Curve(slope=1, drift_detector=DriftDetector(is_new=True))


def _neighbouring_counts(count: int, points: Collection[int]) -> tuple[int, int]:
    """The counts below and above this one at which a curve may bend: it bends where it was measured, too."""
    places = sorted({*ANCHORS, *points})
    place = bisect_left(places, count)
    if place == len(places):
        return places[-1], places[-1]
    return (count, count) if places[place] == count else (places[max(place - 1, 0)], places[place])


def _interpolation_weights(below: int, count: int, above: int) -> dict[int, float]:
    share = (count - below) / (above - below)
    return {below: 1 - share, above: share}
