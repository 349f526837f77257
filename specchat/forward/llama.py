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
from specchat.forward.attention import AttentionMask, build_attention_mask
from specchat.forward.batch import (
    BatchLimits,
    ForwardBatch,
    ForwardDepth,
    HiddenStates,
    Nodes,
    RowBatch,
    chain_nodes,
)
from specchat.forward.cuda_graphs import Capture, CudaGraphs
from specchat.forward.decoder_layer import DecoderLayer, DecoderStack, RopeAngles
from specchat.forward.fused_ops import AttentionDimensions, NativeOps, TorchOps, select_fused_ops
from specchat.forward.linear import Linear, QuantLinear


@dataclass(frozen=True)
class Dimensions:
    hidden_size: int
    intermediate_size: int
    layers: int
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
    rope: tuple[Tensor, Tensor]  # cosine and sine of every position of the context window
    bytes: int


class LlamaModel:
    """A model of the dense Llama family. With `capture`, passes over few nodes are CUDA graphs.

    With native kernels it is batch invariant: a node of a draft tree has the bits of plain decoding. Without them,
    exact mode pads every pass to the same shape.
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
        sizes = AttentionDimensions(dimensions.heads, dimensions.kv_heads, dimensions.head_size, dimensions.epsilon)
        allows_native_ops = capture is None and _have_one_dtype(weights)  # native kernels cannot be captured
        self.ops = select_fused_ops(sizes, self._like) if allows_native_ops else TorchOps(sizes)
        self.is_batch_invariant = isinstance(self.ops, NativeOps) and _have_invariant_linears(weights)
        self.is_exact = self.is_batch_invariant or limits.exact
        if self.is_batch_invariant and limits.exact:
            limits = self.limits = replace(limits, exact=False)
        self.context_window, self.vocab_size, self.bytes = context_window, dimensions.vocab_size, weights.bytes
        self.prefill_chunk, self.max_rows, self.supports_trees = limits.prefill_chunk, limits.max_rows, not limits.exact
        kv_shape = (dimensions.kv_heads, dimensions.head_size, dimensions.head_size)
        self.pool = KVPool(KVLayout((kv_shape,) * len(weights.layers), self._like.dtype, self.device))
        self.hidden_state_layers: tuple[int, ...] = ()
        self._stack = DecoderStack(weights.layers, weights.norm, self.ops, self._rope_angles)
        self.graphs = (
            CudaGraphs(capture, self._stack.sliding_windows, self._attention_mask) if capture is not None else None
        )

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
        count, states = len(tree), self._forward(self.limits.nodes(tree), cache, self._full_depth, is_tree=True)
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

    def _forward(self, nodes: Nodes, cache: KVCache, depth: ForwardDepth, *, is_tree: bool = False) -> HiddenStates:
        if self.graphs is not None:
            states = self.graphs.run(nodes, cache, depth, self._forward_layers, self.limits.exact)
            if states is not None:
                return states
        batch = self._forward_batch(self.limits.batch_for_nodes(nodes, cache), cache)
        return self._forward_layers(replace(batch, is_batch_invariant=is_tree), depth)

    def _forward_layers(self, batch: ForwardBatch, depth: ForwardDepth) -> HiddenStates:
        return self._stack.forward(self.embed(batch.tokens), batch, depth)

    def _forward_batch(self, host_batch: RowBatch, cache: KVCache) -> ForwardBatch:
        queries_per_kv = self.dimensions.heads // self.dimensions.kv_heads
        masks = {
            window: build_attention_mask(host_batch, window, queries_per_kv, self._like)
            for window in self._stack.sliding_windows
        }
        return host_batch.to_device(cache, masks, self.device, copy_to_device(host_batch.tokens, self.device))

    def _rope_angles(self, positions: Tensor) -> RopeAngles:
        cos, sin = self.weights.rope
        return RopeAngles(cos[positions][:, None], sin[positions][:, None])

    def _attention_mask(self, allowed: Tensor) -> AttentionMask:
        return AttentionMask(allowed, self.dimensions.heads // self.dimensions.kv_heads, self._like)


def _have_one_dtype(weights: Weights) -> bool:
    norms = [norm for layer in weights.layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)]
    return all(each is not None and each.dtype == weights.norm.dtype for each in (weights.embedding, *norms))


def _have_invariant_linears(weights: Weights) -> bool:
    modules = [module for layer in weights.layers for module in (layer.self_attn, layer.mlp)]
    linears = [each for module in modules for each in vars(module).values() if isinstance(each, QuantLinear)]
    return all(isinstance(each, QuantLinear) and each.is_batch_invariant for each in (*linears, weights.lm_head))
