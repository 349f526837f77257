"""Two contenders on the same prompts, in turns, so that a machine that slows down slows both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from specchat.bench.contenders import Contender, Run


@dataclass(frozen=True)
class Pair:
    """Ours against theirs on one prompt: each ran twice, ours first and last."""

    ours: tuple[Run, Run]
    theirs: tuple[Run, Run]

    @property
    def ratio(self) -> float:
        """How many times faster ours was; above 1 is faster. By time for each token, should the lengths differ."""
        return _seconds_per_token(self.theirs) / _seconds_per_token(self.ours)

    @property
    def same_text(self) -> bool:
        """Whether all four answers are equal."""
        return all(run.tokens == self.ours[0].tokens for run in (*self.ours, *self.theirs))


@dataclass(frozen=True)
class Row:
    """What a comparison came to."""

    name: str
    pairs: tuple[Pair, ...]

    @property
    def ratio(self) -> float:
        """The middle prompt's ratio."""
        return median(pair.ratio for pair in self.pairs)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest ratio."""
        ratios = [pair.ratio for pair in self.pairs]
        return min(ratios), max(ratios)

    @property
    def tokens_per_pass(self) -> float:
        """Tokens of all our answers by passes of the target."""
        runs = [pair.ours[0] for pair in self.pairs]
        return sum(len(run.tokens) for run in runs) / max(sum(run.passes for run in runs), 1)

    @property
    def equal(self) -> int:
        """Prompts on which both wrote the same."""
        return sum(pair.same_text for pair in self.pairs)


def compare(ours: Contender, theirs: Contender, prompts: Iterable[list[int]], limit: int) -> Iterator[Pair]:
    """Ours, theirs, theirs, ours on every prompt; the first prompt once more before, to warm both up."""
    for index, prompt in enumerate(prompts):
        if index == 0:
            for each in (ours, theirs):
                each(prompt, limit)
        first, other, again, last = (each(prompt, limit) for each in (ours, theirs, theirs, ours))
        yield Pair((first, last), (other, again))


def _seconds_per_token(runs: tuple[Run, Run]) -> float:
    return sum(run.seconds for run in runs) / max(sum(len(run.tokens) for run in runs), 1)
