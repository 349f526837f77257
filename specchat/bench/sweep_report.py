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
from specchat.bench.markdown_table import table
from specchat.bench.predicted_speedup import mean_tokens, speed
from specchat.bench.sweep_cells import CHOOSER, PLAIN, Cell, Grid, Sample
from specchat.profile import KINDS

SCHEMA = 1  # of the JSON; changes when a key changes its meaning
DEPTHS = 8  # guesses whose acceptance stands in a column
SHOWN_DEPTHS = 4
PAYS = 1.02  # times plain; less is not worth asking


@dataclass(frozen=True)
class Measured:
    """All answers of one combination together."""

    cell: Cell
    samples: tuple[Sample, ...]

    @property
    def tokens_per_second(self) -> float:
        """Of decoding, the prompt apart."""
        return self._sum("tokens") / max(self._sum("seconds"), 1e-9)

    @property
    def times_plain(self) -> float:
        """The middle answer's ratio to the plain answer beside it."""
        return median(sample.ratio for sample in self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest ratio."""
        ratios = [sample.ratio for sample in self.samples]
        return min(ratios), max(ratios)

    @property
    def worth(self) -> float:
        """Times plain by the middle answer or by all together, whichever is less: one lucky answer is no reason."""
        whole = self._plain_pass * self._sum("tokens") / max(self._sum("seconds"), 1e-9)
        return min(self.times_plain, whole)

    @property
    def pays(self) -> bool:
        """Whether it is worth asking."""
        return self.worth >= PAYS

    @property
    def acceptance(self) -> float | None:
        """a: how often a guess held when the one before it did; None when nobody guessed."""
        held = self._counts("kept").total()
        judged = held + self._sum("fallen")
        return held / judged if judged else None

    @property
    def accepted_share(self) -> float | None:
        """Accepted guesses by verified ones, those of wide trees that could not all hold included."""
        drafted = self._sum("drafted")
        return self._sum("accepted") / drafted if drafted else None

    @property
    def tokens_per_pass(self) -> float:
        """1 means that guessing brought nothing."""
        return self._sum("tokens") / max(self._sum("passes"), 1)

    @property
    def pass_cost(self) -> float:
        """c: what a pass with its guesses cost, in plain passes."""
        return self._sum("verify_seconds") / max(self._sum("passes"), 1) / self._plain_pass

    @property
    def guess_cost(self) -> float:
        """r: what one more guess in a chain cost to make, in plain passes."""
        depths = self._counts("depths")
        guesses = sum(depth * count for depth, count in depths.items())
        return self._sum("draft_seconds") / guesses / self._plain_pass if guesses else 0.0

    @property
    def predicted_tokens(self) -> float:
        """tau by a alone."""
        acceptance = self.acceptance
        return 1.0 if acceptance is None else mean_tokens(acceptance, self._counts("depths"))

    @property
    def predicted_times_plain(self) -> float:
        """The speed that follows from a, c and r."""
        drafting = self._sum("draft_seconds") / max(self._sum("passes"), 1) / self._plain_pass
        return speed(self.predicted_tokens, self.pass_cost, drafting)

    @property
    def same_text(self) -> int:
        """Answers that are equal to those of plain decoding."""
        return sum(sample.is_same_text for sample in self.samples)

    def accepted_at(self, depth: int) -> float | None:
        """How often a guess at this depth held, by all passes that made one."""
        depths, kept = self._counts("depths"), self._counts("kept")
        tried = sum(count for each, count in depths.items() if each >= depth)
        return kept[depth] / tried if tried else None

    def waiting(self, share: float) -> float:
        """Seconds between texts that so large a share does not exceed."""
        return quantile([gap for sample in self.samples for gap in sample.gaps], share)

    @property
    def first(self) -> float:
        """Seconds until the first text, of the middle answer."""
        return median(sample.first for sample in self.samples)

    @property
    def whole(self) -> float:
        """Seconds of a request, of the middle answer."""
        return median(sample.whole for sample in self.samples)

    @property
    def _plain_pass(self) -> float:
        """A plain pass makes one token."""
        return max(self._sum("plain_seconds") / max(self._sum("plain_tokens"), 1), 1e-9)

    def _sum(self, name: str) -> float:
        return sum(getattr(sample, name) for sample in self.samples)

    def _counts(self, name: str) -> Counter[int]:
        counted = Counter[int]()
        for sample in self.samples:
            counted.update(getattr(sample, name))
        return counted


def measured(samples: Iterable[Sample], grid: Grid) -> list[Measured]:
    """Samples by their combination, in the order of the grid: what was measured in which order makes no difference."""
    grouped: dict[Cell, list[Sample]] = {}
    for sample in samples:
        grouped.setdefault(sample.cell, []).append(sample)
    kinds = {cell.kind for cell in grouped}
    places = product((kind for kind in KINDS if kind in kinds), sorted(grid.temperatures))
    wanted = [cell for kind, temperature in places for cell in grid.cells(kind, temperature)]
    return [
        Measured(cell, tuple(sorted(grouped[cell], key=lambda sample: sample.prompt)))
        for cell in wanted
        if cell in grouped
    ]


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


# Every column of CSV and JSON.
COLUMNS: Mapping[str, Callable[[Measured], Any]] = {
    "kind": lambda row: row.cell.kind,
    "temperature": lambda row: row.cell.temperature,
    "drafter": lambda row: row.cell.drafter,
    "budget": lambda row: row.cell.budget,
    "width": lambda row: row.cell.width,
    "answers": lambda row: len(row.samples),
    "tokens_per_second": lambda row: _rounded(row.tokens_per_second, 2),
    "times_plain": lambda row: _rounded(row.times_plain),
    "times_plain_lowest": lambda row: _rounded(row.spread[0]),
    "times_plain_highest": lambda row: _rounded(row.spread[1]),
    "predicted_times_plain": lambda row: _rounded(row.predicted_times_plain),
    "tokens_per_pass": lambda row: _rounded(row.tokens_per_pass),
    "predicted_tokens_per_pass": lambda row: _rounded(row.predicted_tokens),
    "acceptance": lambda row: _rounded(row.acceptance),
    "accepted_share": lambda row: _rounded(row.accepted_share),
    "pass_cost": lambda row: _rounded(row.pass_cost),
    "guess_cost": lambda row: _rounded(row.guess_cost),
    **{
        f"accepted_at_{depth}": lambda row, depth=depth: _rounded(row.accepted_at(depth))
        for depth in range(1, DEPTHS + 1)
    },
    "first_text_seconds": lambda row: _rounded(row.first, 6),
    "between_texts_p50_seconds": lambda row: _rounded(row.waiting(0.50), 6),
    "between_texts_p95_seconds": lambda row: _rounded(row.waiting(0.95), 6),
    "between_texts_p99_seconds": lambda row: _rounded(row.waiting(0.99), 6),
    "request_seconds": lambda row: _rounded(row.whole, 6),
    "same_text": lambda row: row.same_text,
}


def as_rows(rows: Sequence[Measured]) -> list[dict[str, Any]]:
    """Each combination as plain values."""
    return [{name: value(row) for name, value in COLUMNS.items()} for row in rows]


def as_csv(rows: Sequence[Measured]) -> str:
    """One line for each combination; what there is none of is empty."""
    text = StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(as_rows(rows))
    return text.getvalue()


def as_json(rows: Sequence[Measured], about: Mapping[str, Any], skipped: Mapping[str, str]) -> str:
    """Everything: what was measured on what, who could not run and why, and what follows."""
    whole = {
        "schema": SCHEMA, **about, "skipped": dict(skipped), "recommended": recommended(rows), "cells": as_rows(rows),
    }  # fmt: skip
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def as_table(rows: Sequence[Measured]) -> str:
    """Markdown for people: the columns that are looked at first."""
    head = ["kind", "T", "who", "tokens/s", "x plain", "lowest to highest", "predicted", "tokens a pass", "predicted"]
    head += ["a", *(f"guess {depth}" for depth in range(1, SHOWN_DEPTHS + 1))]
    head += ["first text ms", "p50", "p95", "p99", "request s", "same text"]
    return table(head, map(_cells, rows))


def _cells(row: Measured) -> list[str]:
    low, high = row.spread
    shares = [row.acceptance, *(row.accepted_at(depth) for depth in range(1, SHOWN_DEPTHS + 1))]
    return [
        row.cell.kind,
        f"{row.cell.temperature:g}",
        row.cell.name,
        f"{row.tokens_per_second:.0f}",
        f"{row.times_plain:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{row.predicted_times_plain:.2f}",
        f"{row.tokens_per_pass:.2f}",
        f"{row.predicted_tokens:.2f}",
        *("" if share is None else f"{share:.0%}" for share in shares),
        *(f"{1000 * each:.0f}" for each in (row.first, row.waiting(0.5), row.waiting(0.95), row.waiting(0.99))),
        f"{row.whole:.2f}",
        f"{row.same_text} of {len(row.samples)}",
    ]


def recommended(rows: Sequence[Measured]) -> dict[str, str]:
    """What is worth asking on each kind, in words; the chooser is no choice, but says what it made of it."""
    said = dict[str, str]()
    for kind, temperature in dict.fromkeys((row.cell.kind, row.cell.temperature) for row in rows):
        here = [row for row in rows if (row.cell.kind, row.cell.temperature) == (kind, temperature)]
        said[f"{kind} T={temperature:g}"] = _in_words(here)
    return said


def best_of_each(rows: Sequence[Measured]) -> list[Measured]:
    """The best combination of everybody who can be asked, the best of all first."""
    best: dict[str, Measured] = {}
    for row in sorted(rows, key=lambda row: -row.worth):
        if row.cell.drafter not in (PLAIN, CHOOSER):
            best.setdefault(row.cell.drafter, row)
    return list(best.values())


def _in_words(rows: Sequence[Measured]) -> str:
    ranked = best_of_each(rows)
    paying = [row for row in ranked if row.pays]
    chosen = [row for row in rows if row.cell.drafter == CHOOSER]
    auto = f"; left to itself, auto makes {max(row.times_plain for row in chosen):.2f}" if chosen else ""
    if not paying:
        return f"nobody pays here: plain decoding{_mention(ranked[:1], 'the best guesser, ')}{auto}"
    best, *others = paying
    low, high = best.spread
    losing = [row.cell.drafter for row in ranked if not row.pays]
    loss = f"; not worth asking: {', '.join(losing)}" if losing else ""
    first = f"{best.cell.name}, {best.times_plain:.2f} times plain ({low:.2f} to {high:.2f})"
    return f"{first}{_mention(others[:1], 'then ')}{loss}{auto}"


def _mention(rows: Sequence[Measured], how: str) -> str:
    return "".join(f"; {how}{row.cell.name} with {row.times_plain:.2f}" for row in rows)
