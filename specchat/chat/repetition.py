"""Notices an answer that repeats itself word for word: the same block of tokens, several times in a row, at its end.

The decision is made token by token and depends on the text alone, so an answer ends at the same token with any drafter.
Similar lines, tables and lists of numbers are no repetition: a single other token in a block ends the run. A run that a
given text contains as well, such as a file with equal rows that is rewritten, is a copy and no loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MIN_BLOCK_TOKENS = 32  # a block has at least so many tokens: a shorter one is counted together with its repeats
MIN_SHORT_BLOCK_RUN = 256  # a block of fewer tokens, as in an array of zeros, has to go on for so many
COPY_CHECK_INTERVAL = 64  # tokens between two comparisons of a run with the given texts


@dataclass(frozen=True)
class Repetition:
    """A block of tokens, and how many times in a row it stands at the end."""

    block_tokens: int
    repeats: int

    def describe(self) -> str:
        """What was noticed, and how to switch it off."""
        unit = "token" if self.block_tokens == 1 else f"{self.block_tokens} tokens"
        return (
            f"stopped, because the answer repeats itself: the same {unit} {self.repeats} times in a row; "
            "limits.repeats = 0 in the profile turns this off"
        )


@dataclass
class RepetitionDetector:
    """Watches the tokens of one answer. `repeats` 0 turns it off.

    With repeats 3, 32 tokens that stand there three times are a repetition, and so are 8 tokens 32 times. `is_copied`
    says whether a given text contains these tokens.
    """

    repeats: int
    is_copied: Callable[[Sequence[int]], bool] = lambda _tokens: False
    _tokens: list[int] = field(default_factory=list[int], init=False)
    _last_end: dict[int, int] = field(default_factory=dict[int, int], init=False)  # of each window, by its hash
    _next_check: int = field(default=0, init=False)

    def add(self, token: int) -> Repetition | None:
        """Add the next token; the repetition that it completes, or None."""
        if not self.repeats:
            return None
        tokens = self._tokens
        tokens.append(token)
        length = len(tokens)
        if length < MIN_BLOCK_TOKENS:
            return None
        window = hash(tuple(tokens[-MIN_BLOCK_TOKENS:]))
        period = length - self._last_end.get(window, length)
        self._last_end[window] = length
        if not period or length < self._next_check or not self._is_run(period):
            return None
        run = self._run_length(period)
        if self.is_copied(tokens[-run:]):
            self._next_check = length + max(period, COPY_CHECK_INTERVAL)
            return None
        return Repetition(period, run // period)

    def _is_run(self, period: int) -> bool:
        """Whether the end has this period for long enough."""
        needed = self.repeats * period if period >= MIN_BLOCK_TOKENS else self._short_block_run(period)
        tokens = self._tokens
        return len(tokens) >= needed and tokens[period - needed :] == tokens[-needed:-period]

    def _short_block_run(self, period: int) -> int:
        blocks = -(-MIN_BLOCK_TOKENS // period)
        return max(MIN_SHORT_BLOCK_RUN, self.repeats * blocks * period)

    def _run_length(self, period: int) -> int:
        tokens, start = self._tokens, len(self._tokens) - period
        while start and tokens[start - 1] == tokens[start - 1 + period]:
            start -= 1
        return len(tokens) - start
