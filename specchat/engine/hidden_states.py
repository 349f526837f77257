"""The target's hidden states of the text, as far as drafters that read on from them still need them.

Knows positions and tensors; which states they are is the business of who adds them.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.drafter import Outcome
from specchat.engine.model import TAIL, columns


class Features:
    """The target's hidden states of the last tokens of the text, without a gap."""

    def __init__(self, most: int = TAIL) -> None:
        self.most = most
        self.start = self.end = 0  # the tokens whose features are here
        self._runs: deque[Tensor] = deque()  # [n, taps * D] each, in the order of the text

    def add(self, position: int, features: Tensor) -> None:
        """Features of the tokens from `position` on; what was known from there on is replaced."""
        self.cut(position)
        if position != self.end:
            self._runs.clear()
            self.start = self.end = position
        self._runs.append(features)
        self.end += len(features)
        while self.end - self.start - len(self._runs[0]) >= self.most:
            self.start += len(self._runs.popleft())

    def hear(self, outcome: Outcome, tapped: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        """Keep what became sure, of the states at `wanted`; nothing where the target does not tap them all."""
        if outcome.features is not None and all(tap in tapped for tap in wanted):
            position = outcome.position + len(outcome.path) - len(outcome.features)
            self.add(position, columns(outcome.features, tapped, wanted))

    def connect(self, cache: KVCache, first: int, known: int, window: int) -> int:
        """Forget the rows of a cache that are too old, or all where the states of the text do not go on from them.

        `first` is the position of row 0, `known` how many tokens there are states of; returns what `first` is now.
        """
        begin = first + cache.length
        if cache.length == 0 or begin < self.start or known - begin > window:
            cache.rollback(0)
            return max(self.start, known - window)
        if cache.length + known - begin > 2 * window:
            kept = list(range(cache.length - window, cache.length))
            cache.rollback(0)
            cache.commit(kept)
            return begin - window
        return first

    def cut(self, length: int) -> None:
        """Keep those of the first `length` tokens only."""
        while self._runs and self.end > length:
            last = self._runs.pop()
            self.end -= len(last)
            if self.end < length:
                self._runs.append(last[: length - self.end])
                self.end = length

    def after(self, position: int) -> Tensor:
        """Those of the tokens from `position` on. [n, taps * D]"""
        runs, missing = list[Tensor](), self.end - position
        for features in reversed(self._runs):
            if missing <= 0:
                break
            runs.append(features[-missing:])
            missing -= len(features)
        return torch.cat(runs[::-1])
