"""The target's hidden states of the text, as far as drafters that read on from them still need them.

Knows positions and tensors; which states they are is the business of who adds them.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from specchat.engine.model import TAIL


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
