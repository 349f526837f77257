"""Notices an answer that repeats itself word for word: the same block of tokens, several times in a row, at its end.

The decision is made token by token and depends on the text alone, so an answer ends at the same token with any drafter,
and is cut back to the same place. Similar lines, tables and lists of numbers are no repetition: a single other token in
a block ends the run. A run that a given text contains as well, such as a file with equal rows that is rewritten, is a
copy and no loop. From the second block of a run on, nothing is shown until that is decided, at most about 96 tokens or
a third block later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specchat.hub.model_size import LARGER_MODEL

EXPLANATION = f"stopped, because the model began to repeat itself; ask for less at once, or {LARGER_MODEL}"
WINDOW_TOKENS = 32  # of which the last occurrence gives the length of a block
MIN_RUN_TOKENS = 96  # a run has at least so many tokens, also of short blocks, as in an array of zeros
COPY_CHECK_INTERVAL = 64  # tokens between two comparisons of a run with the given texts


@dataclass(frozen=True)
class Repetition:
    """A block of tokens, how many times in a row it stands at the end, and how many tokens remain with the first one.

    What remains ends at the end of a line or a sentence, where the block has one.
    """

    block_tokens: int
    repeats: int
    kept_tokens: int


@dataclass
class RepetitionDetector:
    """Watches the tokens of one answer. With `repeats` 0 a run is known and nothing ends.

    With repeats 3, 32 tokens that stand there three times are a repetition, and so are 8 tokens 12 times. `is_copied`
    says whether a given text contains these tokens, and `end_quality` how well a text can end behind a token.
    """

    repeats: int
    is_copied: Callable[[Sequence[int]], bool] = lambda _tokens: False
    end_quality: Callable[[int], int] = lambda _token: 0
    _tokens: list[int] = field(default_factory=list[int], init=False)
    _last_end: dict[int, int] = field(default_factory=dict[int, int], init=False)  # of each window, by its hash
    _period: int = field(default=0, init=False)  # of the run at the end; 0: there is none
    _run: int = field(default=0, init=False)  # its tokens, with the first block
    _next_check: int = field(default=0, init=False)
    _decided: int = field(default=0, init=False)

    @property
    def is_in_run(self) -> bool:
        """Whether the last tokens repeat the block before them: nothing should be learned from how they are drafted."""
        return self._period > 0 and self._run >= 2 * self._period

    @property
    def undecided_tokens(self) -> int:
        """How many of the last tokens may turn out to be repeats that are cut off: not yet to be shown."""
        return len(self._tokens) - self._decided

    def add(self, token: int) -> Repetition | None:
        """Add the next token; the repetition that it completes, or None."""
        self._tokens.append(token)
        self._follow_run()
        length = len(self._tokens)
        if not (self.repeats and self.is_in_run) or length < self._next_check:
            self._decided = length
        elif self._run >= max(self.repeats * self._period, MIN_RUN_TOKENS):
            if not self.is_copied(self._tokens[-self._run :]):
                return Repetition(self._period, self._run // self._period, self._end_of_first_block())
            self._next_check = length + max(self._period, COPY_CHECK_INTERVAL)
            self._decided = length
        return None

    def add_all(self, tokens: Sequence[int]) -> tuple[Sequence[int], Repetition | None]:
        """Add tokens up to the one that completes a repetition; those that were added, and the repetition."""
        for number, token in enumerate(tokens, 1):
            if repetition := self.add(token):
                return tokens[:number], repetition
        return tokens, None

    def _follow_run(self) -> None:
        tokens, length = self._tokens, len(self._tokens)
        window = hash(tuple(tokens[-WINDOW_TOKENS:]))
        period = length - self._last_end.get(window, length)
        if length >= WINDOW_TOKENS:
            self._last_end[window] = length
        if period and period == self._period:
            self._run += 1
        else:
            self._period, self._run = period, self._run_length(period) if period else 0

    def _run_length(self, period: int) -> int:
        tokens, start = self._tokens, len(self._tokens) - period
        while start and tokens[start - 1] == tokens[start - 1 + period]:
            start -= 1
        return len(tokens) - start

    def _end_of_first_block(self) -> int:
        """A run may begin in the middle of a sentence; each of its blocks has the same ends of lines and sentences."""
        first = len(self._tokens) - self._run + self._period
        ends = range(first, first + self._period)
        return max(ends, key=lambda end: (self.end_quality(self._tokens[end - 1]), -end))
