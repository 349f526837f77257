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

from specchat.chooser.curve import Curve, Kept, proportional
from specchat.chooser.drift import Doubt
from specchat.engine.cache import bucket_of
from specchat.engine.decode import Writing
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.paths import cache_folder

WIDTHS = (1, 4, 16)  # rows that are measured before the first answer
MEASURED_PASSES = 3
MEASURING_SECONDS = 0.3  # a slow model is asked only once for each width
CALIBRATING_SECONDS = 2.0


@dataclass
class Costs:
    """Seconds of a pass by rows, and of each drafter by depth of its tree, both by context bucket."""

    passes: dict[int, Curve] = field(default_factory=dict[int, Curve])
    drafts: dict[str, dict[int, Curve]] = field(default_factory=dict[str, dict[int, Curve]])
    path: Path | None = None  # where it is kept, if anywhere

    def at(self, length: int) -> float | None:
        """Seconds of a plain pass over so long a text; None when nothing like it was seen."""
        curve = self.passes.get(bucket_of(length))
        return None if curve is None else curve.at(1)

    def rows(self, length: int, most: int) -> list[float] | None:
        """Seconds of a pass over 0, 1, ... `most` rows, by the nearest length that is known; None when none is."""
        curve = nearest(self.passes, bucket_of(length))
        return None if curve is None else curve.up_to(most)

    def believed(self, length: int, most: int) -> list[float] | None:
        """As `rows`, but no further than may be tried now: what a file says is believed step by step."""
        curve = nearest(self.passes, bucket_of(length))
        return None if curve is None else curve.believed(most)

    def draft(self, name: str, length: int) -> Curve | None:
        """Seconds of this drafter by depth of the tree, by the nearest length that is known; None when none is."""
        return nearest(self.drafts.get(name, {}), bucket_of(length))

    def is_hearsay(self, name: str, length: int) -> bool:
        """Whether only a file tells what this drafter costs; nothing of today has confirmed it."""
        curve = self.draft(name, length)
        return curve is not None and curve.doubt.is_open

    def learn_pass(self, length: int, rows: int, seconds: float) -> None:
        """A pass over so many rows took so long."""
        _own(self.passes, bucket_of(length), Curve()).learn(rows, seconds)

    def learn_draft(self, name: str, length: int, depth: int, seconds: float) -> None:
        """This drafter took so long for a tree of this depth."""
        _own(self.drafts.setdefault(name, {}), bucket_of(length), proportional()).learn(depth, seconds)

    def calibrate(self, writing: Writing) -> None:
        """Measure a few widths behind the text, and keep nothing of them in it. Nothing to do when some are known."""
        begun = perf_counter()
        if any(len(curve.points) > 1 for curve in self.passes.values()):
            return
        for width in WIDTHS:
            if width <= writing.target.widest and perf_counter() - begun < CALIBRATING_SECONDS / 2:
                self._measure(writing, width)

    def measure(self, writing: Writing) -> None:
        """Run a few plain passes behind the text, and keep none of them."""
        self._measure(writing, 1)

    def _measure(self, writing: Writing, width: int) -> None:
        """The quickest of a few passes: whatever else the machine does only adds."""
        tree, sampler, spent, quickest = DraftTree(writing.tokens[-1]), Sampler(), 0.0, 0.0
        tree.add_chain([writing.tokens[-1]] * (width - 1))
        for _ in range(MEASURED_PASSES):
            begun = perf_counter()
            output = writing.target.forward(tree, writing.cache)
            sampler.pick(output.logits, sampler.rows(tree, len(writing.tokens)))
            seconds = perf_counter() - begun
            quickest = min(seconds, quickest or seconds)
            if (spent := spent + seconds) > MEASURING_SECONDS:
                break
        _own(self.passes, bucket_of(len(writing.tokens)), Curve()).put(width, quickest)

    def save(self) -> None:
        """Keep it for the next start. A disk that refuses costs a calibration, not an answer."""
        if self.path is None or not self.passes:
            return
        kept = {
            "passes": {bucket: curve.points for bucket, curve in self.passes.items()},
            "drafts": {
                name: {bucket: curve.points for bucket, curve in curves.items()} for name, curves in self.drafts.items()
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
        passes, drafts = _points(kept["passes"]), {name: _points(each) for name, each in kept["drafts"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return costs
    costs.passes = {at: Kept(points) for at, points in passes.items()}
    costs.drafts = {name: {at: Curve(points, 1, Doubt()) for at, points in by.items()} for name, by in drafts.items()}
    return costs


def nearest(curves: Mapping[int, Curve], bucket: int) -> Curve | None:
    """The curve of this context bucket, or of the one next to it."""
    if (found := curves.get(bucket)) is not None or not curves:
        return found
    return curves[min(curves, key=lambda known: abs(known - bucket))]


def _own(curves: dict[int, Curve], bucket: int, empty: Curve) -> Curve:
    """The curve of this bucket; a new one begins as its nearest neighbour."""
    if bucket not in curves:
        near = nearest(curves, bucket)
        curves[bucket] = empty if near is None else near.twin()
    return curves[bucket]


def _points(kept: Mapping[str, Any]) -> dict[int, dict[int, float]]:
    """The points of curves from a file, by bucket; ValueError for what is no time."""
    curves = dict[int, dict[int, float]]()
    for bucket, points in kept.items():
        seconds = {int(count): float(value) for count, value in cast("dict[str, Any]", points).items()}
        if not seconds or not all(0 < value < 3600 and count > 0 for count, value in seconds.items()):
            raise ValueError(f"no seconds: {points}")
        curves[int(bucket)] = seconds
    return curves
