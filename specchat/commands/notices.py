"""What is worth a line after an answer: that somebody else guesses now, or that the context is all but full.

Events in, lines out, at most one of a kind after an answer. Names of guessers are only names here; nothing is drawn.
"""

from __future__ import annotations

from collections import Counter

from specchat.chat.events import TARGET, Event, Finished, Routed, StepDone, Totals
from specchat.chat.router import PINNED

NOBODY = "nobody"
FEWEST_STEPS = 16  # of an answer that can tell who guesses
PAUSED, RESUMED = 1 / 8, 1 / 4  # steps with guesses: below the one nobody guesses, above the other somebody does again
CLEARLY = 1.5  # times as many steps as who guessed so far
FULL_CONTEXT = 0.9
OFFER = "/compact sums this conversation up and goes on in a copy"


class Guessers:
    """Who guesses, from answer to answer. A single step says nothing, and neither does a choice of the person."""

    def __init__(self) -> None:
        self._now, self._reason = "", ""
        self._routed: Routed | None = None
        self._by, self._steps, self._guessed = Counter[str](), 0, 0

    def hear(self, event: Event) -> str:
        """With the end of an answer the change that it brought, in words; else nothing.

        "draft guesses now, lookup did before: new code is foreseeable but seldom a copy"
        """
        match event:
            case Routed():
                self._routed, self._by, self._steps, self._guessed = event, Counter(), 0, 0
            case StepDone():
                self._steps += 1
                self._guessed += bool(event.drafted)
                self._by.update(_guessers_of(event))
            case Finished(totals=totals):
                return self._change(totals)
            case _:
                pass
        return ""

    def _change(self, totals: Totals) -> str:
        routed = self._routed
        if routed is None or routed.reason == PINNED:
            self._now = self._reason = ""
            return ""
        if self._steps < FEWEST_STEPS:
            return ""
        before, reason = self._now, routed.reason.partition(", so ")[0]
        is_new_kind, self._reason = reason != self._reason, reason
        self._now = self._who()
        if before in ("", self._now):
            return ""
        if self._now == NOBODY:
            gain = "" if totals.times_plain is None else f", {totals.times_plain:.1f}x plain"
            return f"guessing is paused, {before} did before: guesses in {self._guessed} of {self._steps} steps{gain}"
        why = reason if is_new_kind else f"in {self._by[self._now]} of {self._steps} steps"
        return f"{self._now} guesses now, {before} did before: {why}"

    def _who(self) -> str:
        """Who guessed in most steps; who did so far is not left for a few of them."""
        least = RESUMED if self._now == NOBODY else PAUSED
        if self._guessed < least * self._steps or not self._by:
            return NOBODY
        first, count = self._by.most_common(1)[0]
        return self._now if count < CLEARLY * self._by[self._now] else first


def _guessers_of(step: StepDone) -> set[str]:
    """Who guessed in a step; of one that does not say, those whose guesses held."""
    held = {token.source for token in step.committed} - {TARGET}
    return (set(step.sources) or held) if step.drafted else set()


class Remarks:
    """What one conversation gives reason to say."""

    def __init__(self) -> None:
        self.lines: tuple[str, ...] = ()  # about the answer that was heard last
        self._guessers, self._was_full = Guessers(), False

    def hear(self, event: Event, window: int) -> None:
        """An event of an answer; `window` is how many tokens the conversation may have, 0 where nobody knows."""
        lines = [self._guessers.hear(event)]
        if isinstance(event, Finished):
            lines.append(self._fullness(event.totals.prompt_tokens + event.totals.tokens, window))
        self.lines = tuple(filter(None, lines))

    def hear_refusal(self) -> None:
        """The question came on top of others and did not fit."""
        self.lines = (OFFER,)

    def _fullness(self, tokens: int, window: int) -> str:
        """The offer, once on the way up."""
        was_full, self._was_full = self._was_full, bool(window) and tokens > FULL_CONTEXT * window
        return f"the context is {tokens / window:.0%} full; {OFFER}" if self._was_full and not was_full else ""
