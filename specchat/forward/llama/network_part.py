"""Consecutive layers of a network on one device, and a pass over them.

Where a GPU has no room for all layers, the first ones, with the experts of a mixture, are a part in main memory. The
CPU computes them from their own weights and rows of the KV cache, and only hidden states, some kilobytes, go to the
GPU. There they are the input of the other part, as embeddings are where a network is whole. Knows tensors; knows no
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.forward.attention import build_attention_mask
from specchat.forward.batch import BatchLimits, ForwardBatch, ForwardDepth, HiddenStates, Nodes
from specchat.forward.llama.decoder_layer import DecoderStack
from specchat.forward.llama.gated_delta_net import RecurrentPass


@dataclass(frozen=True)
class NetworkPart:
    stack: DecoderStack
    limits: BatchLimits
    queries_per_kv: Mapping[int | None, int]  # of layers with each sliding window
    like: Tensor  # dtype and device

    def batch(self, nodes: Nodes, cache: KVCache) -> ForwardBatch:
        """The inputs of the layers beside hidden states: nodes that follow the committed rows."""
        host_batch, device = self.limits.batch_for_nodes(nodes, cache), self.like.device
        cache_rows = host_batch.cache_rows(cache, device) if self.stack.ops.reads_cache_rows else None
        masks = {
            window: build_attention_mask(host_batch, window, queries_per_kv, self.like)
            for window, queries_per_kv in self.queries_per_kv.items()
            if cache_rows is None
        }
        batch = host_batch.to_device(cache, masks, device)
        return batch if cache_rows is None else replace(batch, cache_rows=cache_rows)

    def forward(
        self, rows: Tensor, nodes: Nodes, cache: KVCache, depth: ForwardDepth, recurrent: RecurrentPass | None = None
    ) -> HiddenStates:
        """A row is computed alike in a tree and in a prompt; only what recurrent layers keep of it differs."""
        batch = self.batch(nodes, cache)
        return self.stack.forward(rows, batch if recurrent is None else replace(batch, recurrent=recurrent), depth)

    def rows_for_next(self, rows: Tensor, nodes: Nodes, cache: KVCache, depth: ForwardDepth) -> Tensor:
        """What the next part reads: hidden states, and those of earlier layers that the output of this depth contains.

        rows: embeddings on any device [N, D] -> [N, D + states * D]
        """
        last = self.stack.first_layer + len(self.stack.layers)
        own = replace(depth, hidden_state_layers=depth.states_before(last))
        states = self.forward(rows.to(self.like.device), nodes, cache, own)
        return states.final if states.selected is None else torch.cat((states.final, states.selected), dim=-1)
