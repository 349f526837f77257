"""What a pass over so many rows costs here, and what each drafter costs: measured, and never assumed for long.

Seconds by number of rows and by length of context, for one model on one machine. Every step teaches for nothing; a file
keeps it for the next start. Knows no drafter but by name, and no acceptance: `budget.py` brings the two together.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from specchat.engine.cache import bucket_of
from specchat.engine.decode import Writing
from specchat.engine.tree import DraftTree
from specchat.engine.verify import Sampler

WIDTHS = (1, 4, 16)  # rows that are measured before the first answer
ANCHORS = (1, 2, 4, 8, 16, 32, 64, 128)  # counts at which a curve may bend
MEASURED_PASSES = 3
MEASURING_SECONDS = 0.3  # a slow model is asked only once for each width
CALIBRATING_SECONDS = 2.0
LEARNING_RATE = 0.2
LARGEST_CHANGE = 0.25  # of one observation: a stall is no news
SHARED_CHANGE = 0.5  # of a change holds for other widths too: a machine that slows down slows all
UNKNOWN_SLOPE = 0.1  # of a plain pass, for each more row, while only plain passes were seen
FIRST_OBSERVATIONS = 8
CACHE_VARIABLE = "SPECCHAT_CACHE"


@dataclass
class Curve:
    """Seconds by a count: straight between the points that were measured, and never falling.

    Where only one point is known, `slope` of it is added for each more; a slope of 1 from one is a proportion.
    """

    points: dict[int, float] = field(default_factory=dict[int, float])
    slope: float = UNKNOWN_SLOPE
    fresh: int = 0  # observations that still may be slow for being the first: a quicker one is believed at once
    _drawn: list[float] = field(default_factory=list[float], repr=False, compare=False)  # as far as was asked for

    def up_to(self, most: int) -> list[float] | None:
        """Seconds for 0, 1, ... `most`; None when nothing was measured."""
        if most < len(self._drawn):
            return self._drawn[: most + 1]
        known = sorted(self.points.items())
        if not known:
            return None
        seconds, place, highest = list[float](), 0, 0.0
        for count in range(most + 1):
            while place + 1 < len(known) and known[place + 1][0] <= count:
                place += 1
            highest = max(highest, self._between(known, place, count))
            seconds.append(highest)
        self._drawn = seconds
        return list(seconds)

    def put(self, count: int, seconds: float) -> None:
        """A point that was measured for itself."""
        self.points[count] = seconds
        self._drawn = []

    def at(self, count: int) -> float | None:
        """Seconds for so many; None when nothing was measured."""
        if (exact := self.points.get(count)) is not None:
            return exact
        seconds = self.up_to(count)
        return None if seconds is None else seconds[count]

    def learn(self, count: int, seconds: float) -> None:
        """One more observation. It moves its neighbours by their nearness, and all others by half as much."""
        expected = self.at(count)
        self._drawn = []
        if expected is None or expected <= 0:
            self.points[count] = seconds
            return
        if self.fresh:
            self.fresh -= 1
            if seconds < expected:
                self.points = {point: known * seconds / expected for point, known in self.points.items()}
                return
        change = LEARNING_RATE * max(-LARGEST_CHANGE, min(seconds / expected - 1, LARGEST_CHANGE))
        if abs(change) < 1e-9:
            return
        below, above = _around(count)
        for anchor in (below, above):
            if anchor not in self.points:
                self.points[anchor] = self.at(anchor) or expected
        nearness = {below: 1.0} if below == above else _weights(below, count, above)
        for point in self.points:
            self.points[point] *= 1 + change * max(nearness.get(point, 0.0), SHARED_CHANGE)
        self._drawn = []

    def _between(self, known: list[tuple[int, float]], place: int, count: int) -> float:
        if len(known) == 1:
            at, seconds = known[0]
            return max(seconds * (1 + self.slope * (count - at) / (at if self.slope == 1 else 1)), 0.0)
        (low, less), (high, more) = known[place : place + 2] if place + 1 < len(known) else known[-2:]
        return max(less + max(more - less, 0.0) * (count - low) / (high - low), 0.0)


def proportional() -> Curve:
    """The curve of a drafter: a tree twice as deep costs twice as much, until something else was measured."""
    return Curve(slope=1, fresh=FIRST_OBSERVATIONS)


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

    def draft(self, name: str, length: int) -> Curve | None:
        """Seconds of this drafter by depth of the tree, by the nearest length that is known; None when none is."""
        return nearest(self.drafts.get(name, {}), bucket_of(length))

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
        passes, drafts = _curves(kept["passes"]), {name: _curves(each) for name, each in kept["drafts"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return costs
    costs.passes = passes
    costs.drafts = {name: {at: Curve(each.points, 1) for at, each in by.items()} for name, by in drafts.items()}
    return costs


def cache_folder() -> Path:
    """Where measurements are kept: where SPECCHAT_CACHE says, beside a test's host, or in the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE) or os.environ.get("SPECCHAT_RUNTIME"):
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("specchat", appauthor=False)


def nearest(curves: Mapping[int, Curve], bucket: int) -> Curve | None:
    """The curve of this context bucket, or of the one next to it."""
    if (found := curves.get(bucket)) is not None or not curves:
        return found
    return curves[min(curves, key=lambda known: abs(known - bucket))]


def _own(curves: dict[int, Curve], bucket: int, empty: Curve) -> Curve:
    """The curve of this bucket; a new one begins as its nearest neighbour."""
    if bucket not in curves:
        near = nearest(curves, bucket)
        curves[bucket] = empty if near is None else Curve(dict(near.points), near.slope)
    return curves[bucket]


def _curves(kept: Mapping[str, Any]) -> dict[int, Curve]:
    """Curves from a file; ValueError for what is no time."""
    curves = dict[int, Curve]()
    for bucket, points in kept.items():
        seconds = {int(count): float(value) for count, value in cast("dict[str, Any]", points).items()}
        if not seconds or not all(0 < value < 3600 and count > 0 for count, value in seconds.items()):
            raise ValueError(f"no seconds: {points}")
        curves[int(bucket)] = Curve(seconds)
    return curves


def _around(count: int) -> tuple[int, int]:
    """The anchors below and above a count."""
    place = bisect_left(ANCHORS, count)
    if place == len(ANCHORS):
        return ANCHORS[-1], ANCHORS[-1]
    return (count, count) if ANCHORS[place] == count else (ANCHORS[max(place - 1, 0)], ANCHORS[place])


def _weights(below: int, count: int, above: int) -> dict[int, float]:
    share = (count - below) / (above - below)
    return {below: 1 - share, above: share}
