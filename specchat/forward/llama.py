"""The dense Llama family without transformers: Llama, Qwen2, Qwen3, Mistral and networks of the same architecture.

Fused matmuls, packed weights, and one table of rotary embeddings. It computes what transformers computes. Knows
tensors; knows no file.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.device import copy_to_device
from specchat.engine.model import ModelOutput
from specchat.engine.tree import DraftTree
from specchat.forward.attention import BLOCK_ROWS, additive_mask, attention, build_additive_mask, split_mask_into_blocks
from specchat.forward.batch import (
    EXACT_ROWS,
    BatchLimits,
    ForwardBatch,
    ForwardDepth,
    HiddenStates,
    Nodes,
    RowBatch,
    chain_nodes,
)
from specchat.forward.cuda_graphs import Capture, CudaGraphs
from specchat.forward.decoder_layer import Attention, DecoderLayer, DecoderStack, RopeAngles
from specchat.forward.fused_ops import AttentionDimensions, TorchOps, select_fused_ops
from specchat.forward.linear import Linear, batch_invariant_from

TESTED_KV_LENGTH = 600  # more keys than one step of torch's attention kernel takes


@dataclass(frozen=True)
class Dimensions:
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    epsilon: float
    max_position_embeddings: int


@dataclass(frozen=True)
class Weights:
    """All weights. The embedding may be on the CPU while everything else is on a GPU."""

    embedding: Tensor  # [V, D]
    layers: list[DecoderLayer]
    norm: Tensor  # [D]
    lm_head: Linear  # -> V
    rope: tuple[Tensor, Tensor]  # cosine and sine of every position [max_position_embeddings, head_size]
    bytes: int


class LlamaModel:
    """A model of the dense Llama family. With `capture`, passes over few nodes are CUDA graphs.

    In exact mode every pass looks at the same number of keys, torch computes attention in blocks of rows, and a pass
    has at least the number of rows from which matmuls are batch invariant: one or two for most packed and int8 weights.
    """

    def __init__(
        self,
        dimensions: Dimensions,
        weights: Weights,
        context_window: int,
        limits: BatchLimits,
        capture: Capture | None = None,
    ) -> None:
        self.dimensions, self.weights, self.limits = dimensions, weights, limits
        self.device, self._like = weights.norm.device, weights.norm
        self.context_window, self.vocab_size, self.bytes = context_window, dimensions.vocab_size, weights.bytes
        self.prefill_chunk, self.max_rows, self.supports_trees = limits.prefill_chunk, limits.max_rows, not limits.exact
        kv_shape = (dimensions.kv_heads, dimensions.head_size, dimensions.head_size)
        self.pool = KVPool(KVLayout((kv_shape,) * len(weights.layers), self._like.dtype, self.device))
        self.hidden_state_layers: tuple[int, ...] = ()
        sizes = AttentionDimensions(dimensions.heads, dimensions.kv_heads, dimensions.head_size, dimensions.epsilon)
        allows_native_ops = capture is None and _have_one_dtype(weights)  # native kernels cannot be captured
        self.ops = select_fused_ops(sizes, self._like) if allows_native_ops else TorchOps(sizes)
        self._stack = DecoderStack(weights.layers, weights.norm, self.ops, self._rope_angles)
        self.graphs = (
            CudaGraphs(capture, self._stack.sliding_windows, self._additive_mask) if capture is not None else None
        )
        self._min_rows = self._batch_invariant_from() if limits.exact and self.graphs is None else 0

    def set_hidden_state_layers(self, hidden_state_layers: tuple[int, ...]) -> None:
        self.hidden_state_layers = hidden_state_layers

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        table = self.weights.embedding
        return table[tokens.to(table.device)].to(self.device, non_blocking=True)

    @torch.inference_mode()
    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        return self.weights.lm_head(hidden_states)

    def forward_early_exit(self, tokens: list[int], cache: KVCache, exit_layer: int) -> Tensor:
        return self.compute_logits(self._forward(chain_nodes(tokens), cache, ForwardDepth(exit_layer)).final[-1:])

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        nodes, count = self.limits.nodes(tree), len(tree)
        if self._min_rows:
            host_batch = self.limits.batch_for_nodes(nodes, cache)
            batch = self._batch_invariant_batch(host_batch, cache, max(count, self._min_rows))
            states = self._forward_layers(batch, self._full_depth)
        else:
            states = self._forward(nodes, cache, self._full_depth)
        selected = states.selected[:count] if states.selected is not None else None
        return ModelOutput(self.compute_logits(states.final)[:count], selected)

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        states = self._forward(chain_nodes(tokens), cache, self._full_depth)
        cache.commit(list(range(len(tokens))))
        return ModelOutput(self.compute_logits(states.final[-1:]), states.selected)

    def draft_chain(
        self, token: Tensor, steps: int, cache: KVCache, sample: Callable[[Tensor], Tensor], graph_key: Hashable
    ) -> Tensor | None:
        """The tokens that follow a token on the device, each sampled from the logits after the one before. [steps]

        One CUDA graph; None without graphs. The rows stay uncommitted. `sample` maps logits [1, V] to a token [1], and
        `graph_key` distinguishes different `sample` functions.
        """
        if self.graphs is None:
            return None
        depth = ForwardDepth(len(self.weights.layers))

        def step(batch: ForwardBatch) -> Tensor:
            return sample(self.compute_logits(self._forward_layers(batch, depth).final))

        return self.graphs.run_chain(token, steps, cache, step, graph_key)

    @property
    def _full_depth(self) -> ForwardDepth:
        return ForwardDepth(len(self.weights.layers), self.hidden_state_layers)

    def _forward(self, nodes: Nodes, cache: KVCache, depth: ForwardDepth) -> HiddenStates:
        if self.graphs is not None:
            states = self.graphs.run(nodes, cache, depth, self._forward_layers, self.limits.exact)
            if states is not None:
                return states
        return self._forward_layers(self._forward_batch(self.limits.batch_for_nodes(nodes, cache), cache), depth)

    def _forward_layers(self, batch: ForwardBatch, depth: ForwardDepth) -> HiddenStates:
        return self._stack.forward(self.embed(batch.tokens), batch, depth)

    def _forward_batch(self, host_batch: RowBatch, cache: KVCache) -> ForwardBatch:
        queries_per_kv = self.dimensions.heads // self.dimensions.kv_heads
        masks = {
            window: build_additive_mask(host_batch, window, queries_per_kv, self._like)
            for window in self._stack.sliding_windows
        }
        return host_batch.to_device(cache, masks, self.device, copy_to_device(host_batch.tokens, self.device))

    def _batch_invariant_batch(self, host_batch: RowBatch, cache: KVCache, count: int) -> ForwardBatch:
        """The first `count` nodes of a padded batch, in a form in which each row is bit-identical for every `count`.

        Where attention is not batch invariant it computes blocks of rows, and padding nodes fill the last one.
        """
        batch = self._forward_batch(host_batch, cache)
        batch = replace(batch, tokens=batch.tokens[:count], positions=batch.positions[:count], is_batch_invariant=True)
        if self.ops.is_batch_invariant(host_batch.kv_length):
            return batch
        blocks = -(-count // BLOCK_ROWS)
        masks = {
            window: split_mask_into_blocks(mask, len(host_batch.tokens), blocks) if mask is not None else None
            for window, mask in batch.masks.items()
        }
        return replace(batch, masks=masks, kv_location=None)

    @torch.inference_mode()
    def _batch_invariant_from(self) -> int:
        """The number of rows from which a row is bit-identical in every batch, measured with the first layer."""
        layer, sizes, norm = self.weights.layers[0], self.dimensions, self.ops.rms_norm
        self_attn, input_norm = layer.self_attn, layer.input_layernorm
        assert isinstance(self_attn, Attention) and input_norm is not None, "no layer of the dense Llama family"
        keys = torch.linspace(-1, 1, sizes.kv_heads * TESTED_KV_LENGTH * sizes.head_size).sin_().to(self._like)
        keys = keys.view(1, sizes.kv_heads, TESTED_KV_LENGTH, sizes.head_size)
        mask = self._additive_mask(torch.ones(EXACT_ROWS, TESTED_KV_LENGTH).bool()).to(self.device)

        def attend(rows: Tensor) -> Tensor:
            blocks = split_mask_into_blocks(mask, EXACT_ROWS, -(-len(rows) // BLOCK_ROWS))
            return attention(rows.view(len(rows), sizes.heads, -1), keys, keys, blocks)

        parts = (
            (attend, sizes.heads * sizes.head_size),
            (lambda rows: self_attn.qkv_proj(norm(rows, input_norm)), len(self._like)),
            (self_attn.o_proj, sizes.heads * sizes.head_size),
            (lambda rows: layer.mlp(norm(rows, layer.post_attention_layernorm), self.ops), len(self._like)),
            (lambda rows: self.compute_logits(norm(rows, self.weights.norm)), len(self._like)),
        )
        return max(batch_invariant_from(part, inputs, self._like) for part, inputs in parts)

    def _rope_angles(self, positions: Tensor) -> RopeAngles:
        cos, sin = self.weights.rope
        return RopeAngles(cos[positions][:, None], sin[positions][:, None])

    def _additive_mask(self, attention_mask: Tensor) -> Tensor:
        return additive_mask(attention_mask, self.dimensions.heads // self.dimensions.kv_heads, self._like)


def _have_one_dtype(weights: Weights) -> bool:
    norms = [norm for layer in weights.layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)]
    return all(each is not None and each.dtype == weights.norm.dtype for each in (weights.embedding, *norms))
