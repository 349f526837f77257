"""Counts what this server has answered since its start, from the events of its answers. Holds no text.

Knows no page.
"""

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock

from specchat.acceptance_counts import Acceptance
from specchat.chat.events import NO_DRAFTER, TARGET, Event, Failed, Finished, StepDone, Totals
from specchat.chat.sum_totals import add_totals


@dataclass
class AnswerCounts:
    """Several threads may count, and others read: each reader takes the lock. Cheap, because each step is counted."""

    drafts: int = 0
    draft_positions: int = 0  # the depths of all drafts: what a chain of this depth has as draft tokens
    acceptance: Acceptance = Acceptance()
    draft_tokens_by_drafter: Counter[str] = field(default_factory=Counter[str])
    accepted_by_drafter: Counter[str] = field(default_factory=Counter[str])
    steps_by_drafter: Counter[str] = field(default_factory=Counter[str])
    steps_by_rows: Counter[int] = field(default_factory=Counter[int])  # rows: the root and the draft tokens
    verify_seconds_by_rows: dict[int, float] = field(default_factory=dict[int, float])
    draft_seconds: float = 0.0
    answers_by_finish_reason: Counter[str] = field(default_factory=Counter[str])
    first_token_count: int = 0
    first_token_seconds: float = 0.0
    finished: int = 0
    totals: Totals = Totals()  # the sum of the finished answers
    lock: Lock = field(default_factory=Lock)

    def on_event(self, event: Event) -> None:
        with self.lock:
            match event:
                case StepDone():
                    self._count_step(event)
                case Finished(finish_reason=reason, totals=totals):
                    self.answers_by_finish_reason[reason] += 1
                    self._count_finished(totals)
                case Failed():
                    self.answers_by_finish_reason["failed"] += 1
                case _:
                    pass

    def _count_step(self, step: StepDone) -> None:
        accepted = [token.source for token in step.committed_tokens if token.source != TARGET]
        rows = 1 + len(step.draft_tokens)
        self.steps_by_rows[rows] += 1
        self.verify_seconds_by_rows[rows] = self.verify_seconds_by_rows.get(rows, 0.0) + step.verify_seconds
        self.draft_seconds += step.draft_seconds
        if not step.draft_tokens:
            self.steps_by_drafter[NO_DRAFTER] += 1
            return
        self.steps_by_drafter.update(set(step.draft_sources) or set(accepted))
        self.drafts += 1
        self.draft_positions += step.depth
        self.draft_tokens_by_drafter.update(step.draft_sources)
        self.accepted_by_drafter.update(accepted)
        self.acceptance += step.acceptance

    def _count_finished(self, totals: Totals) -> None:
        self.finished += 1
        self.totals = add_totals(self.totals, totals)
        if totals.ttft_seconds:
            self.first_token_count += 1
            self.first_token_seconds += totals.ttft_seconds
