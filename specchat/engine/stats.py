"""A sum over steps. Rates are derived, never stored. Imports no torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specchat.engine.decode import Step


@dataclass
class Stats:
    """What a run of steps came to."""

    steps: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: Counter[str] = field(default_factory=Counter[str])  # by who guessed
    tried_at: Counter[int] = field(default_factory=Counter[int])  # steps whose tree was at least so deep
    kept_at: Counter[int] = field(default_factory=Counter[int])  # steps that kept a guess so deep
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0

    def add(self, step: Step, kept: int | None = None) -> None:
        """Count one more step; of its tokens only the first `kept`, when a stop string cut the others off."""
        kept = len(step.tokens) if kept is None else kept
        self.steps += 1
        self.tokens += kept
        self.drafted += step.drafted
        self.accepted.update(step.sources[:kept])
        self.tried_at.update(range(1, max(step.tree.depths) + 1))
        self.kept_at.update(range(1, min(step.accepted, kept) + 1))
        self.draft_seconds += step.draft_seconds
        self.verify_seconds += step.verify_seconds

    @property
    def tokens_per_pass(self) -> float:
        """1 means that speculation brought nothing."""
        return self.tokens / max(self.steps, 1)

    def acceptance_at(self, depth: int) -> float | None:
        """How often a guess at this depth held, where one was made; None where none was."""
        return self.kept_at[depth] / self.tried_at[depth] if self.tried_at[depth] else None
