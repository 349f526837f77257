"""Measured costs of one model on one machine: seconds of a pass by rows, and of each drafter by depth.

Costs are kept by context length. Every decoding step updates them, and a file stores them for the next start. This file
knows drafters by name only, and no acceptance rates; `chooser.py` combines both.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from specchat.chooser.curve import Curve, StoredCurve, proportional_curve, stored_points
from specchat.chooser.drift import DriftDetector
from specchat.engine.cache import bucket_of
from specchat.engine.decode import Generation
from specchat.engine.sampling import Sampler
from specchat.paths import cache_folder, write_atomically

CALIBRATION_ROWS = (1, 4, 16)  # numbers of rows that are measured before the first answer
MEASURED_PASSES = 3  # for each number of rows
MAX_SECONDS_PER_WIDTH = 0.3  # a slow model runs one pass for each number of rows
MAX_CALIBRATION_SECONDS = 2.0


@dataclass
class Costs:
    """Seconds of a pass by rows, and of each drafter by depth of its tree, both by context bucket."""

    pass_curves: dict[int, Curve] = field(default_factory=dict[int, Curve])
    draft_curves: dict[str, dict[int, Curve]] = field(default_factory=dict[str, dict[int, Curve]])
    path: Path | None = None  # of the stored costs; None: not stored
    identity: Mapping[str, str] = field(default_factory=dict[str, str])  # of the models and the machine

    def plain_seconds(self, text_length: int) -> float | None:
        """Seconds of a plain pass at this text length; None without a measurement in its bucket."""
        curve = self.pass_curves.get(bucket_of(text_length))
        return None if curve is None else curve.seconds_at(1)

    def trusted_pass_seconds(self, text_length: int, max_rows: int) -> list[float] | None:
        """Seconds of a pass over 0, 1, ... rows, at the nearest measured length; None without any.

        At most `max_rows` rows, and only as far as the curve is reliable now: stored costs are confirmed in steps.
        """
        curve = self._pass_curve(text_length)
        return None if curve is None else curve.trusted_seconds_up_to(max_rows)

    def relative_pass_cost(self, text_length: int, rows: int) -> float:
        """The cost of a pass over so many rows, relative to one row, as far as passes are measured; else 1."""
        curve = self._pass_curve(text_length)
        plain = None if curve is None else curve.points.get(1)
        seconds = None if curve is None else curve.seconds_at(rows)
        return max(seconds / plain, 1.0) if plain and seconds else 1.0

    def draft_curve(self, name: str, text_length: int) -> Curve | None:
        """Seconds of this drafter by depth of its tree, at the nearest measured length; None without any."""
        return nearest_curve(self.draft_curves.get(name, {}), bucket_of(text_length))

    def is_plain_pass_confirmed(self, text_length: int) -> bool:
        """Whether this process has measured a plain pass near this length, and it was as expected."""
        curve = self._pass_curve(text_length)
        return curve is not None and not curve.drift_detector.is_unconfirmed

    def is_unconfirmed(self, name: str, text_length: int) -> bool:
        """Whether the cost of this drafter comes from a file and no measurement of this process confirms it."""
        curve = self.draft_curve(name, text_length)
        return curve is not None and curve.drift_detector.is_unconfirmed

    def _pass_curve(self, text_length: int) -> Curve | None:
        """Seconds of a pass by rows, at the nearest measured length; None without any."""
        return nearest_curve(self.pass_curves, bucket_of(text_length))

    def learn_pass(self, text_length: int, rows: int, seconds: float) -> None:
        _curve_of_bucket(self.pass_curves, bucket_of(text_length), Curve()).learn(rows, seconds)

    def learn_draft(self, name: str, text_length: int, depth: int, seconds: float) -> None:
        _curve_of_bucket(self.draft_curves.setdefault(name, {}), bucket_of(text_length), proportional_curve()).learn(
            depth, seconds
        )

    def calibrate(self, generation: Generation) -> None:
        """Measure passes over a few numbers of rows without committing them, unless measurements exist."""
        started_at = perf_counter()
        if any(len(curve.points) > 1 for curve in self.pass_curves.values()):
            return
        for row_count in CALIBRATION_ROWS:
            if row_count <= generation.target.max_rows and perf_counter() - started_at < MAX_CALIBRATION_SECONDS / 2:
                self._measure_pass(generation, row_count)

    def _measure_pass(self, generation: Generation, row_count: int) -> None:
        """Take the fastest of a few passes, because other load only adds time."""
        total, fastest = 0.0, 0.0
        for _ in range(MEASURED_PASSES):
            seconds = generation.measure_pass(row_count, Sampler())
            fastest = min(seconds, fastest or seconds)
            if (total := total + seconds) > MAX_SECONDS_PER_WIDTH:
                break
        _curve_of_bucket(self.pass_curves, bucket_of(len(generation.tokens)), Curve()).set_point(row_count, fastest)

    def save(self) -> None:
        """Store the costs for the next start. If the disk refuses, the next start calibrates again."""
        if self.path is None or not self.pass_curves:
            return
        content = {
            "identity": dict(self.identity),  # for people: the name of the file is a hash
            "passes": {bucket: curve.points for bucket, curve in self.pass_curves.items()},
            "drafts": {
                name: {bucket: curve.points for bucket, curve in curves.items()}
                for name, curves in self.draft_curves.items()
            },
        }
        try:
            write_atomically(self.path, json.dumps(content))
        except OSError:
            return


def load_costs(identity: Mapping[str, str], folder: Path | None = None) -> Costs:
    """Load the stored costs of this model on this machine; empty costs without a valid file."""
    text = json.dumps(dict(identity), sort_keys=True)
    path = (folder or cache_folder()) / "costs" / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"
    costs = Costs(path=path, identity=identity)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        passes = stored_points(content["passes"])
        drafts = {name: stored_points(curves) for name, curves in content["drafts"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return costs
    costs.pass_curves = {bucket: StoredCurve(points) for bucket, points in passes.items()}
    costs.draft_curves = {
        name: {bucket: Curve(points, 1, DriftDetector()) for bucket, points in curves.items()}
        for name, curves in drafts.items()
    }
    return costs


def nearest_curve(curves: Mapping[int, Curve], bucket: int) -> Curve | None:
    if (curve := curves.get(bucket)) is not None or not curves:
        return curve
    return curves[min(curves, key=lambda other: abs(other - bucket))]


def _curve_of_bucket(curves: dict[int, Curve], bucket: int, new_curve: Curve) -> Curve:
    """The curve of this bucket; a missing one starts as a copy of the nearest."""
    if bucket not in curves:
        nearest = nearest_curve(curves, bucket)
        curves[bucket] = new_curve if nearest is None else nearest.copy()
    return curves[bucket]
