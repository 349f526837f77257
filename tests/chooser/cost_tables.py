"""A model that is a table: what follows hangs on the last token alone, so that every probability is known."""

from __future__ import annotations

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.model import Output
from specchat.engine.tree import DraftTree


class TableModel:
    """Logits by token [V, V]. Its keys and values are nothing but rows to count."""

    def __init__(self, table: Tensor) -> None:
        self.table, self.vocabulary = table, len(table)
        self.window, self.chunk, self.widest, self.takes_trees = 2**20, 64, 64, True
        self.pool = KVPool(KVLayout(((1, 1, 1),), torch.float32, torch.device("cpu")))
        self.bytes, self.taps = 0, ()

    def forward(self, tree: DraftTree, cache: KVCache) -> Output:
        """[N, V]"""
        return Output(self.table[tree.tokens], None)

    def read(self, tokens: list[int], cache: KVCache) -> Output:
        """[1, V]"""
        cache.commit(list(range(len(tokens))))
        return Output(self.table[tokens[-1:]], None)

    def tap(self, taps: tuple[int, ...]) -> None:
        """There is nothing to tap."""

    def embed(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, V]"""
        return self.table[tokens]

    def score(self, hidden: Tensor) -> Tensor:
        """[n, V] -> [n, V]"""
        return hidden
