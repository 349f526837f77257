"""Notices after an answer: why it ended, another drafter is used now, or the context is nearly full.

Events in, lines out, at most one of each kind per answer. What the engine says is an event of its own. Drafters are
only names here; nothing is drawn.
"""

from __future__ import annotations

from collections import Counter

from specchat.chat.events import TARGET, Event, Finished, Routed, StepDone, Totals
from specchat.chat.router import PINNED

NO_DRAFTER = "none (plain decoding)"
MIN_STEPS = 16  # shorter answers say too little about the drafter
PAUSED_SHARE = 1 / 8  # speculation counts as paused when fewer of the steps have draft tokens
RESUMED_SHARE = 1 / 4  # and as resumed when more have
SWITCH_FACTOR = 1.5  # another drafter needs this many times the steps of the current one
FULL_CONTEXT_SHARE = 0.9
COMPACT_HINT = "/compact summarizes this conversation and continues in a copy"


class DrafterTracker:
    """Follows which drafter is used, from answer to answer. Ignores short answers and drafters that the user pinned."""

    def __init__(self) -> None:
        self._current_drafter, self._current_reason = "", ""
        self._routed: Routed | None = None
        self._steps_by_drafter, self._step_count, self._drafted_step_count = Counter[str](), 0, 0

    def on_event(self, event: Event) -> str:
        """At the end of an answer, the change of drafter in words; otherwise "".

        "drafter changed from lookup to draft: new code is predictable but rarely a copy"
        """
        match event:
            case Routed():
                self._routed, self._steps_by_drafter = event, Counter()
                self._step_count = self._drafted_step_count = 0
            case StepDone():
                self._step_count += 1
                self._drafted_step_count += bool(event.draft_tokens)
                self._steps_by_drafter.update(_drafters_of(event))
            case Finished(totals=totals):
                return self._drafter_change(totals)
            case _:
                pass
        return ""

    def _drafter_change(self, totals: Totals) -> str:
        routed = self._routed
        if routed is None or routed.reason == PINNED:
            self._current_drafter = self._current_reason = ""
            return ""
        if self._step_count < MIN_STEPS:
            return ""
        before, reason = self._current_drafter, routed.reason.partition(", so ")[0]
        is_new_kind, self._current_reason = reason != self._current_reason, reason
        self._current_drafter = self._main_drafter()
        if before in ("", self._current_drafter):
            return ""
        if self._current_drafter == NO_DRAFTER:
            speedup = "" if totals.speedup is None else f", {totals.speedup.text}x plain"
            why = f"draft tokens in {self._drafted_step_count} of {self._step_count} steps{speedup}"
        elif is_new_kind:
            why = reason
        else:
            why = f"in {self._steps_by_drafter[self._current_drafter]} of {self._step_count} steps"
        return f"drafter changed from {before} to {self._current_drafter}: {why}"

    def _main_drafter(self) -> str:
        """The drafter of most steps; the current one stays unless another is clearly ahead."""
        min_share = RESUMED_SHARE if self._current_drafter == NO_DRAFTER else PAUSED_SHARE
        if self._drafted_step_count < min_share * self._step_count or not self._steps_by_drafter:
            return NO_DRAFTER
        leader, count = self._steps_by_drafter.most_common(1)[0]
        is_clear = count >= SWITCH_FACTOR * self._steps_by_drafter[self._current_drafter]
        return leader if is_clear else self._current_drafter


def _drafters_of(step: StepDone) -> set[str]:
    """The drafters of a step; if the step does not name them, those with accepted tokens."""
    accepted = {token.source for token in step.committed_tokens} - {TARGET}
    return (set(step.draft_sources) or accepted) if step.draft_tokens else set()


class Notices:
    def __init__(self) -> None:
        self.lines: tuple[str, ...] = ()  # about the last answer
        self._drafter_tracker, self._was_full = DrafterTracker(), False

    def on_event(self, event: Event, context_window: int) -> None:
        """Update with an event of an answer; `context_window` is in tokens, 0 when unknown."""
        lines = [self._drafter_tracker.on_event(event)]
        if isinstance(event, Finished):
            tokens = event.totals.prompt_tokens + event.totals.completion_tokens
            lines.append(event.explanation)
            lines.append(self._context_notice(tokens, context_window))
        self.lines = tuple(filter(None, lines))

    def on_context_overflow(self) -> None:
        self.lines = (COMPACT_HINT,)

    def _context_notice(self, tokens: int, window: int) -> str:
        """The hint, once each time the context fills up."""
        was_full, self._was_full = self._was_full, bool(window) and tokens > FULL_CONTEXT_SHARE * window
        return f"the context is {tokens / window:.0%} full; {COMPACT_HINT}" if self._was_full and not was_full else ""
