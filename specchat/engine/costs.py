"""What a plain pass costs here, so that "times plain" is a measurement and not a hope.

Knows seconds by length of context; knows no drafter. The sum over widths and drafters is built upon this.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

from specchat.engine.cache import bucket_of
from specchat.engine.decode import Step, Writing
from specchat.engine.tree import DraftTree
from specchat.engine.verify import Sampler

MEASURED_PASSES = 3
MEASURING_SECONDS = 0.3  # a slow model is asked only once
LEARNING_RATE = 0.2
LARGEST_CHANGE = 0.25  # of one observation: a stall is no news


@dataclass
class PlainCost:
    """Seconds of a pass over one token, by context bucket. Plain steps teach it for nothing."""

    seconds: dict[int, float] = field(default_factory=dict[int, float])

    def note(self, length: int, step: Step) -> None:
        """Learn from a step in which nothing was guessed."""
        if not step.drafted:
            self._learn(bucket_of(length), step.verify_seconds)

    def at(self, length: int) -> float | None:
        """Seconds of a plain pass over so long a text; None when it was never seen."""
        return self.seconds.get(bucket_of(length))

    def measure(self, writing: Writing) -> None:
        """Run a few plain passes behind the text, and keep none of them."""
        spent, tree = 0.0, DraftTree(writing.tokens[-1])
        for _ in range(MEASURED_PASSES):
            begun = perf_counter()
            output = writing.target.forward(tree, writing.cache)
            Sampler().pick(output.logits, Sampler().rows(tree, len(writing.tokens)))
            seconds = perf_counter() - begun
            self._learn(bucket_of(len(writing.tokens)), seconds)
            if (spent := spent + seconds) > MEASURING_SECONDS:
                return

    def _learn(self, bucket: int, seconds: float) -> None:
        known = self.seconds.setdefault(bucket, seconds)
        change = max(-LARGEST_CHANGE, min(seconds / known - 1, LARGEST_CHANGE))
        self.seconds[bucket] = known * (1 + LEARNING_RATE * change)
