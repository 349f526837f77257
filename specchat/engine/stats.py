"""Sums over decoding steps. Rates are derived from the sums. Imports no torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specchat.engine.decode import Step


@dataclass
class DecodingStats:
    steps: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted_by_drafter: Counter[str] = field(default_factory=Counter[str])
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

    @property
    def tokens_per_step(self) -> float:
        """The mean accepted length, including the target's own token: 1 means no gain from speculation."""
        return self.tokens / max(self.steps, 1)
