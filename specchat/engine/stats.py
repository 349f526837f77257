"""Sums over decoding steps. Rates are derived from the sums. Imports no torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from specchat.acceptance_counts import Acceptance

if TYPE_CHECKING:
    from specchat.engine.decode import Step


NO_DRAFTER = "plain"  # steps without draft tokens


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What counts of a step: its first `tokens` tokens, if a stop string or a repetition cut off the others."""

    tokens: int
    drafted: int
    acceptance: Acceptance
    accepted_sources: tuple[str, ...]
    drafter: str  # of the first draft token
    draft_seconds: float
    verify_seconds: float

    @classmethod
    def of_step(cls, step: Step, kept_tokens: int | None = None) -> Self:
        committed = len(step.committed_tokens)
        drafter = step.tree.sources[1] if step.drafted else NO_DRAFTER
        counts = cls(
            committed, step.drafted, Acceptance.of_step(step.tested, step.accepted), tuple(step.accepted_sources),
            drafter, step.draft_seconds, step.verify_seconds,
        )  # fmt: skip
        return counts if kept_tokens is None else counts.first(kept_tokens)

    def first(self, tokens: int) -> Self:
        if tokens >= self.tokens:
            return self
        accepted = self.accepted_sources[:tokens]
        acceptance = Acceptance.of_step(len(accepted), len(accepted))
        return replace(self, tokens=tokens, accepted_sources=accepted, acceptance=acceptance)


@dataclass
class DrafterSteps:
    """The steps of one drafter: those whose first draft token it proposed."""

    steps: int = 0
    acceptance: Acceptance = Acceptance()
    tokens: int = 0
    seconds: float = 0.0


@dataclass
class DecodingStats:
    steps: int = 0
    tokens: int = 0
    drafted: int = 0
    acceptance: Acceptance = Acceptance()
    accepted_by_drafter: Counter[str] = field(default_factory=Counter[str])
    by_drafter: dict[str, DrafterSteps] = field(default_factory=dict[str, DrafterSteps])  # NO_DRAFTER among them
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0

    def add(self, step: StepCounts) -> None:
        self.steps += 1
        self.tokens += step.tokens
        self.drafted += step.drafted
        self.accepted_by_drafter.update(step.accepted_sources)
        self.draft_seconds += step.draft_seconds
        self.verify_seconds += step.verify_seconds
        self.acceptance += step.acceptance
        drafter = self.by_drafter.setdefault(step.drafter, DrafterSteps())
        drafter.steps += 1
        drafter.acceptance += step.acceptance
        drafter.tokens += step.tokens
        drafter.seconds += step.draft_seconds + step.verify_seconds
