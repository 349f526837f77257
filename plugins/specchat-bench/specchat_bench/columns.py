"""Samples become rows of numbers: the table of a bench, its CSV and JSON, and recommendations. No torch."""

import csv
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import product
from statistics import median
from typing import Any

from specchat.profile.keys import REQUEST_KINDS
from specchat_bench.combinations import AUTO, PLAIN, Combination, Grid, Sample
from specchat_bench.latency import quantile
from specchat_bench.predicted_speedup import mean_expected_tokens, predicted_speedup

SCHEMA_VERSION = 2  # of the JSON; changes when a key changes its meaning
MAX_DEPTH_COLUMNS = 8
MIN_USEFUL_SPEEDUP = 1.02  # below this a drafter is not worth running
BOOTSTRAP_RESAMPLES, CONFIDENCE, BOOTSTRAP_SEED = 2000, 0.95, 7


@dataclass(frozen=True)
class CombinationResult:
    combination: Combination
    samples: tuple[Sample, ...]

    @property
    def tokens_per_second(self) -> float:
        """Of decoding, without the prefill."""
        return self._sum("tokens") / max(self._sum("decode_seconds"), 1e-9)

    @property
    def median_speedup(self) -> float:
        """The median of the ratios to the plain answers beside them."""
        return median(sample.speedup for sample in self.samples)

    @property
    def speedup_range(self) -> tuple[float, float]:
        ratios = [sample.speedup for sample in self.samples]
        return min(ratios), max(ratios)

    @property
    def speedup_interval(self) -> tuple[float, float]:
        """A 95 % bootstrap interval of the median."""
        ratios, rng = [sample.speedup for sample in self.samples], random.Random(BOOTSTRAP_SEED)
        medians = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(BOOTSTRAP_RESAMPLES))
        tail = int(BOOTSTRAP_RESAMPLES * (1 - CONFIDENCE) / 2)
        return medians[tail], medians[-tail - 1]

    @property
    def conservative_speedup(self) -> float:
        """The smaller of the median ratio and the ratio of all answers together: one lucky answer decides nothing."""
        total = self._plain_seconds_per_token * self._sum("tokens") / max(self._sum("decode_seconds"), 1e-9)
        return min(self.median_speedup, total)

    @property
    def is_useful(self) -> bool:
        return self.conservative_speedup >= MIN_USEFUL_SPEEDUP

    @property
    def acceptance_rate(self) -> float | None:
        """a: how often a draft token is accepted when its parent is; None when nothing was drafted."""
        accepted = self._counts("accepted_by_depth").total()
        decided = accepted + self._sum("passes_with_rejection")
        return accepted / decided if decided else None

    @property
    def node_share(self) -> float | None:
        """Accepted draft tokens by all nodes of the trees, siblings included."""
        draft_tokens = self._sum("draft_tokens")
        return self._sum("accepted_tokens") / draft_tokens if draft_tokens else None

    @property
    def tokens_per_step(self) -> float:
        """Mean accepted length: tokens by passes of the target. 1 means that drafting brought nothing."""
        return self._sum("tokens") / max(self._sum("target_passes"), 1)

    @property
    def relative_pass_cost(self) -> float:
        """c: seconds of a pass over a draft tree by seconds of a plain pass."""
        return self._sum("verify_seconds") / max(self._sum("target_passes"), 1) / self._plain_seconds_per_token

    @property
    def relative_draft_cost(self) -> float:
        return self._sum("draft_seconds") / max(self._sum("target_passes"), 1) / self._plain_seconds_per_token

    @property
    def cost_per_draft_token(self) -> float:
        """r: seconds for one more draft token of a chain by seconds of a plain pass."""
        depths = self._counts("passes_by_depth")
        draft_tokens = sum(depth * count for depth, count in depths.items())
        return self._sum("draft_seconds") / draft_tokens / self._plain_seconds_per_token if draft_tokens else 0.0

    @property
    def predicted_tokens_per_step(self) -> float:
        """The mean accepted length that follows from a alone."""
        acceptance = self.acceptance_rate
        return 1.0 if acceptance is None else mean_expected_tokens(acceptance, self._counts("passes_by_depth"))

    @property
    def predicted_speedup(self) -> float:
        """The speedup that follows from a, c and r."""
        return predicted_speedup(self.predicted_tokens_per_step, self.relative_pass_cost, self.relative_draft_cost)

    @property
    def identical_answers(self) -> int:
        return sum(sample.is_same_text for sample in self.samples)

    @property
    def forced_share(self) -> float:
        """Share of the tokens that a grammar left no alternative to."""
        return self._sum("forced_tokens") / max(self._sum("tokens"), 1)

    def acceptance_at_depth(self, depth: int) -> float | None:
        """How often a pass that drafted at this depth accepted a draft token there."""
        tried = sum(count for each, count in self._counts("passes_by_depth").items() if each >= depth)
        return self._counts("accepted_by_depth")[depth] / tried if tried else None

    def text_interval(self, fraction: float) -> float:
        return quantile([seconds for sample in self.samples for seconds in sample.text_intervals], fraction)

    @property
    def median_ttft_seconds(self) -> float:
        return median(sample.ttft_seconds for sample in self.samples)

    @property
    def median_request_seconds(self) -> float:
        return median(sample.request_seconds for sample in self.samples)

    @property
    def _plain_seconds_per_token(self) -> float:
        return max(self._sum("plain_decode_seconds") / max(self._sum("plain_tokens"), 1), 1e-9)

    def _sum(self, name: str) -> float:
        return sum(getattr(sample, name) for sample in self.samples)

    def _counts(self, name: str) -> Counter[int]:
        total = Counter[int]()
        for sample in self.samples:
            total.update(getattr(sample, name))
        return total


def group_samples(samples: Iterable[Sample], grid: Grid) -> list[CombinationResult]:
    """Samples by combination, in the order of the grid, whatever the order of measurement was."""
    grouped: dict[Combination, list[Sample]] = {}
    for sample in samples:
        grouped.setdefault(sample.combination, []).append(sample)
    kinds = dict.fromkeys([*REQUEST_KINDS, *(combination.kind for combination in grouped)])
    ordered = (
        combination
        for kind, temperature in product(kinds, sorted(grid.temperatures))
        for combination in grid.combinations(kind, temperature)
    )
    return [
        CombinationResult(each, tuple(sorted(grouped[each], key=lambda sample: sample.prompt_hash)))
        for each in ordered
        if each in grouped
    ]


@dataclass(frozen=True)
class Column:
    """A number of a row: its value, its header in the table, and how the table shows it."""

    value: Callable[[CombinationResult], Any]
    header: str
    text: Callable[[Any], str] = str


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


def _range_text(interval: Sequence[float]) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}"


_TWO_DIGITS, _PERCENT = "{:.2f}".format, "{:.0%}".format


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f}"


def _interval_column(fraction: float) -> Column:
    return Column(
        lambda row: _rounded(row.text_interval(fraction), 6), f"p{100 * fraction:.0f} between texts ms", _milliseconds
    )


# Every number of a row, by its name in `--columns`, CSV and JSON.
COLUMNS: Mapping[str, Column] = {
    "kind": Column(lambda row: row.combination.kind, "kind"),
    "temperature": Column(lambda row: row.combination.temperature, "T", "{:g}".format),
    "drafter": Column(lambda row: row.combination.name, "drafter"),
    "budget": Column(lambda row: row.combination.budget, "budget"),
    "width": Column(lambda row: row.combination.width, "width"),
    "answers": Column(lambda row: len(row.samples), "answers"),
    "tokens_per_second": Column(lambda row: _rounded(row.tokens_per_second, 2), "tokens/s", "{:.0f}".format),
    "speedup": Column(lambda row: _rounded(row.median_speedup), "speedup", _TWO_DIGITS),
    "speedup_range": Column(lambda row: [_rounded(each) for each in row.speedup_range], "range", _range_text),
    "speedup_interval": Column(lambda row: [_rounded(each) for each in row.speedup_interval], "95 %", _range_text),
    "predicted_speedup": Column(lambda row: _rounded(row.predicted_speedup), "predicted speedup", _TWO_DIGITS),
    "tokens_per_step": Column(lambda row: _rounded(row.tokens_per_step), "tokens/step", _TWO_DIGITS),
    "predicted_tokens_per_step": Column(
        lambda row: _rounded(row.predicted_tokens_per_step), "predicted tokens/step", _TWO_DIGITS
    ),
    "acceptance": Column(lambda row: _rounded(row.acceptance_rate), "acceptance", _PERCENT),
    "node_share": Column(lambda row: _rounded(row.node_share), "share of nodes", _PERCENT),
    **{
        f"accepted_at_{depth}": Column(
            partial(lambda row, depth: _rounded(row.acceptance_at_depth(depth)), depth=depth), f"at {depth}", _PERCENT
        )
        for depth in range(1, MAX_DEPTH_COLUMNS + 1)
    },
    "pass_cost": Column(lambda row: _rounded(row.relative_pass_cost), "pass cost", _TWO_DIGITS),
    "draft_cost": Column(lambda row: _rounded(row.relative_draft_cost), "draft cost", _TWO_DIGITS),
    "cost_per_draft_token": Column(lambda row: _rounded(row.cost_per_draft_token), "cost per draft token", _TWO_DIGITS),
    "forced_share": Column(lambda row: _rounded(row.forced_share), "forced", _PERCENT),
    "ttft_seconds": Column(lambda row: _rounded(row.median_ttft_seconds, 6), "TTFT ms", _milliseconds),
    "text_interval_p50": _interval_column(0.50),
    "text_interval_p95": _interval_column(0.95),
    "text_interval_p99": _interval_column(0.99),
    "request_seconds": Column(lambda row: _rounded(row.median_request_seconds, 6), "request s", _TWO_DIGITS),
    "identical": Column(lambda row: row.identical_answers, "identical"),
}
DEFAULT_COLUMNS = (
    "kind", "temperature", "drafter", "answers", "tokens_per_second", "speedup", "speedup_interval", "tokens_per_step",
    "acceptance", "accepted_at_1", "accepted_at_2", "accepted_at_3", "draft_cost", "ttft_seconds", "identical",
)  # fmt: skip


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows))


def as_table(rows: Sequence[CombinationResult], names: Sequence[str] = DEFAULT_COLUMNS) -> str:
    """The named columns as Markdown; a number that does not exist is an empty cell."""
    columns = [COLUMNS[name] for name in names]
    values = ([column.value(row) for column in columns] for row in rows)
    cells = (
        ["" if value is None else column.text(value) for column, value in zip(columns, line, strict=True)]
        for line in values
    )
    return markdown_table([column.header for column in columns], cells)


def as_rows(rows: Sequence[CombinationResult]) -> list[dict[str, Any]]:
    return [{name: column.value(row) for name, column in COLUMNS.items()} for row in rows]


def as_csv(rows: Sequence[CombinationResult]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(as_rows(rows))
    return text.getvalue()


def as_json(rows: Sequence[CombinationResult], metadata: Mapping[str, Any], skipped: Mapping[str, str]) -> str:
    document = {
        "schema": SCHEMA_VERSION, **metadata, "skipped": dict(skipped),
        "recommended": recommendations(rows), "rows": as_rows(rows),
    }  # fmt: skip
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def recommendations(rows: Sequence[CombinationResult]) -> dict[str, str]:
    sentences = dict[str, str]()
    for kind, temperature in dict.fromkeys((row.combination.kind, row.combination.temperature) for row in rows):
        group = [row for row in rows if (row.combination.kind, row.combination.temperature) == (kind, temperature)]
        sentences[f"{kind} T={temperature:g}"] = _recommendation_text(group)
    return sentences


def best_by_drafter(rows: Sequence[CombinationResult]) -> list[CombinationResult]:
    """The best combination of every drafter, the fastest first; without plain decoding and `auto`."""
    best: dict[str, CombinationResult] = {}
    for row in sorted(rows, key=lambda row: -row.conservative_speedup):
        if row.combination.drafter not in (PLAIN, AUTO):
            best.setdefault(row.combination.drafter, row)
    return list(best.values())


def _recommendation_text(rows: Sequence[CombinationResult]) -> str:
    ranked = best_by_drafter(rows)
    useful = [row for row in ranked if row.is_useful]
    chosen = [row for row in rows if row.combination.drafter == AUTO]
    auto = f"; auto: {max(row.median_speedup for row in chosen):.2f}" if chosen else ""
    if not ranked:  # `auto` was measured alone: which drafter is the fastest is not known
        return auto.removeprefix("; ") + " times plain" if chosen else "only plain decoding was measured"
    if not useful:
        best = "".join(f"; best drafter: {row.combination.name}, {row.median_speedup:.2f}" for row in ranked[:1])
        return f"no drafter is faster than plain decoding{best}{auto}"
    best, *others = useful
    low, high = best.speedup_range
    slower = [row.combination.drafter for row in ranked if not row.is_useful]
    loss = f"; slower than plain: {', '.join(slower)}" if slower else ""
    second = "".join(f"; then {row.combination.name}, {row.median_speedup:.2f}" for row in others[:1])
    return (
        f"{best.combination.name}, {best.median_speedup:.2f} times plain ({low:.2f} to {high:.2f}){second}{loss}{auto}"
    )
