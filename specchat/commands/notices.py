"""What is worth a line after an answer: that somebody else guesses now, or that the context is all but full.

Events in, lines out, at most one of a kind after an answer. Names of guessers are only names here; nothing is drawn.
"""

from __future__ import annotations

from collections import Counter

from specchat.chat.events import TARGET, Event, Finished, Routed, StepDone, Totals
from specchat.chat.router import PINNED

NO_DRAFTER = "nobody"
MIN_STEPS = 16  # of an answer that can tell who guesses
PAUSED_SHARE, RESUMED_SHARE = (
    1 / 8,
    1 / 4,
)  # steps with guesses: below the one nobody guesses, above the other somebody does again
SWITCH_FACTOR = 1.5  # times as many steps as who guessed so far
FULL_CONTEXT_SHARE = 0.9
COMPACT_HINT = "/compact sums this conversation up and goes on in a copy"


class DrafterTracker:
    """Who guesses, from answer to answer. A single step says nothing, and neither does a choice of the person."""

    def __init__(self) -> None:
        self._current_drafter, self._current_reason = "", ""
        self._routed: Routed | None = None
        self._steps_by_drafter, self._step_count, self._drafted_step_count = Counter[str](), 0, 0

    def on_event(self, event: Event) -> str:
        """With the end of an answer the change that it brought, in words; else nothing.

        "draft guesses now, lookup did before: new code is foreseeable but seldom a copy"
        """
        match event:
            case Routed():
                self._routed, self._steps_by_drafter, self._step_count, self._drafted_step_count = (
                    event,
                    Counter(),
                    0,
                    0,
                )
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
            gain = "" if totals.speedup is None else f", {totals.speedup:.1f}x plain"
            return f"guessing is paused, {before} did before: guesses in {self._drafted_step_count} of {self._step_count} steps{gain}"
        why = (
            reason if is_new_kind else f"in {self._steps_by_drafter[self._current_drafter]} of {self._step_count} steps"
        )
        return f"{self._current_drafter} guesses now, {before} did before: {why}"

    def _main_drafter(self) -> str:
        """Who guessed in most steps; who did so far is not left for a few of them."""
        least = RESUMED_SHARE if self._current_drafter == NO_DRAFTER else PAUSED_SHARE
        if self._drafted_step_count < least * self._step_count or not self._steps_by_drafter:
            return NO_DRAFTER
        first, count = self._steps_by_drafter.most_common(1)[0]
        return self._current_drafter if count < SWITCH_FACTOR * self._steps_by_drafter[self._current_drafter] else first


def _drafters_of(step: StepDone) -> set[str]:
    """Who guessed in a step; of one that does not say, those whose guesses held."""
    held = {token.source for token in step.committed_tokens} - {TARGET}
    return (set(step.draft_sources) or held) if step.draft_tokens else set()


class Notices:
    """What one conversation gives reason to say."""

    def __init__(self) -> None:
        self.lines: tuple[str, ...] = ()  # about the answer that was heard last
        self._drafter_tracker, self._was_full = DrafterTracker(), False

    def on_event(self, event: Event, context_window: int) -> None:
        """An event of an answer; `window` is how many tokens the conversation may have, 0 where nobody knows."""
        lines = [self._drafter_tracker.on_event(event)]
        if isinstance(event, Finished):
            lines.append(
                self._context_notice(event.totals.prompt_tokens + event.totals.completion_tokens, context_window)
            )
        self.lines = tuple(filter(None, lines))

    def on_context_overflow(self) -> None:
        """The question came on top of others and did not fit."""
        self.lines = (COMPACT_HINT,)

    def _context_notice(self, tokens: int, window: int) -> str:
        """The offer, once on the way up."""
        was_full, self._was_full = self._was_full, bool(window) and tokens > FULL_CONTEXT_SHARE * window
        return f"the context is {tokens / window:.0%} full; {COMPACT_HINT}" if self._was_full and not was_full else ""
