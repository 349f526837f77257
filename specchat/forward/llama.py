"""A pass of the dense Llama family, written out: fused products, packed weights, rope from a table.

Llama, Qwen2, Qwen3, Mistral and what shares their shape. It computes what transformers computes and nothing besides,
and needs none of its modelling code. Knows tensors; how they came from a file is not its business.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.device import copy_to_device
from specchat.engine.model import FINAL_NORM, ModelOutput
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
from specchat.forward.fused_ops import AttentionDimensions, QKVInputs, TorchOps, select_fused_ops
from specchat.forward.linear import Linear, batch_invariant_from

TESTED_KV_LENGTH = 600  # rows of keys to try attention with: more than it takes at once


@dataclass(frozen=True)
class Dimensions:
    """The numbers of a network."""

    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    epsilon: float
    max_position_embeddings: int  # positions that it was made for


@dataclass(frozen=True)
class Layer:
    """Weights of one layer. Query, key and value are one product; gate and up another."""

    input_layernorm: Tensor  # norm [D]
    qkv_proj: Linear  # -> (H + 2 KV) * head_size
    q_norm: Tensor | None  # [head_size]
    k_norm: Tensor | None
    o_proj: Linear
    post_attention_layernorm: Tensor  # norm [D]
    gate_up_proj: Linear
    down_proj: Linear
    sliding_window: int | None  # positions that it looks back; None: all


@dataclass(frozen=True)
class Weights:
    """Everything that a pass multiplies with. The embedding may lie on the CPU while all else is on a card."""

    embedding: Tensor  # [V, D]
    layers: list[Layer]
    norm: Tensor  # [D]
    lm_head: Linear  # -> V
    rope: tuple[Tensor, Tensor]  # cosine and (in its first half negative) sine of every position [longest, head_size]
    bytes: int


class LlamaModel:
    """A model of the dense Llama family over our own passes. With `record`, passes over few nodes are replayed.

    In exact mode every pass looks at one width of keys, attention by torch takes rows in blocks, and there are at least
    as many rows as products need to round each alike in any company: one or two, for most that are packed or integer.
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
        windows = frozenset(layer.sliding_window for layer in weights.layers)
        self.graphs = CudaGraphs(capture, windows, self._additive_mask) if capture is not None else None
        self.context_window, self.vocab_size, self.bytes = context_window, dimensions.vocab_size, weights.bytes
        self.prefill_chunk, self.max_rows, self.supports_trees = limits.prefill_chunk, limits.max_rows, not limits.exact
        rows = ((dimensions.kv_heads, dimensions.head_size, dimensions.head_size),) * len(weights.layers)
        self.pool = KVPool(KVLayout(rows, self._like.dtype, self.device))
        self.hidden_state_layers: tuple[int, ...] = ()
        heads = AttentionDimensions(dimensions.heads, dimensions.kv_heads, dimensions.head_size, dimensions.epsilon)
        is_for_kernels = capture is None and _have_one_dtype(weights)  # those of ours cannot be recorded
        self.ops = select_fused_ops(heads, self._like) if is_for_kernels else TorchOps(heads)
        self._min_rows = self._batch_invariant_from() if limits.exact and self.graphs is None else 0

    def set_hidden_state_layers(self, hidden_state_layers: tuple[int, ...]) -> None:
        """From now on, every output carries these hidden states."""
        self.hidden_state_layers = hidden_state_layers

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings. [n] -> [n, D]"""
        table = self.weights.embedding
        return table[tokens.to(table.device)].to(self.device, non_blocking=True)

    @torch.inference_mode()
    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """The output matrix alone. [n, D] -> [n, V]"""
        return self.weights.lm_head(hidden_states)

    def forward_early_exit(self, tokens: list[int], cache: KVCache, exit_layer: int) -> Tensor:
        """Read tokens with the first layers only; their rows stay uncommitted. Logits of the last [1, V]"""
        return self.compute_logits(self._forward(chain_nodes(tokens), cache, ForwardDepth(exit_layer)).final[-1:])

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        """Score every node of the tree in one pass. [N, V]"""
        nodes, count = self.limits.nodes(tree), len(tree)
        if self._min_rows:
            laid = self._batch_invariant_batch(
                self.limits.batch_for_nodes(nodes, cache), cache, max(count, self._min_rows)
            )
            states = self._forward_layers(laid, self._full_depth)
        else:
            states = self._forward(nodes, cache, self._full_depth)
        return ModelOutput(
            self.compute_logits(states.final)[:count], states.selected[:count] if states.selected is not None else None
        )

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        """Take in a chunk of a prompt and commit it. Logits [1, V], features [len(tokens), taps * D]"""
        states = self._forward(chain_nodes(tokens), cache, self._full_depth)
        cache.commit(list(range(len(tokens))))
        return ModelOutput(self.compute_logits(states.final[-1:]), states.selected)

    def draft_chain(
        self, token: Tensor, steps: int, cache: KVCache, sample: Callable[[Tensor], Tensor], graph_key: Hashable
    ) -> Tensor | None:
        """Tokens behind one that is on the device, each picked from what was said after the one before. [links]

        In one recording; None without recordings. Rows stay uncommitted. `pick` makes tokens [1] of logits [1, V], and
        `kind` tells apart what it does.
        """
        if self.graphs is None:
            return None
        depth = ForwardDepth(len(self.weights.layers))
        return self.graphs.run_chain(
            token,
            steps,
            cache,
            lambda laid: sample(self.compute_logits(self._forward_layers(laid, depth).final)),
            graph_key,
        )

    @property
    def _full_depth(self) -> ForwardDepth:
        return ForwardDepth(len(self.weights.layers), self.hidden_state_layers)

    def _forward(self, nodes: Nodes, cache: KVCache, depth: ForwardDepth) -> HiddenStates:
        if self.graphs is not None:
            states = self.graphs.run(nodes, cache, depth, self._forward_layers, self.limits.exact)
            if states is not None:
                return states
        return self._forward_layers(self._forward_batch(self.limits.batch_for_nodes(nodes, cache), cache), depth)

    def _forward_batch(self, host_batch: RowBatch, cache: KVCache) -> ForwardBatch:
        device, windows = self.device, {layer.sliding_window for layer in self.weights.layers}
        return ForwardBatch(
            copy_to_device(host_batch.tokens, device),
            copy_to_device(host_batch.positions, device),
            {window: self._attention_mask(host_batch, window) for window in windows},
            partial(cache.write, kv_length=host_batch.kv_length),
            partial(cache.kv_location, kv_length=host_batch.kv_length),
        )

    def _batch_invariant_batch(self, host_batch: RowBatch, cache: KVCache, count: int) -> ForwardBatch:
        """The first `count` nodes of a padded pass, laid out so that each is computed alike in any company.

        Where attention itself does not do so, it gets blocks, of which idle nodes fill the last.
        """
        laid = self._forward_batch(host_batch, cache)
        laid = replace(laid, tokens=laid.tokens[:count], positions=laid.positions[:count], is_exact=True)
        if self.ops.is_batch_invariant(host_batch.kv_length):
            return laid
        masks = {
            window: split_mask_into_blocks(mask, len(host_batch.tokens), -(-count // BLOCK_ROWS))
            if mask is not None
            else None
            for window, mask in laid.masks.items()
        }
        return replace(laid, masks=masks, place=None)

    @torch.inference_mode()
    def _forward_layers(self, batch: ForwardBatch, depth: ForwardDepth) -> HiddenStates:
        """A pass through the first layers and the final norm."""
        weights, between, seen = self.weights, self.ops, dict[int, Tensor]()
        cosine, sine = weights.rope[0][batch.positions][:, None], weights.rope[1][batch.positions][:, None]
        layers = weights.layers[: depth.layers]
        hidden = seen[0] = self.embed(batch.tokens)
        normed = between.rms_norm(hidden, layers[0].input_layernorm)
        for index, layer in enumerate(layers):
            asked = QKVInputs(layer.qkv_proj(normed), layer.q_norm, layer.k_norm, cosine, sine)
            mix = layer.o_proj(between.attention(asked, batch, index, layer.sliding_window))
            hidden, normed = between.add_rms_norm(hidden, mix, layer.post_attention_layernorm)
            is_last = index + 1 == len(layers)
            next_norm = weights.norm if is_last else layers[index + 1].input_layernorm
            hidden, normed = between.add_rms_norm(hidden, self._mlp(layer, normed), next_norm)
            if index + 1 in depth.hidden_state_layers:
                seen[index + 1] = hidden
        seen[FINAL_NORM] = normed
        return HiddenStates(
            normed,
            torch.cat([seen[tap] for tap in depth.hidden_state_layers], dim=-1) if depth.hidden_state_layers else None,
        )

    def _mlp(self, layer: Layer, normed: Tensor) -> Tensor:
        return layer.down_proj(self.ops.silu_and_mul(layer.gate_up_proj(normed)))

    @torch.inference_mode()
    def _batch_invariant_from(self) -> int:
        """From how many rows on a row is rounded alike in any company. Layers have one shape, so one is looked at."""
        layer, sizes = self.weights.layers[0], self.dimensions
        keys = torch.linspace(-1, 1, sizes.kv_heads * TESTED_KV_LENGTH * sizes.head_size).sin_().to(self._like)
        keys = keys.view(1, sizes.kv_heads, TESTED_KV_LENGTH, sizes.head_size)

        def attend(rows: Tensor) -> Tensor:
            mask = additive_mask(
                torch.ones(EXACT_ROWS, TESTED_KV_LENGTH).bool(), sizes.heads // sizes.kv_heads, self._like
            )
            mask = split_mask_into_blocks(mask.to(self.device), EXACT_ROWS, -(-len(rows) // BLOCK_ROWS))
            return attention(rows.view(len(rows), sizes.heads, -1), keys, keys, mask)

        norm = self.ops.rms_norm
        parts = (
            (attend, sizes.heads * sizes.head_size),
            (lambda rows: layer.qkv_proj(norm(rows, layer.input_layernorm)), len(self._like)),
            (layer.o_proj, sizes.heads * sizes.head_size),
            (lambda rows: self._mlp(layer, norm(rows, layer.post_attention_layernorm)), len(self._like)),
            (lambda rows: self.compute_logits(norm(rows, self.weights.norm)), len(self._like)),
        )
        return max(batch_invariant_from(part, inputs, self._like) for part, inputs in parts)

    def _attention_mask(self, host_batch: RowBatch, sliding_window: int | None) -> Tensor | None:
        return build_additive_mask(
            host_batch, sliding_window, self.dimensions.heads // self.dimensions.kv_heads, self._like
        )

    def _additive_mask(self, attention_mask: Tensor) -> Tensor:
        return additive_mask(attention_mask, self.dimensions.heads // self.dimensions.kv_heads, self._like)


def _have_one_dtype(weights: Weights) -> bool:
    norms = (norm for layer in weights.layers for norm in (layer.input_layernorm, layer.post_attention_layernorm))
    return all(each.dtype == weights.norm.dtype for each in (weights.embedding, *norms))
