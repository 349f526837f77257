"""A model that is a table: its logits depend on the last token alone, so that every probability is known."""

from __future__ import annotations

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.model import ModelOutput
from specchat.engine.tree import DraftTree


class TableModel:
    """Logits by token [V, V]. Its KV cache only counts rows."""

    def __init__(self, table: Tensor) -> None:
        self.table, self.vocab_size = table, len(table)
        self.context_window, self.prefill_chunk, self.max_rows, self.supports_trees, self.is_exact = (
            2**20,
            64,
            64,
            True,
            True,
        )
        self.pool = KVPool(KVLayout(((1, 1, 1),), torch.float32, torch.device("cpu")))
        self.bytes, self.hidden_state_layers, self.graph_widths = 0, (), ()

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        """[N, V]"""
        return ModelOutput(self.table[tree.tokens], None)

    def prefill(self, tokens: list[int], cache: KVCache) -> ModelOutput:
        """[1, V]"""
        cache.commit(list(range(len(tokens))))
        return ModelOutput(self.table[tokens[-1:]], None)

    def set_hidden_state_layers(self, hidden_state_layers: tuple[int, ...]) -> None:
        """A table has no hidden states."""

    def embed(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, V]"""
        return self.table[tokens]

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """[n, V] -> [n, V]"""
        return hidden_states
