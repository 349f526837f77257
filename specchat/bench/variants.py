"""Every variant on the same prompts: what it brings, what it costs, and whether the text stayed the same.

A row is one variant on one kind of prompt at one temperature.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from specchat.assemble import Engine
from specchat.bench.interleaved import SEED, VariantRow, seconds_per_token, table_with_skipped, total_of
from specchat.chat.events import StepDone
from specchat.chat.request import Request

SHOWN_DEPTHS = 4


@dataclass
class VariantKindRow(VariantRow):
    """One variant on prompts of one kind at one temperature."""

    kind: str
    temperature: float

    @property
    def relative_draft_cost(self) -> float:
        """Seconds of drafting in a step by seconds of a plain pass."""
        drafting = sum(answer.totals.draft_seconds for answer in self.answers) / max(total_of(self.answers, "steps"), 1)
        return drafting / seconds_per_token(self.plain_answers)

    def acceptance_at_depth(self, depth: int) -> float | None:
        """How often a guess at this depth held, where one was made."""
        tried, kept = Counter[int](), Counter[int]()
        for answer in self.answers:
            for step in answer.steps:
                tried.update(range(1, draft_tree_depth(step) + 1))
                kept.update(range(1, len(step.committed_tokens)))
        return kept[depth] / tried[depth] if tried[depth] else None


def draft_tree_depth(step: StepDone) -> int:
    """How deep the tree of a step was; 0 for a bare root."""
    depths = [0]
    for parent in step.parents:
        depths.append(depths[parent] + 1)
    return max(depths)


def measure_variants(
    engine: Engine,
    variants: Sequence[str],
    prompts: Mapping[str, Sequence[Request]],
    temperatures: Sequence[float],
    max_tokens: int,
    progress: Callable[[str], None] = lambda _what: None,
) -> Iterator[VariantKindRow]:
    """Rows in the order of kinds, temperatures and variants; a variant that cannot run says why."""
    for kind, requests in prompts.items():
        for temperature in temperatures:
            rows = [VariantKindRow(variant, kind, temperature) for variant in variants]
            for number, request in enumerate(requests, start=1):
                asked = replace(request, temperature=temperature, seed=SEED, max_tokens=max_tokens)
                for row in rows:
                    progress(f"{kind} T={temperature:g} {number}/{len(requests)} {row.variant}")
                    row.measure(engine, asked)
            yield from rows


def as_table(rows: Sequence[VariantKindRow]) -> str:
    """Rows as Markdown."""
    head = ["variant", "kind", "T", "tokens per pass", "x plain", "draft / pass"]
    head += [f"guess {depth}" for depth in range(1, SHOWN_DEPTHS + 1)] + ["same text"]
    return table_with_skipped(head, [_cells(row) for row in rows if not row.skip_reason], rows)


def _cells(row: VariantKindRow) -> list[str]:
    shares = [row.acceptance_at_depth(depth) for depth in range(1, SHOWN_DEPTHS + 1)]
    return [
        row.variant,
        row.kind,
        f"{row.temperature:g}",
        f"{row.tokens_per_step:.2f}",
        f"{row.speedup:.2f}",
        f"{row.relative_draft_cost:.2f}",
        *("" if share is None else f"{share:.0%}" for share in shares),
        f"{row.identical_answers} of {len(row.answers)}",
    ]
