"""A drafter that knows the answer and is made to err: what a given acceptance is worth on this machine.

After llama.cpp's synthetic acceptance: the n-th guess of a chain holds with the n-th of given chances, if those before
it held. Whoever guesses that well gains what is measured here, less what the guessing costs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from specchat.bench.median_range import MedianRange
from specchat.bench.pass_costs import MeasuredModel, Progress, pass_seconds, random_context
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.profile.keys import MAX_DRAFT_TOKENS


class OracleDrafter(Drafter):
    """Guesses the known text as deep as there are chances; a guess that shall not hold is another token."""

    name = "oracle"

    def __init__(self, text: Sequence[int], acceptance_by_depth: Sequence[float]) -> None:
        self.text, self.acceptance_by_depth = text, acceptance_by_depth

    def propose(self, context: DraftContext) -> DraftTree:
        """One chain. The dice of a guess hang on its place alone, so that every run meets the same luck."""
        tree, at = DraftTree(context.tokens[-1]), len(context.tokens)
        known = self.text[at : at + context.max_draft_tokens]
        holds = [
            random.Random(f"{at} {depth}").random() < chance for depth, chance in enumerate(self.acceptance_by_depth)
        ]
        guesses = [token if right else token ^ 1 for token, right in zip(known, holds, strict=False)]
        tree.add_chain(guesses, source=self.name)
        return tree


@dataclass(frozen=True)
class OracleRow:
    """What so many guesses in each pass brought, against plain decoding of the same text in the same round."""

    dtype: str
    context: int
    draft_tokens: int
    tokens_per_step: float
    relative_pass_cost: MedianRange  # c of a pass over the guesses and their root
    speedup: MedianRange

    @property
    def predicted_speedup(self) -> float:
        """Tokens of a pass by what it costs: what would be gained if the host did nothing."""
        return self.tokens_per_step / self.relative_pass_cost.median


@dataclass(frozen=True)
class _Run:
    text: list[int]  # prompt and answer
    tokens: int  # of the answer
    steps: int
    seconds: float


@dataclass(frozen=True)
class _Trial:
    """One number of guesses in one round."""

    run: _Run
    plain: _Run
    relative_pass_cost: float


def measure_synthetic_acceptance(
    subject: MeasuredModel,
    context: int,
    acceptance_by_depth: Sequence[float],
    max_tokens: int,
    rounds: int,
    progress: Progress,
) -> list[OracleRow]:
    """Plain decoding and chains of 1, 2, ... guesses, in turns, on one answer of `limit` tokens."""
    target, where = subject.target, f"{subject.dtype}, {context} tokens"
    tries: dict[int, list[_Trial]] = {
        depth: [] for depth in range(1, min(len(acceptance_by_depth), target.max_rows - 1) + 1)
    }
    with random_context(target, context, max_tokens) as writing:
        length = len(writing.tokens)
        text = _timed_run(writing, Drafter(), length, max_tokens).text
        for number in range(rounds + 1):  # the first one warms up
            plain, one = _timed_run(writing, Drafter(), length, max_tokens), pass_seconds(target, writing.cache, 1)
            for depth, found in tries.items():
                run = _timed_run(writing, OracleDrafter(text, acceptance_by_depth[:depth]), length, max_tokens)
                if run.text != text:
                    progress(f"{where}: {depth} guesses changed the text (a near tie)")
                if number:
                    found.append(_Trial(run, plain, pass_seconds(target, writing.cache, depth + 1) / one))
            if number:
                progress(f"{where}, synthetic acceptance: round {number}")
    return [_row_of_trials(subject.dtype, context, depth, found) for depth, found in tries.items()]


def as_table(rows: Sequence[OracleRow]) -> str:
    """Gains as Markdown."""
    lines = [
        "| dtype | context | guesses | tokens per pass | c | x plain | tokens per pass / c |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.dtype} | {row.context} | {row.draft_tokens} | {row.tokens_per_step:.2f} | {row.relative_pass_cost.median:.2f} "
        f"| {row.speedup.to_text(2)} | {row.predicted_speedup:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)


def _row_of_trials(dtype: str, context: int, depth: int, found: Sequence[_Trial]) -> OracleRow:
    first = found[0].run
    return OracleRow(
        dtype, context, depth, first.tokens / first.steps,
        relative_pass_cost=MedianRange.from_values(each.relative_pass_cost for each in found),
        speedup=MedianRange.from_values(each.plain.seconds / each.run.seconds for each in found),
    )  # fmt: skip


def _timed_run(writing: Generation, drafter: Drafter, length: int, limit: int) -> _Run:
    """One answer, of which nothing stays."""
    begun = perf_counter()
    steps = list(writing.decode(GenerationConfig(drafter, Sampler(), MAX_DRAFT_TOKENS, limit)))
    seconds = perf_counter() - begun
    run = _Run(writing.tokens.copy(), len(writing.tokens) - length, len(steps), seconds)
    writing.truncate(length)
    return run
