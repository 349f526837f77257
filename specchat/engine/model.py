"""What the engine asks of a model: one pass over a tree of draft tokens.

Knows tensors and positions; knows no drafter and no text. The implementations are in `specchat.forward`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVPool
from specchat.engine.tree import DraftTree

FINAL = -1  # the tap after the final norm; tap k is the residual stream after k layers
TAIL = 2048  # features of so many last tokens of a prompt are kept


@dataclass(frozen=True)
class Output:
    """What the network says at every node."""

    logits: Tensor  # [N, V]
    features: Tensor | None  # [N, taps * D]: the tapped hidden states side by side


class Model(Protocol):
    """A causal language model that scores every node of a tree in one pass."""

    vocabulary: int  # columns of the logits
    window: int  # longest text it was made for, in tokens
    chunk: int  # tokens of a prompt that it reads in one pass
    widest: int  # most nodes in one pass
    takes_trees: bool  # else chains only
    pool: KVPool  # where its keys and values live
    bytes: int  # what its weights take
    taps: tuple[int, ...]  # the hidden states that outputs carry now, side by side

    def forward(self, tree: DraftTree, cache: KVCache) -> Output:
        """Score every node. Their keys and values stay in the cache, uncommitted."""
        ...

    def read(self, tokens: list[int] | Tensor, cache: KVCache) -> Output:
        """Take in at most `chunk` tokens of a prompt and commit them; logits of the last one only.

        Tokens that are still on the device are read there, and nobody waits for them.
        """
        ...

    def tap(self, taps: tuple[int, ...]) -> None:
        """From now on, every output carries these hidden states."""
        ...

    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings as the first layer gets them, with the family's scaling if it has one. [n] -> [n, D]"""
        ...

    def score(self, hidden: Tensor) -> Tensor:
        """The output matrix alone, for hidden states that have passed the final norm. [n, D] -> [n, V]"""
        ...


class ExitingModel(Model, Protocol):
    """A model whose first layers can speak for all of them (LayerSkip, arXiv 2404.16710)."""

    def exit(self, tokens: list[int], cache: KVCache, layers: int) -> Tensor:
        """Read tokens with the first `layers` layers, the final norm and the output matrix. Logits of the last [1, V]

        Their keys and values stay in the cache, uncommitted. Deeper layers have none, so that such rows are good for
        further exits at the same layer and for nothing else.
        """
        ...


def columns(features: Tensor, taps: tuple[int, ...], wanted: tuple[int, ...]) -> Tensor:
    """Of hidden states tapped at `taps`, side by side, those at `wanted`. [n, taps * D] -> [n, wanted * D]"""
    if taps == wanted:
        return features
    parts = features.chunk(len(taps), dim=-1)
    return torch.cat([parts[taps.index(tap)] for tap in wanted], dim=-1)


def longest_text(wanted: int | None, trained: int | None) -> int:
    """The window of a model, in tokens: what is wanted, but never more than it was made for."""
    return min(wanted or 2**20, trained or 2**20)
