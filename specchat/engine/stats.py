"""Sums over decoding steps. Rates are derived from the sums. Imports no torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specchat.acceptance_counts import Acceptance

if TYPE_CHECKING:
    from specchat.engine.decode import Step


NO_DRAFTER = "plain"  # steps without draft tokens


@dataclass
class DrafterSteps:
    """The steps of one drafter: those whose first draft token it proposed."""

    steps: int = 0
    acceptance: Acceptance = Acceptance()
    tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


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

    def add(self, step: Step, kept_tokens: int | None = None) -> None:
        """Add one step; only its first `kept_tokens` tokens count, if a stop string cut off the others."""
        kept_tokens = len(step.committed_tokens) if kept_tokens is None else kept_tokens
        self.steps += 1
        self.tokens += kept_tokens
        self.drafted += step.drafted
        self.accepted_by_drafter.update(step.accepted_sources[:kept_tokens])
        self.draft_seconds += step.draft_seconds
        self.verify_seconds += step.verify_seconds
        tested = step.tested if kept_tokens == len(step.committed_tokens) else min(step.accepted, kept_tokens)
        acceptance = Acceptance.of_step(tested, min(step.accepted, kept_tokens))
        self.acceptance += acceptance
        self._add_to_drafter(step, kept_tokens, acceptance)

    def _add_to_drafter(self, step: Step, kept_tokens: int, acceptance: Acceptance) -> None:
        drafter = self.by_drafter.setdefault(step.tree.sources[1] if step.drafted else NO_DRAFTER, DrafterSteps())
        drafter.steps += 1
        drafter.acceptance += acceptance
        drafter.tokens += kept_tokens
        drafter.seconds += step.draft_seconds + step.verify_seconds

    @property
    def tokens_per_step(self) -> float:
        """The mean accepted length, including the target's own token: 1 means no gain from speculation."""
        return self.tokens / max(self.steps, 1)
