"""A drafter that knows the answer and is made to err: what a given acceptance is worth on this machine.

After llama.cpp's synthetic acceptance: the n-th guess of a chain holds with the n-th of given chances, if those before
it held. Whoever guesses that well gains what is measured here, less what the guessing costs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from specchat.bench.pass_costs import Progress, Subject, pass_seconds, standing
from specchat.bench.statistics import Spread
from specchat.engine.decode import Plan, Writing
from specchat.engine.drafter import Context, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.profile.keys import WIDEST_BUDGET


class Oracle(Drafter):
    """Guesses the known text as deep as there are chances; a guess that shall not hold is another token."""

    name = "oracle"

    def __init__(self, text: Sequence[int], chances: Sequence[float]) -> None:
        self.text, self.chances = text, chances

    def propose(self, context: Context) -> DraftTree:
        """One chain. The dice of a guess hang on its place alone, so that every run meets the same luck."""
        tree, at = DraftTree(context.tokens[-1]), len(context.tokens)
        known = self.text[at : at + context.budget]
        holds = [random.Random(f"{at} {depth}").random() < chance for depth, chance in enumerate(self.chances)]
        guesses = [token if right else token ^ 1 for token, right in zip(known, holds, strict=False)]
        tree.add_chain(guesses, source=self.name)
        return tree


@dataclass(frozen=True)
class Gain:
    """What so many guesses in each pass brought, against plain decoding of the same text in the same round."""

    dtype: str
    context: int
    guesses: int
    tokens_per_pass: float
    growth: Spread  # c of a pass over the guesses and their root
    times_plain: Spread

    @property
    def predicted(self) -> float:
        """Tokens of a pass by what it costs: what would be gained if the host did nothing."""
        return self.tokens_per_pass / self.growth.middle


@dataclass(frozen=True)
class _Run:
    text: list[int]  # prompt and answer
    tokens: int  # of the answer
    steps: int
    seconds: float


@dataclass(frozen=True)
class _Try:
    """One number of guesses in one round."""

    run: _Run
    plain: _Run
    growth: float


def gains(
    subject: Subject, context: int, chances: Sequence[float], limit: int, rounds: int, progress: Progress
) -> list[Gain]:
    """Plain decoding and chains of 1, 2, ... guesses, in turns, on one answer of `limit` tokens."""
    target, where = subject.target, f"{subject.dtype}, {context} tokens"
    tries: dict[int, list[_Try]] = {depth: [] for depth in range(1, min(len(chances), target.widest - 1) + 1)}
    with standing(target, context, limit) as writing:
        length = len(writing.tokens)
        text = _run(writing, Drafter(), length, limit).text
        for number in range(rounds + 1):  # the first one warms up
            plain, one = _run(writing, Drafter(), length, limit), pass_seconds(target, writing.cache, 1)
            for depth, found in tries.items():
                run = _run(writing, Oracle(text, chances[:depth]), length, limit)
                if run.text != text:
                    progress(f"{where}: {depth} guesses changed the text (a near tie)")
                if number:
                    found.append(_Try(run, plain, pass_seconds(target, writing.cache, depth + 1) / one))
            if number:
                progress(f"{where}, synthetic acceptance: round {number}")
    return [_gain(subject.dtype, context, depth, found) for depth, found in tries.items()]


def as_table(rows: Sequence[Gain]) -> str:
    """Gains as Markdown."""
    lines = [
        "| dtype | context | guesses | tokens per pass | c | x plain | tokens per pass / c |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.dtype} | {row.context} | {row.guesses} | {row.tokens_per_pass:.2f} | {row.growth.middle:.2f} "
        f"| {row.times_plain.shown(2)} | {row.predicted:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)


def _gain(dtype: str, context: int, depth: int, found: Sequence[_Try]) -> Gain:
    first = found[0].run
    return Gain(
        dtype, context, depth, first.tokens / first.steps,
        growth=Spread.of(each.growth for each in found),
        times_plain=Spread.of(each.plain.seconds / each.run.seconds for each in found),
    )  # fmt: skip


def _run(writing: Writing, drafter: Drafter, length: int, limit: int) -> _Run:
    """One answer, of which nothing stays."""
    begun = perf_counter()
    steps = list(writing.steps(Plan(drafter, Sampler(), WIDEST_BUDGET, limit)))
    seconds = perf_counter() - begun
    run = _Run(writing.tokens.copy(), len(writing.tokens) - length, len(steps), seconds)
    writing.cut(length)
    return run
