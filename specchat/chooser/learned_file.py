"""The file of what answers have taught about one model on one machine: seconds of passes and drafts, accepted drafts.

A new process starts with it. It holds numbers, names of drafters and kinds of requests; nothing of a text.
"""

import json
import math
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from specchat.chooser.acceptance import CountsKey, RankCounts
from specchat.chooser.costs import Costs
from specchat.chooser.curve import PROPORTIONAL, Curve, PassCurve, stored_points
from specchat.chooser.state import ChooserState
from specchat.paths import remember, remembered_file

MAX_BYTES = 2**20
MAX_KEYS, MAX_RANKS = 64, 64  # of stored counts
MAX_STORED_DRAFTS, MAX_EARLIER_DRAFTS = 64.0, 4.0  # that stored counts count for in the file, and in a new process
HALF_LIFE_DAYS = 30.0  # after which they count half
SECONDS_OF_DAY = 86400.0
INVALID = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class StoredCounts:
    counts: RankCounts
    day: int  # since 1970

    def weighted(self, today: int) -> RankCounts:
        """What they count for in a new process: the less the older they are. A day to come is a jump of a clock."""
        drafts = self.counts.trials[0] * 0.5 ** (max(today - self.day, 0) / HALF_LIFE_DAYS)
        return self.counts.scaled(min(drafts, MAX_EARLIER_DRAFTS) / self.counts.trials[0])


@dataclass
class LearnedFile:
    path: Path
    identity: Mapping[str, str]  # of the models and the machine
    fault: str = ""  # why the file, or a part of it, was not used
    _stored: dict[CountsKey, StoredCounts] = field(default_factory=dict[CountsKey, StoredCounts])

    def load(self) -> tuple[Costs, ChooserState]:
        """Empty ones without a valid file."""
        costs, today = Costs(), _today()
        try:
            content = self._read()
            costs = _costs_of(content)
            self._stored = dict(_stored_counts(content.get("acceptance", [])))
        except FileNotFoundError:
            pass
        except OSError as error:
            self.fault = f"{self.path}: {error.strerror}; what was learned earlier is not used"
        except INVALID as error:
            kept = "measured seconds are used, acceptance is not" if costs.pass_curves else "it is not used"
            self.fault = f"{self.path}: {error or type(error).__name__}; {kept}"[:300]
        return costs, ChooserState({key: each.weighted(today) for key, each in self._stored.items()})

    def save(self, costs: Costs, state: ChooserState) -> None:
        """Store both for the next start. If the disk refuses, the next start measures again."""
        if not costs.pass_curves:
            return
        today, stored = _today(), dict(self._stored)
        for key, own in state.learned_counts().items():
            counts = own + stored[key].counts if key in stored and state.believes(key) else own
            stored[key] = StoredCounts(counts.scaled(min(1.0, MAX_STORED_DRAFTS / counts.trials[0])), today)
        latest = sorted(stored.items(), key=lambda item: -item[1].day)[:MAX_KEYS]
        content = {
            "identity": dict(self.identity),
            "passes": {bucket: curve.points for bucket, curve in costs.pass_curves.items()},
            "drafts": {
                name: {bucket: curve.points for bucket, curve in curves.items()}
                for name, curves in costs.draft_curves.items()
            },
            "acceptance": [_row(key, each) for key, each in latest],
        }
        remember(self.path, content)

    def _read(self) -> dict[str, Any]:
        status = self.path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise ValueError(f"no regular file of at most {MAX_BYTES >> 20} MiB; remove it")
        content = json.loads(self.path.read_text(encoding="utf-8"))
        if content["identity"] != dict(self.identity):
            raise ValueError("of another machine or model")
        return content


def learned_file(identity: Mapping[str, str], folder: Path | None = None) -> LearnedFile:
    """The file of this model on this machine; its name is a hash."""
    return LearnedFile(remembered_file("costs", dict(identity), folder), identity)


def _costs_of(content: Mapping[str, Any]) -> Costs:
    passes = stored_points(content["passes"])
    drafts = {name: stored_points(curves) for name, curves in content["drafts"].items()}
    return Costs(
        {bucket: PassCurve(points, is_unconfirmed=True) for bucket, points in passes.items()},
        {
            name: {bucket: Curve(points, PROPORTIONAL, is_unconfirmed=True) for bucket, points in curves.items()}
            for name, curves in drafts.items()
        },
    )


def _row(key: CountsKey, stored: StoredCounts) -> dict[str, Any]:
    ranks = zip(stored.counts.trials, stored.counts.accepted, stored.counts.depths, strict=True)
    shown = [[round(number, 3) for number in rank] for rank in ranks][:MAX_RANKS]
    return {**key._asdict(), "day": stored.day, "ranks": shown}


def _stored_counts(rows: list[Mapping[str, Any]]) -> Iterator[tuple[CountsKey, StoredCounts]]:
    """ValueError and the like for rows that cannot be counts."""
    for row in rows[:MAX_KEYS]:
        ranks = [tuple(map(float, rank)) for rank in cast("list[list[float]]", row["ranks"])[:MAX_RANKS]]
        day, key = int(row["day"]), CountsKey(row["drafter"], row["task_kind"], row["is_stochastic"])
        if not ranks or day < 0 or not all(map(_is_possible, ranks)) or not ranks[0][0]:
            raise ValueError(f"no counts of draft tokens: {row}")
        yield key, StoredCounts(RankCounts(*map(list, zip(*ranks, strict=True))), day)


def _is_possible(rank: tuple[float, ...]) -> bool:
    trials, accepted, depth = rank
    return 0 <= accepted <= trials < math.inf and 1 <= depth < math.inf


def _today() -> int:
    return int(time.time() / SECONDS_OF_DAY)
