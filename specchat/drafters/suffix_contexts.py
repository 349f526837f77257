"""The places of a text, and of other texts, whose context is the end of the text: what came before is the same.

A text grows and shrinks, so its contexts are found by comparing all of its positions. The texts of other conversations
do not change during this one, so their positions are sorted by their contexts, in a suffix array. `native_suffix.py`
finds the same in one call. Knows token ids only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_CONTEXT_TOKENS = 32  # longest distinguished context
MAX_MATCHES = 8  # earlier positions whose continuations are counted
MAX_NEIGHBOURS = 16  # positions of other conversations that are compared
MIN_PAST_TEXT_MATCH = 4  # matched tokens in other conversations: shorter matches are accidental
MIN_PROBABILITY = 0.03  # of a draft token
WEIGHT_PER_MATCHED_TOKEN = 10.0  # factor on the weight of a match for each matched token
MIN_CAPACITY = 64  # tokens that an index has room for
TEXT_END = -1  # separates the other texts; equal to no token


class ContextMatch(NamedTuple):
    """A position whose context is the end of the text."""

    tokens: NDArray[np.int32]
    next_index: int  # of the token that followed
    matched_tokens: int  # before it
    is_own: bool = True  # in this conversation, and not in another one

    @property
    def weight(self) -> float:
        return WEIGHT_PER_MATCHED_TOKEN**self.matched_tokens


class TextIndex:
    """The tokens of a text as numbers of the machine, in which contexts are found by comparing all of them."""

    def __init__(self, max_context: int = MAX_CONTEXT_TOKENS) -> None:
        self.max_context, self.length = max_context, 0
        self._hold(np.empty(MIN_CAPACITY, np.int32))

    def _hold(self, numbers: NDArray[np.int32]) -> None:
        self._numbers, self.address = numbers, numbers.ctypes.data

    @property
    def numbers(self) -> NDArray[np.int32]:
        """The tokens. [length]"""
        return self._numbers[: self.length]

    @property
    def bytes(self) -> int:
        return self._numbers.nbytes

    def extend(self, tokens: Sequence[int]) -> None:
        """Add the tokens beyond the known text; `tokens` must start with that text."""
        start, self.length = self.length, len(tokens)
        if self.length > len(self._numbers):
            self._hold(np.resize(self._numbers, self.length + self.length // 2))
        self._numbers[start : self.length] = tokens[start:]

    def truncate(self, length: int) -> None:
        self.length = min(length, self.length)
        if self.length < len(self._numbers) // 4:
            self._hold(self._numbers[: max(2 * self.length, MIN_CAPACITY)].copy())

    def find(self, max_matches: int) -> list[ContextMatch]:
        """Positions whose context is the end of the text: longest context first, then latest."""
        text, deepest = self.numbers, min(self.max_context, self.length)
        ends = np.flatnonzero(text[:-1] == text[-1]) + 1 if self.length else np.empty(0, np.int64)
        matched, depth = np.ones_like(ends), 1
        while depth < deepest:
            longer = ends[matched == depth]
            longer = longer[longer > depth]
            longer = longer[text[longer - depth - 1] == text[-depth - 1]]
            if not len(longer):
                break
            depth += 1
            matched[np.searchsorted(ends, longer)] = depth
        best = np.lexsort((-ends, -matched))[:max_matches]
        return [ContextMatch(text, int(ends[each]), int(matched[each])) for each in best]


class SuffixArray:
    """All positions of texts that do not change, sorted by their reversed contexts: a suffix array.

    Positions with similar contexts are neighbours, so a binary search finds the longest match.
    """

    def __init__(self, texts: Iterable[Sequence[int]], max_depth: int = MAX_CONTEXT_TOKENS) -> None:
        self.max_depth = max_depth
        self.tokens = np.array([token for text in texts for token in (*text, TEXT_END)], np.int32)
        self.positions = self._build() if len(self.tokens) else np.empty(0, np.int64)
        self.tokens_address, self.positions_address = self.tokens.ctypes.data, self.positions.ctypes.data

    def find(self, text: Sequence[int], max_matches: int) -> list[ContextMatch]:
        """Positions whose context is the end of `text`: longest context first, then the latest of those compared."""
        context = list(text[: -self.max_depth - 1 : -1])
        middle = bisect_left(self.positions, context, key=self._reversed_context)
        after = (self._match_at(index, context) for index in range(middle, len(self.positions)))
        before = (self._match_at(index, context) for index in range(middle - 1, -1, -1))
        nearest = merge(after, before, key=lambda match: -match.matched_tokens)  # matches get shorter with the distance
        matches = [match for match in islice(nearest, MAX_NEIGHBOURS) if match.matched_tokens]
        return sorted(matches, key=lambda match: (-match.matched_tokens, -match.next_index))[:max_matches]

    def _reversed_context(self, end: int) -> list[int]:
        return self.tokens[max(end - self.max_depth, 0) : end][::-1].tolist()

    def _match_at(self, index: int, reversed_text: list[int]) -> ContextMatch:
        end, matched = int(self.positions[index]), 0
        for own_token, text_token in zip(self._reversed_context(end), reversed_text, strict=False):
            if own_token != text_token:
                break
            matched += 1
        return ContextMatch(self.tokens, end, matched, is_own=False)

    def _build(self) -> NDArray[np.int64]:
        """Prefix doubling (Manber and Myers): ranks of contexts of length n give those of length 2n."""
        tokens = self.tokens
        ranks, length = np.unique(tokens, return_inverse=True)[1].astype(np.int64) + 1, 1
        while length < self.max_depth:
            before = np.zeros_like(ranks)
            before[length:] = ranks[:-length]
            ranks = np.unique(ranks * (len(ranks) + 2) + before, return_inverse=True)[1].astype(np.int64) + 1
            length *= 2
        ends = np.arange(1, len(tokens))[tokens[1:] != TEXT_END]  # only positions that a token follows
        return ends[np.lexsort((-ends, ranks[ends - 1]))]


def find_contexts(index: TextIndex, past: SuffixArray) -> list[ContextMatch]:
    """In a text and in other ones, the longest contexts first; of equals those of the text, then the latest."""
    past_matches = past.find(index.numbers.tolist()[-past.max_depth :], MAX_MATCHES) if len(past.positions) else []
    matches = index.find(MAX_MATCHES) + [each for each in past_matches if each.matched_tokens >= MIN_PAST_TEXT_MATCH]
    return sorted(matches, key=lambda match: -match.matched_tokens)
