"""Cost curves: seconds of a pass by its rows, or of a draft by its depth.

A cost may be wrong by a factor: it comes from a file, or from a time when the machine had other load. Running means
react slowly, so that a single stall does not change them. So two measurements in a row that differ from a curve by a
factor scale it at once, similar to bandits with change detection (CUSUM-UCB, arXiv 1711.03539; M-UCB, 1802.03692). Two
are enough here, because the next measurements correct a wrong change. This file knows no model and no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, cast

LEARNING_RATE = 0.2
MAX_CHANGE = 0.25  # largest relative change by one measurement, which may be a stall
SHARED_CHANGE = 0.5  # share of a change that applies to all other counts: a slower machine slows all of them
MAX_NORMAL_RATIO = 1.25  # measurements of the same cost mostly differ by less than this factor
UNKNOWN_SLOPE = 0.1  # of a plain pass, for each additional row, while only plain passes are measured
PROPORTIONAL = 1.0  # slope of a draft, while only one depth is measured
MAX_TRIAL_COST = 2.0  # plain passes by the curve, for a trial of more than one draft token
FIRST_TRIAL_ROWS = 4  # rows of the first pass with draft tokens, while the slope is unconfirmed
STORED_SLOPE_WEIGHT = 0.5  # weight of a stored slope; a pass over two rows has weight 1, one over five has 16
SLOPE_MEASUREMENTS = 16  # first wide passes, which correct the whole slope


def is_normal(ratio: float) -> bool:
    """Whether a measurement by its expected value says nothing about a change."""
    return 1 / MAX_NORMAL_RATIO <= ratio <= MAX_NORMAL_RATIO


@dataclass
class Curve:
    """Seconds by a count: linear between the measured points, and never decreasing.

    Every measured count gets a point, since costs may be a staircase. With only one point, each additional count adds
    `slope` of it.
    """

    points: dict[int, float] = field(default_factory=dict[int, float])
    slope: float = UNKNOWN_SLOPE
    is_unconfirmed: bool = False  # no measurement since the start, or since a change, agrees with it
    _previous_ratio: float = 1.0  # last measurement by the expected value, if that was outside MAX_NORMAL_RATIO
    _interpolated: list[float] = field(default_factory=list[float], repr=False, compare=False)

    def seconds_up_to(self, max_count: int) -> list[float] | None:
        """Seconds for 0, 1, ... `max_count`; None without any measurement."""
        if max_count >= len(self._interpolated):
            if not self.points:
                return None
            line = self._interpolate(max_count + 1)
            self._interpolated = line if line == sorted(line) else list(accumulate(line, max))
        return self._interpolated[: max_count + 1]

    def trusted_seconds_up_to(self, max_count: int) -> list[float] | None:
        """As `seconds_up_to`, but only as far as the curve is reliable now."""
        return self.seconds_up_to(max_count)

    def copy(self) -> Curve:
        """A new curve with the same points; unconfirmed if this one is."""
        return Curve(dict(self.points), self.slope, self.is_unconfirmed)

    def set_point(self, count: int, seconds: float) -> None:
        self.points[count] = seconds
        self._interpolated = []

    def seconds_at(self, count: int) -> float | None:
        """Seconds for this count; None without any measurement."""
        if (exact := self.points.get(count)) is not None:
            return exact
        seconds = self.seconds_up_to(count)
        return None if seconds is None else seconds[count]

    def scale(self, factor: float) -> None:
        """Change all costs by this factor."""
        self.points = {point: old * factor for point, old in self.points.items()}
        self._interpolated = []

    def learn(self, count: int, seconds: float) -> None:
        expected = self.seconds_at(count)
        if not expected or (count > max(self.points) and not self.is_unconfirmed):
            self.set_point(count, seconds)
            self.is_unconfirmed = False
        elif (factor := self._change_factor(seconds / expected)) is not None:
            self.scale(factor)
        elif not self.is_unconfirmed:
            self._adjust(count, seconds, expected)

    def _change_factor(self, ratio: float) -> float | None:
        """The smaller of two changes in a row to the same side; None for less.

        A fall below an unconfirmed cost needs no second measurement: other load only adds time.
        """
        previous, self._previous_ratio = self._previous_ratio, 1.0
        if is_normal(ratio):
            self.is_unconfirmed = False
            return None
        if self.is_unconfirmed and ratio < 1:
            previous = ratio
        if (previous - 1) * (ratio - 1) <= 0:
            self._previous_ratio = ratio
            return None
        self.is_unconfirmed = False
        return min(ratio, previous) if ratio > 1 else max(ratio, previous)

    def _adjust(self, count: int, seconds: float, expected: float, shared: float = SHARED_CHANGE) -> None:
        """Move the point of this count towards the measurement, and all others by a share of that."""
        change = LEARNING_RATE * max(-MAX_CHANGE, min(seconds / expected - 1, MAX_CHANGE))
        factor = 1 + change * shared
        self._replace(count, expected * (1 + change), {point: old * factor for point, old in self.points.items()})

    def _replace(self, count: int, newest: float, points: dict[int, float]) -> None:
        """Take these points, and make the curve increase again where its newest measurement contradicts older ones.

        Else a point that was measured beside other load would hide all cheaper points behind it, for ever.
        """
        for point, seconds in points.items():
            if seconds > newest if point < count else seconds < newest:
                points[point] = newest
        points[count] = newest
        self.points, self._interpolated = points, []

    def _interpolate(self, end: int) -> list[float]:
        """The lines through the points for the counts 0, 1, ... `end` - 1, or more. Plain loops: most steps do it."""
        points, counts, line = self.points, sorted(self.points), list[float]()
        first, last = counts[0], counts[-1]
        least, most = points[first], points[last]
        # behind the last point: as steep as all points together
        slope = max(most - least, 0.0) / (last - first) if first < last else self.slope * least
        rise = max(points[counts[1]] - least, 0.0) / (counts[1] - first) if first < last else slope
        for count in range(first):  # fewer rows cost at least their share, which is more than nothing
            line.append(max(least + rise * (count - first), least * count / first))
        low, less = first, least
        for high in counts:
            more = points[high]
            if high > low + 1:
                rise = max(more - less, 0.0) / (high - low)
                for count in range(low + 1, high):
                    line.append(less + rise * (count - low))
            line.append(more)
            low, less = high, more
        for count in range(last + 1, end):
            line.append(most + slope * (count - last))
        return line


@dataclass
class PassCurve(Curve):
    """Seconds of passes: a plain pass scales all of them, and wider ones correct the slope through the plain pass.

    The slope is learned by recursive least squares for one number, in which wide passes, which measure it best, count
    most. It is unconfirmed again when plain passes take another time than when it was measured: else a curve that was
    measured beside other load would prevent drafts for ever.
    """

    wide_passes: int = 0  # passes over more than one row since the slope was unconfirmed
    _slope_weight: float = STORED_SLOPE_WEIGHT  # sum of the weights of all slope measurements
    _stall_ratio: float = 0.0  # the last wide pass by its expected seconds, if it may have been a stall
    _plain_seconds: float = 0.0  # when the slope was measured
    _passes_since_plain: int = 0

    def trusted_seconds_up_to(self, max_count: int) -> list[float] | None:
        """Allow a plain pass first, then a few draft tokens, then as many as the curve covers.

        The few get the cost of an unknown machine if the curve is steeper: otherwise it would prevent all drafting, and
        with it its own correction. Of a very steep curve only the first one does, which corrects it, too: with experts
        in a slow tier the curve is right, and a pass over four rows takes as long as three or four plain ones.
        """
        if self.is_unconfirmed:
            return self.seconds_up_to(min(max_count, 1))
        seconds = self.seconds_up_to(max_count if self.wide_passes else min(max_count, FIRST_TRIAL_ROWS))
        if self.wide_passes or seconds is None or len(seconds) < 2:
            return seconds
        plain, most = seconds[1], MAX_TRIAL_COST * seconds[1]
        trials = max(sum(each <= most for each in seconds), 3)  # where rows are dear, one draft token tells it
        optimistic = (plain * (1 + UNKNOWN_SLOPE * (count - 1)) for count in range(1, trials))
        return [seconds[0], *map(min, seconds[1:trials], optimistic), *seconds[trials:]]

    def copy(self) -> Curve:
        """A new curve with the same points, and as far confirmed as this one."""
        return PassCurve(
            dict(self.points), is_unconfirmed=self.is_unconfirmed,
            wide_passes=0 if self.is_unconfirmed else self.wide_passes, _plain_seconds=self._plain_seconds,
        )  # fmt: skip

    def set_point(self, count: int, seconds: float) -> None:
        """Take a measured cost as it is."""
        super().set_point(count, seconds)
        if count == 1:
            self.is_unconfirmed = False
        else:
            self.wide_passes, self._plain_seconds = SLOPE_MEASUREMENTS, self.points.get(1, 0.0)

    def distrust_slope(self) -> None:
        """Allow a few draft tokens at the cost of an unknown machine, and learn the slope again."""
        self.wide_passes, self._slope_weight = 0, STORED_SLOPE_WEIGHT

    def learn(self, count: int, seconds: float) -> None:
        expected = self.seconds_at(count)
        self._passes_since_plain += 1
        if not expected or 1 not in self.points:
            super().learn(count, seconds)
        elif count == 1:
            super().learn(count, seconds)
            self.note_plain()
            self._check_slope()
        elif seconds * MAX_NORMAL_RATIO < expected and self._passes_since_plain > 1:
            self.is_unconfirmed = True  # other load may have ended: a plain pass tells it, and the slope waits for that
        elif self.wide_passes >= SLOPE_MEASUREMENTS and not self._is_second_misfit(seconds / expected):
            self._adjust(count, seconds, expected)
        else:
            self._update_slope(count, seconds, expected)

    def note_plain(self) -> None:
        """A plain pass was as expected, or its cost is learned."""
        self._passes_since_plain = 0

    def _adjust(self, count: int, seconds: float, expected: float, shared: float = SHARED_CHANGE) -> None:
        super()._adjust(count, seconds, expected, 1.0 if count == 1 else shared)

    def _check_slope(self) -> None:
        plain = self.points[1]
        if not is_normal(plain / (self._plain_seconds or plain)):
            self._plain_seconds = plain
            self.distrust_slope()

    def _is_second_misfit(self, ratio: float) -> bool:
        """Whether two wide passes in a row differ from the curve by a factor, so that the slope is learned again."""
        previous = self._stall_ratio
        self._stall_ratio = 0.0 if is_normal(ratio) else ratio
        if not self._stall_ratio or not previous or (previous - 1) * (ratio - 1) < 0:
            return False
        self.distrust_slope()
        return True

    def _update_slope(self, count: int, seconds: float, expected: float) -> None:
        """Correct the slope by this measurement. A pass that is much too slow, maybe by a stall, needs a second one."""
        ratio, previous = seconds / expected, self._stall_ratio
        self._stall_ratio = ratio if ratio > MAX_NORMAL_RATIO else 0.0
        if self._stall_ratio and previous <= MAX_NORMAL_RATIO:
            return
        excess = (min(ratio, previous) if self._stall_ratio else ratio) * expected - expected
        self._slope_weight = (self._slope_weight if ratio > 1 / MAX_NORMAL_RATIO else 0.0) + (count - 1) ** 2
        self.wide_passes += 1
        self._plain_seconds = plain = self.points[1]
        slope = (count - 1) * excess / self._slope_weight
        points = {point: max(old + slope * (point - 1), plain) for point, old in self.points.items()}
        self._replace(count, max(expected + slope * (count - 1), plain), points)


def stored_points(stored_curves: Mapping[str, Any]) -> dict[int, dict[int, float]]:
    """The points of stored curves by bucket; ValueError for values that are no durations."""
    curves = dict[int, dict[int, float]]()
    for bucket, points in stored_curves.items():
        seconds = {int(count): float(value) for count, value in cast("dict[str, Any]", points).items()}
        if not seconds or not all(0 < value < 3600 and count > 0 for count, value in seconds.items()):
            raise ValueError(f"no seconds: {points}")
        curves[int(bucket)] = seconds
    return curves
