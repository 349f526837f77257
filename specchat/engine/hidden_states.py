"""The target's hidden states of the text, as far as drafters that read on from them still need them.

Knows positions and tensors; which states they are is the business of who adds them.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.drafter import Outcome
from specchat.engine.model import MAX_PROMPT_HIDDEN_STATES, select_layers


class HiddenStateBuffer:
    """The target's hidden states of the last tokens of the text, without a gap."""

    def __init__(self, max_tokens: int = MAX_PROMPT_HIDDEN_STATES) -> None:
        self.max_tokens = max_tokens
        self.start = self.end = 0  # the tokens whose features are here
        self._chunks: deque[Tensor] = deque()  # [n, taps * D] each, in the order of the text

    def add(self, position: int, hidden_states: Tensor) -> None:
        """Features of the tokens from `position` on; what was known from there on is replaced."""
        self.truncate(position)
        if position != self.end:
            self._chunks.clear()
            self.start = self.end = position
        self._chunks.append(hidden_states)
        self.end += len(hidden_states)
        while self.end - self.start - len(self._chunks[0]) >= self.max_tokens:
            self.start += len(self._chunks.popleft())

    def observe(self, outcome: Outcome, available_layers: tuple[int, ...], wanted_layers: tuple[int, ...]) -> None:
        """Keep what became sure, of the states at `wanted`; nothing where the target does not tap them all."""
        if outcome.hidden_states is not None and all(tap in available_layers for tap in wanted_layers):
            position = outcome.root_position + len(outcome.path) - len(outcome.hidden_states)
            self.add(position, select_layers(outcome.hidden_states, available_layers, wanted_layers))

    def trim_cache(self, cache: KVCache, first_position: int, known_tokens: int, window: int) -> int:
        """Forget the rows of a cache that are too old, or all where the states of the text do not go on from them.

        `first` is the position of row 0, `known` how many tokens there are states of; returns what `first` is now.
        """
        begin = first_position + cache.length
        if cache.length == 0 or begin < self.start or known_tokens - begin > window:
            cache.rollback(0)
            return max(self.start, known_tokens - window)
        if cache.length + known_tokens - begin > 2 * window:
            kept = list(range(cache.length - window, cache.length))
            cache.rollback(0)
            cache.commit(kept)
            return begin - window
        return first_position

    def truncate(self, length: int) -> None:
        """Keep those of the first `length` tokens only."""
        while self._chunks and self.end > length:
            last = self._chunks.pop()
            self.end -= len(last)
            if self.end < length:
                self._chunks.append(last[: length - self.end])
                self.end = length

    def slice_from(self, position: int) -> Tensor:
        """Those of the tokens from `position` on. [n, taps * D]"""
        runs, missing = list[Tensor](), self.end - position
        for features in reversed(self._chunks):
            if missing <= 0:
                break
            runs.append(features[-missing:])
            missing -= len(features)
        return torch.cat(runs[::-1])
