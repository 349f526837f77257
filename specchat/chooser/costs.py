"""Measured costs of one model on one machine: seconds of a pass by rows, and of each drafter by depth.

Costs are kept by context length. Every decoding step updates them, and `learned_file.py` stores them for the next
start. This file knows drafters by name only, and no acceptance rates; `chooser.py` combines both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, thread_time

from specchat.chooser.curve import PROPORTIONAL, Curve, PassCurve, is_normal
from specchat.engine.cache_sizes import bucket_of
from specchat.engine.decode import Generation
from specchat.engine.sampling import Sampler

CALIBRATION_ROWS = (1, 4, 16)  # numbers of rows that are measured before the first answer
MEASURED_PASSES = 3  # for each number of rows
MAX_SECONDS_PER_WIDTH = 0.3  # a slow model runs one pass for each number of rows
MAX_CALIBRATION_SECONDS = 2.0
MIN_PROCESSOR_SHARE = 0.8  # of the time of a pass; with less, other programs use the processor
MAX_CALIBRATIONS = 4  # of a process that finds the machine busy


@dataclass
class Costs:
    """Seconds of a pass by rows, and of each drafter by depth of its tree, both by context bucket."""

    pass_curves: dict[int, Curve] = field(default_factory=dict[int, Curve])
    draft_curves: dict[str, dict[int, Curve]] = field(default_factory=dict[str, dict[int, Curve]])
    busy_calibrations: int = 0  # that ran beside other load, and are repeated before the next answer
    # of CUDA graphs: a pass costs what the next of these rows does, and curves have no others
    widths: tuple[int, ...] = ()

    def plain_seconds(self, text_length: int) -> float | None:
        """Seconds of a plain pass at this text length; None without a measurement in its bucket."""
        curve = self.pass_curves.get(bucket_of(text_length))
        return None if curve is None else curve.seconds_at(1)

    def trusted_pass_seconds(self, text_length: int, max_rows: int) -> list[float] | None:
        """Seconds of a pass over 0, 1, ... rows, at the nearest measured length; None without any.

        At most `max_rows` rows, and only as far as the curve is reliable now: stored costs are confirmed in steps.
        """
        curve = self._pass_curve(text_length)
        seconds = None if curve is None else curve.trusted_seconds_up_to(self.width_of(max_rows))
        if seconds is None or not self.widths:
            return seconds
        widths = (self.width_of(rows) for rows in range(max_rows + 1))
        return [seconds[width] for width in widths if width < len(seconds)]

    def width_of(self, rows: int) -> int:
        """The rows that a pass over so many computes."""
        return next((width for width in self.widths if width >= rows > 0), rows)

    def relative_pass_cost(self, text_length: int, rows: int) -> float:
        """The cost of a pass over so many rows, relative to one row, as far as passes are measured; else 1."""
        curve = self._pass_curve(text_length)
        plain = None if curve is None else curve.points.get(1)
        seconds = None if curve is None else curve.seconds_at(self.width_of(rows))
        return max(seconds / plain, 1.0) if plain and seconds else 1.0

    def own_share(self, text_length: int, rows: int, other_rows: int) -> float:
        """The time of a pass over so many rows, as a share of that of a pass with rows of other texts beside them."""
        return self.relative_pass_cost(text_length, rows) / self.relative_pass_cost(text_length, rows + other_rows)

    def draft_curve(self, name: str, text_length: int) -> Curve | None:
        """Seconds of this drafter by depth of its tree, at the nearest measured length; None without any."""
        return nearest_curve(self.draft_curves.get(name, {}), bucket_of(text_length))

    def confirms_plain_pass(self, text_length: int, seconds: float) -> bool:
        """Whether this process has measured a plain pass near this length, and this one is as expected."""
        curve = self._pass_curve(text_length)
        plain = None if curve is None or curve.is_unconfirmed else curve.points.get(1)
        is_normal_pass = plain is not None and is_normal(seconds / plain)
        if is_normal_pass and isinstance(curve, PassCurve):
            curve.note_plain()
        return is_normal_pass

    def distrust_wide_passes(self, text_length: int) -> None:
        """Measure passes over several rows near this length again."""
        if isinstance(curve := self._pass_curve(text_length), PassCurve):
            curve.distrust_slope()

    def _pass_curve(self, text_length: int) -> Curve | None:
        """Seconds of a pass by rows, at the nearest measured length; None without any."""
        return nearest_curve(self.pass_curves, bucket_of(text_length))

    def learn_pass(self, text_length: int, rows: int, seconds: float) -> bool:
        """Whether the plain pass has changed by a factor. Drafts follow such a change, and are measured again."""
        curve = _curve_of_bucket(self.pass_curves, bucket_of(text_length), PassCurve)
        plain_seconds = curve.points.get(1)
        curve.learn(self.width_of(rows), seconds)
        factor = curve.points[1] / plain_seconds if plain_seconds else 1.0
        is_changed = not is_normal(factor)
        if is_changed:
            for draft_curve in (each for curves in self.draft_curves.values() for each in curves.values()):
                draft_curve.scale(factor)
                draft_curve.is_unconfirmed = True
        return is_changed

    def learn_draft(self, name: str, text_length: int, depth: int, seconds: float) -> None:
        curves = self.draft_curves.setdefault(name, {})
        _curve_of_bucket(curves, bucket_of(text_length), partial(Curve, slope=PROPORTIONAL)).learn(depth, seconds)

    def calibrate(self, generation: Generation) -> None:
        """Measure passes over a few numbers of rows without committing them, unless measurements exist.

        Measurements beside other load are only a first estimate; before the next answer they are repeated.
        """
        is_measured = any(len(curve.points) > 1 for curve in self.pass_curves.values())
        is_done = is_measured and not 0 < self.busy_calibrations < MAX_CALIBRATIONS
        if is_done or generation.target.max_rows == 1:  # nothing is drafted there
            return
        started_at, processor_started_at = perf_counter(), thread_time()
        curve = _curve_of_bucket(self.pass_curves, bucket_of(len(generation.tokens)), PassCurve)
        for row_count in dict.fromkeys((*CALIBRATION_ROWS, *self.widths)):
            if row_count <= generation.target.max_rows and perf_counter() - started_at < MAX_CALIBRATION_SECONDS / 2:
                curve.set_point(row_count, _fastest_pass(generation, row_count))
        share = (thread_time() - processor_started_at) / (perf_counter() - started_at)
        self.busy_calibrations = self.busy_calibrations + 1 if share < MIN_PROCESSOR_SHARE else 0
        if self.busy_calibrations and isinstance(curve, PassCurve):
            curve.distrust_slope()


def _fastest_pass(generation: Generation, row_count: int) -> float:
    """The fastest of a few passes, because other load only adds time."""
    total, fastest = 0.0, 0.0
    for _ in range(MEASURED_PASSES):
        seconds = generation.measure_pass(row_count, Sampler())
        fastest = min(seconds, fastest or seconds)
        if (total := total + seconds) > MAX_SECONDS_PER_WIDTH:
            break
    return fastest


def nearest_curve(curves: Mapping[int, Curve], bucket: int) -> Curve | None:
    if (curve := curves.get(bucket)) is not None or not curves:
        return curve
    return curves[min(curves, key=lambda other: abs(other - bucket))]


def _curve_of_bucket(curves: dict[int, Curve], bucket: int, new_curve: Callable[[], Curve]) -> Curve:
    """The curve of this bucket; a missing one starts as a copy of the nearest."""
    if bucket not in curves:
        nearest = nearest_curve(curves, bucket)
        curves[bucket] = new_curve() if nearest is None else nearest.copy()
    return curves[bucket]
