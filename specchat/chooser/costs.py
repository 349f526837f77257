"""What a pass over so many rows costs here, and what each drafter costs: measured, and never assumed for long.

Seconds by number of rows and by length of context, for one model on one machine. Every step teaches for nothing; a file
keeps it for the next start. Knows no drafter but by name, and no acceptance: `budget.py` brings the two together.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from specchat.chooser.curve import Curve, StoredCurve, proportional_curve
from specchat.chooser.drift import DriftDetector
from specchat.engine.cache import bucket_of
from specchat.engine.decode import Generation
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.paths import cache_folder

CALIBRATION_ROWS = (1, 4, 16)  # rows that are measured before the first answer
MEASURED_PASSES = 3
MAX_SECONDS_PER_WIDTH = 0.3  # a slow model is asked only once for each width
MAX_CALIBRATION_SECONDS = 2.0


@dataclass
class Costs:
    """Seconds of a pass by rows, and of each drafter by depth of its tree, both by context bucket."""

    pass_curves: dict[int, Curve] = field(default_factory=dict[int, Curve])
    draft_curves: dict[str, dict[int, Curve]] = field(default_factory=dict[str, dict[int, Curve]])
    path: Path | None = None  # where it is kept, if anywhere

    def plain_seconds(self, text_length: int) -> float | None:
        """Seconds of a plain pass over so long a text; None when nothing like it was seen."""
        curve = self.pass_curves.get(bucket_of(text_length))
        return None if curve is None else curve.seconds_at(1)

    def pass_seconds(self, text_length: int, max_rows: int) -> list[float] | None:
        """Seconds of a pass over 0, 1, ... `most` rows, by the nearest length that is known; None when none is."""
        curve = nearest_curve(self.pass_curves, bucket_of(text_length))
        return None if curve is None else curve.seconds_up_to(max_rows)

    def trusted_pass_seconds(self, text_length: int, max_rows: int) -> list[float] | None:
        """As `rows`, but no further than may be tried now: what a file says is believed step by step."""
        curve = nearest_curve(self.pass_curves, bucket_of(text_length))
        return None if curve is None else curve.trusted_seconds_up_to(max_rows)

    def draft_curve(self, name: str, text_length: int) -> Curve | None:
        """Seconds of this drafter by depth of the tree, by the nearest length that is known; None when none is."""
        return nearest_curve(self.draft_curves.get(name, {}), bucket_of(text_length))

    def is_unconfirmed(self, name: str, text_length: int) -> bool:
        """Whether only a file tells what this drafter costs; nothing of today has confirmed it."""
        curve = self.draft_curve(name, text_length)
        return curve is not None and curve.drift_detector.is_unconfirmed

    def learn_pass(self, text_length: int, rows: int, seconds: float) -> None:
        """A pass over so many rows took so long."""
        _curve_of_bucket(self.pass_curves, bucket_of(text_length), Curve()).learn(rows, seconds)

    def learn_draft(self, name: str, text_length: int, depth: int, seconds: float) -> None:
        """This drafter took so long for a tree of this depth."""
        _curve_of_bucket(self.draft_curves.setdefault(name, {}), bucket_of(text_length), proportional_curve()).learn(
            depth, seconds
        )

    def calibrate(self, generation: Generation) -> None:
        """Measure a few widths behind the text, and keep nothing of them in it. Nothing to do when some are known."""
        begun = perf_counter()
        if any(len(curve.points) > 1 for curve in self.pass_curves.values()):
            return
        for width in CALIBRATION_ROWS:
            if width <= generation.target.max_rows and perf_counter() - begun < MAX_CALIBRATION_SECONDS / 2:
                self._measure_pass(generation, width)

    def measure_plain_pass(self, generation: Generation) -> None:
        """Run a few plain passes behind the text, and keep none of them."""
        self._measure_pass(generation, 1)

    def _measure_pass(self, generation: Generation, row_count: int) -> None:
        """The quickest of a few passes: whatever else the machine does only adds."""
        tree, sampler, spent, quickest = DraftTree(generation.tokens[-1]), Sampler(), 0.0, 0.0
        tree.add_chain([generation.tokens[-1]] * (row_count - 1))
        for _ in range(MEASURED_PASSES):
            begun = perf_counter()
            output = generation.target.forward(tree, generation.cache)
            sampler.sample(output.logits, sampler.rows_of_tree(tree, len(generation.tokens)))
            seconds = perf_counter() - begun
            quickest = min(seconds, quickest or seconds)
            if (spent := spent + seconds) > MAX_SECONDS_PER_WIDTH:
                break
        _curve_of_bucket(self.pass_curves, bucket_of(len(generation.tokens)), Curve()).set_point(row_count, quickest)

    def save(self) -> None:
        """Keep it for the next start. A disk that refuses costs a calibration, not an answer."""
        if self.path is None or not self.pass_curves:
            return
        kept = {
            "passes": {bucket: curve.points for bucket, curve in self.pass_curves.items()},
            "drafts": {
                name: {bucket: curve.points for bucket, curve in curves.items()}
                for name, curves in self.draft_curves.items()
            },
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial = self.path.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps(kept), encoding="utf-8")
            partial.replace(self.path)
        except OSError:
            return


def load_costs(identity: Mapping[str, str], folder: Path | None = None) -> Costs:
    """What is known of this model on this machine; nothing when no file, or no sound one, is there."""
    spelled = json.dumps(dict(identity), sort_keys=True)
    path = (folder or cache_folder()) / "costs" / f"{hashlib.sha256(spelled.encode()).hexdigest()[:24]}.json"
    costs = Costs(path=path)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        passes, drafts = (
            _parse_points(kept["passes"]),
            {name: _parse_points(each) for name, each in kept["drafts"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return costs
    costs.pass_curves = {at: StoredCurve(points) for at, points in passes.items()}
    costs.draft_curves = {
        name: {at: Curve(points, 1, DriftDetector()) for at, points in by.items()} for name, by in drafts.items()
    }
    return costs


def nearest_curve(curves: Mapping[int, Curve], bucket: int) -> Curve | None:
    """The curve of this context bucket, or of the one next to it."""
    if (found := curves.get(bucket)) is not None or not curves:
        return found
    return curves[min(curves, key=lambda known: abs(known - bucket))]


def _curve_of_bucket(curves: dict[int, Curve], bucket: int, new_curve: Curve) -> Curve:
    """The curve of this bucket; a new one begins as its nearest neighbour."""
    if bucket not in curves:
        near = nearest_curve(curves, bucket)
        curves[bucket] = new_curve if near is None else near.copy()
    return curves[bucket]


def _parse_points(stored_curves: Mapping[str, Any]) -> dict[int, dict[int, float]]:
    """The points of curves from a file, by bucket; ValueError for what is no time."""
    curves = dict[int, dict[int, float]]()
    for bucket, points in stored_curves.items():
        seconds = {int(count): float(value) for count, value in cast("dict[str, Any]", points).items()}
        if not seconds or not all(0 < value < 3600 and count > 0 for count, value in seconds.items()):
            raise ValueError(f"no seconds: {points}")
        curves[int(bucket)] = seconds
    return curves
