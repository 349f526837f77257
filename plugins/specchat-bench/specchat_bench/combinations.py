"""What a bench combines, and what it records of one answer. Values only: no model, no file, no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

PROFILE_BUDGET = 0  # as many draft tokens as the profile allows
UNLIMITED_WIDTH = 0  # as many draft tokens at a depth as the drafter proposes
PLAIN, AUTO = "plain", "auto"


@dataclass(frozen=True)
class Combination:
    """A drafter with its limits, on one kind of prompt at one temperature."""

    kind: str
    temperature: float
    drafter: str
    budget: int = PROFILE_BUDGET
    width: int = UNLIMITED_WIDTH

    @property
    def name(self) -> str:
        """Drafter and limits: "draft", "draft 8", "eagle3 16 by 2"."""
        if self.drafter == PLAIN:
            return PLAIN
        return self.drafter + (f" {self.budget}" if self.budget else "") + (f" by {self.width}" if self.width else "")


@dataclass(frozen=True)
class Sample:
    """One answer of one combination, and the plain answer beside it. Decode seconds exclude the prefill."""

    combination: Combination
    prompt_hash: str
    tokens: int
    target_passes: int
    draft_tokens: int
    accepted_tokens: int
    forced_tokens: int  # accepted tokens that the grammar left no alternative to
    passes_with_rejection: int
    passes_by_depth: Mapping[int, int]  # passes by the depth of their draft tree
    accepted_by_depth: Mapping[int, int]  # passes that accepted a draft token at this depth
    draft_seconds: float
    verify_seconds: float
    plain_tokens: int
    plain_decode_seconds: float
    ttft_seconds: float
    text_intervals: tuple[float, ...]  # seconds between text events
    request_seconds: float
    is_same_text: bool

    @property
    def decode_seconds(self) -> float:
        return self.draft_seconds + self.verify_seconds

    @property
    def speedup(self) -> float:
        """Decode speed relative to plain decoding; above 1 is faster."""
        return (self.plain_decode_seconds / max(self.plain_tokens, 1)) / (self.decode_seconds / max(self.tokens, 1))


@dataclass(frozen=True)
class Grid:
    """The drafters and limits to combine. Widths do not apply to `auto`, which chooses among drafters."""

    drafters: tuple[str, ...]
    budgets: tuple[int, ...] = (PROFILE_BUDGET,)
    widths: tuple[int, ...] = (UNLIMITED_WIDTH,)
    temperatures: tuple[float, ...] = (0.0,)
    max_tokens: int = 120

    def combinations(self, kind: str, temperature: float) -> list[Combination]:
        """Every combination for prompts of this kind; plain decoding first."""
        combinations = [Combination(kind, temperature, PLAIN)]
        for drafter in self.drafters:
            if drafter != PLAIN:
                widths = (UNLIMITED_WIDTH,) if drafter == AUTO else self.widths
                combinations += [
                    Combination(kind, temperature, drafter, *size) for size in product(self.budgets, widths)
                ]
        return combinations

    def answer_count(self, prompt_count: int) -> int:
        """The answers that so many prompts need, plain answers between the combinations included."""
        drafted = len(self.combinations("", 0.0)) - 1
        return prompt_count * len(self.temperatures) * (drafted + 1 + drafted // 2)
