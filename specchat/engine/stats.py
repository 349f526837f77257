"""What counts of a decoding step, for the sums of an answer. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
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

    @property
    def seconds(self) -> float:
        return self.draft_seconds + self.verify_seconds

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
