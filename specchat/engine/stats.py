"""A sum over steps. Rates are derived, never stored. Imports no torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specchat.engine.decode import Step


@dataclass
class DecodingStats:
    """What a run of steps came to."""

    steps: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted_by_drafter: Counter[str] = field(default_factory=Counter[str])  # by who guessed
    drafted_at_depth: Counter[int] = field(default_factory=Counter[int])  # steps whose tree was at least so deep
    accepted_at_depth: Counter[int] = field(default_factory=Counter[int])  # steps that kept a guess so deep
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0

    def add(self, step: Step, kept_tokens: int | None = None) -> None:
        """Count one more step; of its tokens only the first `kept`, when a stop string cut the others off."""
        kept_tokens = len(step.committed_tokens) if kept_tokens is None else kept_tokens
        self.steps += 1
        self.tokens += kept_tokens
        self.drafted += step.drafted
        self.accepted_by_drafter.update(step.accepted_sources[:kept_tokens])
        self.drafted_at_depth.update(range(1, max(step.tree.depths) + 1))
        self.accepted_at_depth.update(range(1, min(step.accepted, kept_tokens) + 1))
        self.draft_seconds += step.draft_seconds
        self.verify_seconds += step.verify_seconds

    @property
    def tokens_per_step(self) -> float:
        """1 means that speculation brought nothing."""
        return self.tokens / max(self.steps, 1)

    def acceptance_rate_at(self, depth: int) -> float | None:
        """How often a guess at this depth held, where one was made; None where none was."""
        return self.accepted_at_depth[depth] / self.drafted_at_depth[depth] if self.drafted_at_depth[depth] else None
