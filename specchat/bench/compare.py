"""Two contenders on the same prompts, in turns, so that a machine that slows down slows both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from specchat.bench.contenders import GenerateFunction, TimedRun


@dataclass(frozen=True)
class PairedRuns:
    """Ours against theirs on one prompt: each ran twice, ours first and last."""

    ours: tuple[TimedRun, TimedRun]
    theirs: tuple[TimedRun, TimedRun]

    @property
    def speedup(self) -> float:
        """How many times faster ours was; above 1 is faster. By time for each token, should the lengths differ."""
        return _seconds_per_token(self.theirs) / _seconds_per_token(self.ours)

    @property
    def is_identical(self) -> bool:
        """Whether all four answers are equal."""
        return all(run.tokens == self.ours[0].tokens for run in (*self.ours, *self.theirs))


@dataclass(frozen=True)
class Comparison:
    """What a comparison came to."""

    name: str
    pairs: tuple[PairedRuns, ...]

    @property
    def median_speedup(self) -> float:
        """The middle prompt's ratio."""
        return median(pair.speedup for pair in self.pairs)

    @property
    def speedup_range(self) -> tuple[float, float]:
        """The lowest and the highest ratio."""
        ratios = [pair.speedup for pair in self.pairs]
        return min(ratios), max(ratios)

    @property
    def tokens_per_step(self) -> float:
        """Tokens of all our answers by passes of the target."""
        runs = [pair.ours[0] for pair in self.pairs]
        return sum(len(run.tokens) for run in runs) / max(sum(run.target_passes for run in runs), 1)

    @property
    def identical_prompts(self) -> int:
        """Prompts on which both wrote the same."""
        return sum(pair.is_identical for pair in self.pairs)


def compare(
    ours: GenerateFunction, theirs: GenerateFunction, prompts: Iterable[list[int]], max_tokens: int
) -> Iterator[PairedRuns]:
    """Ours, theirs, theirs, ours on every prompt; the first prompt once more before, to warm both up."""
    for index, prompt in enumerate(prompts):
        if index == 0:
            for each in (ours, theirs):
                each(prompt, max_tokens)
        first, other, again, last = (each(prompt, max_tokens) for each in (ours, theirs, theirs, ours))
        yield PairedRuns((first, last), (other, again))


def _seconds_per_token(runs: tuple[TimedRun, TimedRun]) -> float:
    return sum(run.seconds for run in runs) / max(sum(len(run.tokens) for run in runs), 1)
