"""Consecutive layers of a network on one device, and a pass over them.

Where a GPU has no room for all layers, the first ones, with the experts of a mixture, are parts in main memory or on
other GPUs. Each device computes its own from their weights and rows of the KV cache, and only hidden states, some
kilobytes, go to the next one, at last to the device of the model. There they are the input of its part, as embeddings
are where a network is whole. On other GPUs a part has CUDA graphs of its own. Knows tensors; knows no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specchat.devices import kind_of, launching_on
from specchat.engine.cache import KVCache
from specchat.engine.kv_arena import KVArena
from specchat.engine.model import CaptureProgress
from specchat.forward.attention import AttentionMask, build_attention_mask
from specchat.forward.batch import BatchLimits, ForwardBatch, ForwardDepth, HiddenStates, Nodes
from specchat.forward.cuda.cuda_graphs import CudaGraphCapture, CudaGraphs, GraphedNetwork
from specchat.forward.llama.decoder_layer import DecoderStack
from specchat.forward.llama.gated_delta_net import RecurrentPass


@dataclass(frozen=True)
class NetworkPart:
    stack: DecoderStack
    limits: BatchLimits
    queries_per_kv: Mapping[int | None, int]  # of layers with each sliding window
    like: Tensor  # dtype and device
    graphs: CudaGraphs[Tensor] | None = None  # of passes for the next part

    def with_graphs(self, arena: KVArena | None, no_rows: Callable[[ForwardDepth], Tensor]) -> NetworkPart:
        """The same part; on a GPU with an arena, with CUDA graphs of what the next one reads. None is captured yet."""
        device, stack = self.like.device, self.stack
        if arena is None or not kind_of(device).has_graphs:
            return self
        network = GraphedNetwork(
            lambda rows, batch, _noise, depth: _joined(stack.forward(rows, batch, depth)),
            lambda depth: no_rows(depth).to(device), stack.sliding_windows, self.attention_mask,
            stack.ops.reads_cache_rows,
        )  # fmt: skip
        return replace(self, graphs=CudaGraphs(CudaGraphCapture(device), arena, network, exact=self.limits.exact))

    def attention_mask(self, allowed: Tensor, window: int | None) -> AttentionMask:
        """That of the rows that each row sees in layers with this window."""
        return AttentionMask(allowed, self.queries_per_kv[window], self.like)

    def own_depth(self, depth: ForwardDepth) -> ForwardDepth:
        """A depth of the network, as far as the next part needs states of this one and of those before it."""
        return replace(depth, hidden_state_layers=depth.states_before(self.stack.first_layer + len(self.stack.layers)))

    def capture_graphs(self, depth: ForwardDepth, progress: CaptureProgress) -> None:
        if self.graphs is not None:
            with launching_on(self.like.device):
                self.graphs.capture_all(self.own_depth(depth), progress)

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

        rows: embeddings, or those of the part before, on any device [N, D + states * D] -> [N, D + states * D], which
        are valid until the next pass
        """
        own, device = self.own_depth(depth), self.like.device
        with launching_on(device):
            rows = rows.to(device, non_blocking=kind_of(device).is_gpu)
            if self.graphs is not None and (output := self.graphs.run(nodes, rows, cache, own)) is not None:
                return output[: len(rows)]
            return _joined(self.forward(rows, nodes, cache, own))


def _joined(states: HiddenStates) -> Tensor:
    return states.final if states.selected is None else torch.cat((states.final, states.selected), dim=-1)
