"""The decoder layer of the Llama family: attention and MLP with residual connections, over a KV cache.

Targets, draft models and heads run these layers. A head may replace the attention (MLA) or the MLP (mixture of
experts) of its layers. Knows tensors; knows no file and no sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.model import FINAL_NORM
from specchat.forward.batch import ForwardBatch, ForwardDepth, HiddenStates
from specchat.forward.fused_ops import QKV, QKVInputs, TorchOps
from specchat.forward.linear import Linear


@dataclass(frozen=True)
class RopeAngles:
    """Cosine and sine of the positions of a pass. [N, 1, rotary size]"""

    cos: Tensor
    sin: Tensor  # the first half is negative


@dataclass(frozen=True)
class LayerContext:
    ops: TorchOps
    batch: ForwardBatch
    rope: RopeAngles


class AttentionModule(Protocol):
    def project_qkv(self, hidden_states: Tensor, ops: TorchOps, rope: RopeAngles, /) -> QKV:
        """Queries, keys and values of rows [N, D], rotated."""
        ...

    def __call__(self, hidden_states: Tensor, context: LayerContext, layer: int, window: int | None) -> Tensor:
        """Write keys and values of the rows to the KV cache, and attend to the visible ones. [N, D] -> [N, D]"""
        ...


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention. Query, key and value are one matmul."""

    qkv_proj: Linear  # -> (H + 2 KV) * head_size
    q_norm: Tensor | None  # [head_size]
    k_norm: Tensor | None
    o_proj: Linear
    gate_proj: Linear | None = None  # -> H * head_size: the output is multiplied with its sigmoid (Qwen3-Next)

    def project_qkv(self, hidden_states: Tensor, ops: TorchOps, rope: RopeAngles) -> QKV:
        return ops.qk_norm_rope(self._inputs(hidden_states, rope))

    def __call__(self, hidden_states: Tensor, context: LayerContext, layer: int, window: int | None) -> Tensor:
        inputs = self._inputs(hidden_states, context.rope)
        output = context.ops.attention(inputs, context.batch, layer, window)
        if self.gate_proj is not None:
            output = output * self.gate_proj(hidden_states).sigmoid()
        return self.o_proj(output)

    def _inputs(self, hidden_states: Tensor, rope: RopeAngles) -> QKVInputs:
        return QKVInputs(self.qkv_proj(hidden_states), self.q_norm, self.k_norm, rope.cos, rope.sin)


@dataclass(frozen=True)
class SwiGluMlp:
    """down(silu(gate(x)) * up(x)). Gate and up are one matmul. [N, D] -> [N, D]"""

    gate_up_proj: Linear
    down_proj: Linear

    @classmethod
    def load(cls, load_linear: Callable[..., Linear], prefix: str) -> SwiGluMlp:
        """The MLP with these tensors. `load_linear` concatenates the matrices that it is given the names of."""
        gate_up_proj = load_linear(f"{prefix}.gate_proj", f"{prefix}.up_proj")
        return cls(gate_up_proj, load_linear(f"{prefix}.down_proj"))

    def __call__(self, rows: Tensor, ops: TorchOps) -> Tensor:
        return self.down_proj(ops.silu_and_mul(self.gate_up_proj(rows)))


@dataclass(frozen=True)
class DecoderLayer:
    input_layernorm: Tensor | None  # [D]; None in the first layer of some heads
    self_attn: AttentionModule
    post_attention_layernorm: Tensor  # [D]
    mlp: Callable[[Tensor, TorchOps], Tensor]  # [N, D] -> [N, D]
    sliding_window: int | None  # number of positions that it sees; None: all


@dataclass(frozen=True)
class DecoderStack:
    layers: Sequence[DecoderLayer]
    norm: Tensor | None  # [D]; None: the output is not normalized
    ops: TorchOps
    rope: Callable[[Tensor], RopeAngles]  # positions [N] -> angles

    @property
    def sliding_windows(self) -> frozenset[int | None]:
        return frozenset(layer.sliding_window for layer in self.layers)

    @torch.inference_mode()
    def forward(
        self, hidden_states: Tensor, batch: ForwardBatch, depth: ForwardDepth, attention_input: Tensor | None = None
    ) -> HiddenStates:
        """Run the first layers, then the final norm. [N, D]

        `attention_input` replaces the normalized hidden states as input of the first attention. [N, inputs * D]
        """
        context = LayerContext(self.ops, batch, self.rope(batch.positions))
        layers, by_layer = self.layers[: depth.layers], {0: hidden_states}
        norms = (*(layer.input_layernorm for layer in layers), self.norm)
        normed = self._norm(hidden_states, norms[0]) if attention_input is None else attention_input
        for index, layer in enumerate(layers):
            output = layer.self_attn(normed, context, index, layer.sliding_window)
            hidden_states, normed = self.ops.add_rms_norm(hidden_states, output, layer.post_attention_layernorm)
            output, next_norm = layer.mlp(normed, self.ops), norms[index + 1]
            if next_norm is None:
                normed = hidden_states = hidden_states + output
            else:
                hidden_states, normed = self.ops.add_rms_norm(hidden_states, output, next_norm)
            if index + 1 in depth.hidden_state_layers:
                by_layer[index + 1] = hidden_states
        by_layer[FINAL_NORM] = normed
        selected = [by_layer[layer] for layer in depth.hidden_state_layers]
        return HiddenStates(normed, torch.cat(selected, dim=-1) if selected else None)

    def _norm(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        return rows if weight is None else self.ops.rms_norm(rows, weight)
