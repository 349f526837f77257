"""A sweep as numbers and words: the table, CSV, JSON, and what is worth asking on each kind of prompt. No torch."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import product
from statistics import median
from typing import Any

from specchat.bench.latency import quantile
from specchat.bench.markdown_table import markdown_table
from specchat.bench.predicted_speedup import mean_expected_tokens, predicted_speedup
from specchat.bench.sweep_cells import CHOOSER, PLAIN, Combination, Grid, SweepSample
from specchat.profile import REQUEST_KINDS

SCHEMA_VERSION = 1  # of the JSON; changes when a key changes its meaning
MAX_DEPTH_COLUMNS = 8  # guesses whose acceptance stands in a column
SHOWN_DEPTHS = 4
MIN_USEFUL_SPEEDUP = 1.02  # times plain; less is not worth asking


@dataclass(frozen=True)
class CombinationResult:
    """All answers of one combination together."""

    combination: Combination
    samples: tuple[SweepSample, ...]

    @property
    def tokens_per_second(self) -> float:
        """Of decoding, the prompt apart."""
        return self._sum("tokens") / max(self._sum("seconds"), 1e-9)

    @property
    def median_speedup(self) -> float:
        """The middle answer's ratio to the plain answer beside it."""
        return median(sample.speedup for sample in self.samples)

    @property
    def speedup_range(self) -> tuple[float, float]:
        """The lowest and the highest ratio."""
        ratios = [sample.speedup for sample in self.samples]
        return min(ratios), max(ratios)

    @property
    def conservative_speedup(self) -> float:
        """Times plain by the middle answer or by all together, whichever is less: one lucky answer is no reason."""
        whole = self._plain_seconds_per_token * self._sum("tokens") / max(self._sum("seconds"), 1e-9)
        return min(self.median_speedup, whole)

    @property
    def is_useful(self) -> bool:
        """Whether it is worth asking."""
        return self.conservative_speedup >= MIN_USEFUL_SPEEDUP

    @property
    def conditional_acceptance(self) -> float | None:
        """a: how often a guess held when the one before it did; None when nobody guessed."""
        held = self._counts("kept").total()
        judged = held + self._sum("fallen")
        return held / judged if judged else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted guesses by verified ones, those of wide trees that could not all hold included."""
        drafted = self._sum("drafted")
        return self._sum("accepted") / drafted if drafted else None

    @property
    def tokens_per_step(self) -> float:
        """1 means that guessing brought nothing."""
        return self._sum("tokens") / max(self._sum("passes"), 1)

    @property
    def relative_pass_cost(self) -> float:
        """c: what a pass with its guesses cost, in plain passes."""
        return self._sum("verify_seconds") / max(self._sum("passes"), 1) / self._plain_seconds_per_token

    @property
    def cost_per_draft_token(self) -> float:
        """r: what one more guess in a chain cost to make, in plain passes."""
        depths = self._counts("depths")
        guesses = sum(depth * count for depth, count in depths.items())
        return self._sum("draft_seconds") / guesses / self._plain_seconds_per_token if guesses else 0.0

    @property
    def predicted_tokens_per_step(self) -> float:
        """tau by a alone."""
        acceptance = self.conditional_acceptance
        return 1.0 if acceptance is None else mean_expected_tokens(acceptance, self._counts("depths"))

    @property
    def predicted_speedup(self) -> float:
        """The speed that follows from a, c and r."""
        drafting = self._sum("draft_seconds") / max(self._sum("passes"), 1) / self._plain_seconds_per_token
        return predicted_speedup(self.predicted_tokens_per_step, self.relative_pass_cost, drafting)

    @property
    def identical_answers(self) -> int:
        """Answers that are equal to those of plain decoding."""
        return sum(sample.is_same_text for sample in self.samples)

    def acceptance_at_depth(self, depth: int) -> float | None:
        """How often a guess at this depth held, by all passes that made one."""
        depths, kept = self._counts("depths"), self._counts("kept")
        tried = sum(count for each, count in depths.items() if each >= depth)
        return kept[depth] / tried if tried else None

    def text_interval(self, fraction: float) -> float:
        """Seconds between texts that so large a share does not exceed."""
        return quantile([gap for sample in self.samples for gap in sample.text_intervals], fraction)

    @property
    def median_ttft_seconds(self) -> float:
        """Seconds until the first text, of the middle answer."""
        return median(sample.ttft_seconds for sample in self.samples)

    @property
    def median_request_seconds(self) -> float:
        """Seconds of a request, of the middle answer."""
        return median(sample.request_seconds for sample in self.samples)

    @property
    def _plain_seconds_per_token(self) -> float:
        """A plain pass makes one token."""
        return max(self._sum("plain_seconds") / max(self._sum("plain_tokens"), 1), 1e-9)

    def _sum(self, name: str) -> float:
        return sum(getattr(sample, name) for sample in self.samples)

    def _counts(self, name: str) -> Counter[int]:
        counted = Counter[int]()
        for sample in self.samples:
            counted.update(getattr(sample, name))
        return counted


def group_samples(samples: Iterable[SweepSample], grid: Grid) -> list[CombinationResult]:
    """Samples by their combination, in the order of the grid: what was measured in which order makes no difference."""
    grouped: dict[Combination, list[SweepSample]] = {}
    for sample in samples:
        grouped.setdefault(sample.combination, []).append(sample)
    kinds = {cell.kind for cell in grouped}
    places = product((kind for kind in REQUEST_KINDS if kind in kinds), sorted(grid.temperatures))
    wanted = [cell for kind, temperature in places for cell in grid.combinations(kind, temperature)]
    return [
        CombinationResult(cell, tuple(sorted(grouped[cell], key=lambda sample: sample.prompt_hash)))
        for cell in wanted
        if cell in grouped
    ]


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


# Every column of CSV and JSON.
COLUMNS: Mapping[str, Callable[[CombinationResult], Any]] = {
    "kind": lambda row: row.combination.kind,
    "temperature": lambda row: row.combination.temperature,
    "drafter": lambda row: row.combination.drafter,
    "budget": lambda row: row.combination.budget,
    "width": lambda row: row.combination.width,
    "answers": lambda row: len(row.samples),
    "tokens_per_second": lambda row: _rounded(row.tokens_per_second, 2),
    "times_plain": lambda row: _rounded(row.median_speedup),
    "times_plain_lowest": lambda row: _rounded(row.speedup_range[0]),
    "times_plain_highest": lambda row: _rounded(row.speedup_range[1]),
    "predicted_times_plain": lambda row: _rounded(row.predicted_speedup),
    "tokens_per_pass": lambda row: _rounded(row.tokens_per_step),
    "predicted_tokens_per_pass": lambda row: _rounded(row.predicted_tokens_per_step),
    "acceptance": lambda row: _rounded(row.conditional_acceptance),
    "accepted_share": lambda row: _rounded(row.acceptance_rate),
    "pass_cost": lambda row: _rounded(row.relative_pass_cost),
    "guess_cost": lambda row: _rounded(row.cost_per_draft_token),
    **{
        f"accepted_at_{depth}": lambda row, depth=depth: _rounded(row.acceptance_at_depth(depth))
        for depth in range(1, MAX_DEPTH_COLUMNS + 1)
    },
    "first_text_seconds": lambda row: _rounded(row.median_ttft_seconds, 6),
    "between_texts_p50_seconds": lambda row: _rounded(row.text_interval(0.50), 6),
    "between_texts_p95_seconds": lambda row: _rounded(row.text_interval(0.95), 6),
    "between_texts_p99_seconds": lambda row: _rounded(row.text_interval(0.99), 6),
    "request_seconds": lambda row: _rounded(row.median_request_seconds, 6),
    "same_text": lambda row: row.identical_answers,
}


def as_rows(rows: Sequence[CombinationResult]) -> list[dict[str, Any]]:
    """Each combination as plain values."""
    return [{name: value(row) for name, value in COLUMNS.items()} for row in rows]


def as_csv(rows: Sequence[CombinationResult]) -> str:
    """One line for each combination; what there is none of is empty."""
    text = StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(as_rows(rows))
    return text.getvalue()


def as_json(rows: Sequence[CombinationResult], metadata: Mapping[str, Any], skipped: Mapping[str, str]) -> str:
    """Everything: what was measured on what, who could not run and why, and what follows."""
    whole = {
        "schema": SCHEMA_VERSION, **metadata, "skipped": dict(skipped), "recommended": recommendations(rows), "cells": as_rows(rows),
    }  # fmt: skip
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def as_table(rows: Sequence[CombinationResult]) -> str:
    """Markdown for people: the columns that are looked at first."""
    head = ["kind", "T", "who", "tokens/s", "x plain", "lowest to highest", "predicted", "tokens a pass", "predicted"]
    head += ["a", *(f"guess {depth}" for depth in range(1, SHOWN_DEPTHS + 1))]
    head += ["first text ms", "p50", "p95", "p99", "request s", "same text"]
    return markdown_table(head, map(_cells, rows))


def _cells(row: CombinationResult) -> list[str]:
    low, high = row.speedup_range
    shares = [row.conditional_acceptance, *(row.acceptance_at_depth(depth) for depth in range(1, SHOWN_DEPTHS + 1))]
    return [
        row.combination.kind,
        f"{row.combination.temperature:g}",
        row.combination.name,
        f"{row.tokens_per_second:.0f}",
        f"{row.median_speedup:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{row.predicted_speedup:.2f}",
        f"{row.tokens_per_step:.2f}",
        f"{row.predicted_tokens_per_step:.2f}",
        *("" if share is None else f"{share:.0%}" for share in shares),
        *(
            f"{1000 * each:.0f}"
            for each in (
                row.median_ttft_seconds,
                row.text_interval(0.5),
                row.text_interval(0.95),
                row.text_interval(0.99),
            )
        ),
        f"{row.median_request_seconds:.2f}",
        f"{row.identical_answers} of {len(row.samples)}",
    ]


def recommendations(rows: Sequence[CombinationResult]) -> dict[str, str]:
    """What is worth asking on each kind, in words; the chooser is no choice, but says what it made of it."""
    said = dict[str, str]()
    for kind, temperature in dict.fromkeys((row.combination.kind, row.combination.temperature) for row in rows):
        here = [row for row in rows if (row.combination.kind, row.combination.temperature) == (kind, temperature)]
        said[f"{kind} T={temperature:g}"] = _recommendation_text(here)
    return said


def best_by_drafter(rows: Sequence[CombinationResult]) -> list[CombinationResult]:
    """The best combination of everybody who can be asked, the best of all first."""
    best: dict[str, CombinationResult] = {}
    for row in sorted(rows, key=lambda row: -row.conservative_speedup):
        if row.combination.drafter not in (PLAIN, CHOOSER):
            best.setdefault(row.combination.drafter, row)
    return list(best.values())


def _recommendation_text(rows: Sequence[CombinationResult]) -> str:
    ranked = best_by_drafter(rows)
    paying = [row for row in ranked if row.is_useful]
    chosen = [row for row in rows if row.combination.drafter == CHOOSER]
    auto = f"; left to itself, auto makes {max(row.median_speedup for row in chosen):.2f}" if chosen else ""
    if not paying:
        return f"nobody pays here: plain decoding{_mention_text(ranked[:1], 'the best guesser, ')}{auto}"
    best, *others = paying
    low, high = best.speedup_range
    losing = [row.combination.drafter for row in ranked if not row.is_useful]
    loss = f"; not worth asking: {', '.join(losing)}" if losing else ""
    first = f"{best.combination.name}, {best.median_speedup:.2f} times plain ({low:.2f} to {high:.2f})"
    return f"{first}{_mention_text(others[:1], 'then ')}{loss}{auto}"


def _mention_text(rows: Sequence[CombinationResult], how: str) -> str:
    return "".join(f"; {how}{row.combination.name} with {row.median_speedup:.2f}" for row in rows)
