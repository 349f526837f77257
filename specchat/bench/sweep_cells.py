"""What a sweep combines, and what it keeps of an answer. Values only: no model, no file, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

UNLIMITED_WIDTH = 0  # as wide as the drafter likes
PLAIN, CHOOSER = "plain", "auto"


@dataclass(frozen=True)
class Combination:
    """One combination: who guesses, at most how many tokens, at most how many in one place, and on what."""

    kind: str
    temperature: float
    drafter: str
    budget: int = 0
    width: int = UNLIMITED_WIDTH

    @property
    def plain_baseline(self) -> Combination:
        """Nobody, on the same."""
        return Combination(self.kind, self.temperature, PLAIN)

    @property
    def name(self) -> str:
        """The combination without what it is tried on: "draft 8", "eagle3 16 by 2"."""
        if self.drafter == PLAIN:
            return PLAIN
        return f"{self.drafter} {self.budget}" + (f" by {self.width}" if self.width else "")


@dataclass(frozen=True)
class SweepSample:
    """One answer of one combination, and the plain answer beside it. Seconds of decoding leave the prompt out."""

    combination: Combination
    prompt_hash: str  # a word that changes with the request
    tokens: int
    target_passes: int
    draft_tokens: int
    accepted_tokens: int
    passes_with_rejection: int  # passes in which a guess fell
    passes_by_depth: Mapping[int, int]  # passes by the depth of their tree
    accepted_by_depth: Mapping[int, int]  # passes that kept a guess so deep
    draft_seconds: float
    verify_seconds: float
    plain_tokens: int
    plain_decode_seconds: float
    ttft_seconds: float  # seconds until the first text
    text_intervals: tuple[float, ...]  # seconds between texts
    request_seconds: float  # seconds of the whole request
    is_same_text: bool

    @property
    def decode_seconds(self) -> float:
        """Of decoding."""
        return self.draft_seconds + self.verify_seconds

    @property
    def speedup(self) -> float:
        """Times plain; above 1 is faster."""
        return (self.plain_decode_seconds / max(self.plain_tokens, 1)) / (self.decode_seconds / max(self.tokens, 1))


@dataclass(frozen=True)
class Grid:
    """What is to be combined. Who chooses among the drafters is not to be narrowed."""

    drafters: tuple[str, ...]
    budgets: tuple[int, ...] = (4, 8, 16)
    widths: tuple[int, ...] = (UNLIMITED_WIDTH,)
    temperatures: tuple[float, ...] = (0.0,)
    max_tokens: int = 120  # tokens of an answer

    def combinations(self, kind: str, temperature: float) -> list[Combination]:
        """Every combination on prompts of this kind; plain decoding first."""
        found = [Combination(kind, temperature, PLAIN)]
        for drafter in self.drafters:
            if drafter != PLAIN:
                widths = (UNLIMITED_WIDTH,) if drafter == CHOOSER else self.widths
                found += [Combination(kind, temperature, drafter, *size) for size in product(self.budgets, widths)]
        return found

    def answer_count(self, prompt_count: int) -> int:
        """How many answers so many prompts need, the plain ones between them counted."""
        guessed = len(self.combinations("", 0.0)) - 1
        return prompt_count * len(self.temperatures) * (guessed + 1 + guessed // 2)
