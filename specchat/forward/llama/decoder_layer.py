"""The decoder layer of the Llama family: attention and MLP with residual connections, over a KV cache.

Targets, draft models and heads run these layers. A head may replace the attention (MLA) or the MLP (mixture of
experts) of its layers. Knows tensors; knows no file and no sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from specchat.engine.model import FINAL_NORM
from specchat.forward.batch import ForwardBatch, ForwardDepth, HiddenStates
from specchat.forward.fused_ops import QKV, AttentionDimensions, QKVInputs, TorchOps
from specchat.forward.linear.linear import Linear
from specchat.forward.llama.embedding_rows import EmbeddingTable
from specchat.forward.llama.rope import Rope, cos_sin
from specchat.forward.llama.variations import GELU_TANH, SILU, Activation


@dataclass(frozen=True)
class RopeAngles:
    """Cosine and sine of some positions. [N, 1, rotary size]"""

    cos: Tensor
    sin: Tensor  # the first half is negative

    @classmethod
    def of(cls, rope: Rope | None, positions: Tensor, head_size: int, like: Tensor) -> RopeAngles:
        """Those of positions [N], in the dtype and on the device of `like`. Without a rope nothing is rotated."""
        inv_freq, factor = torch.zeros(head_size // 2), 1.0
        if rope is not None:
            inv_freq, factor = rope.inv_freq(head_size), rope.attention_factor
        cos, sin = cos_sin(positions, inv_freq.to(positions.device), factor)
        return cls(cos[:, None].to(like), sin[:, None].to(like))

    def at(self, rows: Tensor) -> RopeAngles:
        """Those of some rows of a table."""
        return RopeAngles(self.cos.index_select(0, rows), self.sin.index_select(0, rows))

    def to(self, device: torch.device) -> RopeAngles:
        return RopeAngles(self.cos.to(device), self.sin.to(device))


@dataclass(frozen=True)
class AttentionKind:
    """What layers whose heads have one size and one rotation share."""

    ops: TorchOps
    rope: Callable[[Tensor], RopeAngles]  # positions [N] -> angles


@dataclass(frozen=True)
class LayerContext:
    ops: TorchOps
    batch: ForwardBatch
    rope: RopeAngles


class TokenMixer(Protocol):
    def __call__(self, hidden_states: Tensor, context: LayerContext, layer: int, window: int | None, /) -> Tensor:
        """What each row takes from itself and from the rows before it. [N, D] -> [N, D]"""
        ...


@runtime_checkable
class AttentionModule(TokenMixer, Protocol):
    """Writes keys and values of the rows to the KV cache, and attends to the visible ones."""

    def project_qkv(self, hidden_states: Tensor, ops: TorchOps, rope: RopeAngles, /) -> QKV:
        """Queries, keys and values of rows [N, D], rotated."""
        ...


@dataclass(frozen=True)
class WideNorms:
    """RMS norms of the queries and of the keys of a row, each over all heads together (OLMo)."""

    queries: Tensor  # [H * head_size]
    keys: Tensor  # [KV * head_size]

    def __call__(self, qkv: Tensor, ops: TorchOps) -> Tensor:
        heads, kv_heads = len(self.queries), len(self.keys)
        queries, keys, values = qkv.split((heads, kv_heads, qkv.shape[-1] - heads - kv_heads), dim=-1)
        return torch.cat((ops.rms_norm(queries, self.queries), ops.rms_norm(keys, self.keys), values), dim=-1)


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention. Query, key and value are one matmul."""

    qkv_proj: Linear  # -> (H + 2 KV) * head_size
    q_norm: Tensor | None  # [head_size]
    k_norm: Tensor | None
    o_proj: Linear
    has_output_gate: bool = False  # qkv_proj has a gate after the query of each head: the output times its sigmoid
    wide_norms: WideNorms | None = None
    sinks: Tensor | None = None  # [H]
    kv_source: int | None = None  # the earlier layer whose keys and values it reads; `qkv_proj` -> H * head_size

    def project_qkv(self, hidden_states: Tensor, ops: TorchOps, rope: RopeAngles) -> QKV:
        inputs, _gates = self._inputs(hidden_states, ops, rope)
        return ops.qk_norm_rope(inputs)

    def __call__(self, hidden_states: Tensor, context: LayerContext, layer: int, window: int | None) -> Tensor:
        inputs, gates = self._inputs(hidden_states, context.ops, context.rope)
        kv_layer = layer if self.kv_source is None else self.kv_source
        output = context.ops.attention(inputs, context.batch, kv_layer, window)
        return self.o_proj(output if gates is None else context.ops.sigmoid_gate(output, gates))

    def _inputs(self, hidden_states: Tensor, ops: TorchOps, rope: RopeAngles) -> tuple[QKVInputs, Tensor | None]:
        """What attention reads, and the gates of its output [N, H * head_size]."""
        qkv, gates = self.qkv_proj(hidden_states), None
        if self.has_output_gate:
            qkv, gates = _without_gates(qkv, ops.dimensions)
        if self.wide_norms is not None:
            qkv = self.wide_norms(qkv, ops)
        writes_kv = self.kv_source is None
        return QKVInputs(qkv, self.q_norm, self.k_norm, rope.cos, rope.sin, self.sinks, writes_kv), gates


def _without_gates(projected: Tensor, sizes: AttentionDimensions) -> tuple[Tensor, Tensor]:
    """Queries, keys and values, and the gates that stand after the query of each head."""
    width = 2 * sizes.heads * sizes.head_size
    queries, gates = projected[:, :width].view(len(projected), sizes.heads, 2, -1).unbind(2)
    return torch.cat((queries.flatten(1), projected[:, width:]), dim=-1), gates.flatten(1)


@dataclass(frozen=True)
class GatedMlp:
    """down(activation(gate(x)) * up(x)): SwiGLU, or GeGLU (Gemma). Gate and up are one matmul. [N, D] -> [N, D]"""

    gate_up_proj: Linear
    down_proj: Linear
    activation: Activation = SILU

    @classmethod
    def load(cls, load_linear: Callable[..., Linear], prefix: str, activation: Activation = SILU) -> GatedMlp:
        """The MLP with these tensors. `load_linear` concatenates the matrices that it is given the names of."""
        gate_up_proj = load_linear(f"{prefix}.gate_proj", f"{prefix}.up_proj")
        return cls(gate_up_proj, load_linear(f"{prefix}.down_proj"), activation)

    def __call__(self, rows: Tensor, ops: TorchOps) -> Tensor:
        return self.down_proj(ops.activate_and_mul(self.gate_up_proj(rows), self.activation))


@dataclass(frozen=True)
class PerLayerInput:
    """Per-layer embeddings: each layer of Gemma 3n and Gemma 4 reads a small vector of its own for each token.

    It is the sum of a row of a second embedding, which the token alone decides, and of a projection of the input
    embedding. The rows of the second embedding travel behind those of the first, so that a CUDA graph has one input and
    the table may stay on the CPU. P is the size of a vector, L the number of layers.
    """

    embedding: EmbeddingTable  # [V, L * P]; may be on the CPU while everything else is on a GPU
    projection: Linear  # D -> L * P
    norm: Tensor  # [P]

    def embed(self, tokens: Tensor, device: torch.device) -> Tensor:
        """Rows of the second embedding, scaled. [N] -> [N, L * P]"""
        rows = self.embedding[tokens.to(self.embedding.device)].to(device, non_blocking=True)
        return rows * torch.tensor(len(self.norm) ** 0.5).to(rows.dtype)  # rounded, as transformers does

    def split(self, rows: Tensor, ops: TorchOps) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The input embeddings [N, D] and the vectors of each layer [N, P], from rows of both embeddings."""
        embedded, rows = (each.contiguous() for each in rows.tensor_split((-self.embedding.shape[1],), dim=-1))
        projected = (self.projection(embedded) * embedded.shape[-1] ** -0.5).view(len(rows), -1, len(self.norm))
        vectors = (ops.rms_norm(projected, self.norm) + rows.view(projected.shape)) * 2**-0.5
        return embedded, vectors.unbind(1)


@dataclass(frozen=True)
class PerLayerGate:
    """What a layer does with its vectors: norm(project(gelu(gate(x)) * vector)), for the residual connection."""

    gate: Linear  # D -> P
    projection: Linear  # P -> D
    norm: Tensor  # [D]

    def __call__(self, hidden_states: Tensor, vectors: Tensor, ops: TorchOps) -> Tensor:
        gated = ops.activate_and_mul(torch.cat((self.gate(hidden_states), vectors), dim=-1), GELU_TANH)
        return ops.rms_norm(self.projection(gated), self.norm)


@dataclass(frozen=True)
class DecoderLayer:
    """Norms are None where a family has none: their input is passed on as it is. [D]"""

    input_layernorm: Tensor | None
    self_attn: TokenMixer
    post_attention_layernorm: Tensor | None  # before the MLP
    mlp: Callable[[Tensor, TorchOps], Tensor]  # [N, D] -> [N, D]
    sliding_window: int | None  # number of positions that it sees; None: all
    attention_output_norm: Tensor | None = None  # before the residual connection
    mlp_output_norm: Tensor | None = None
    residual_scale: float = 1.0  # of both outputs
    attention_kind: int = 0  # which of the stack's
    per_layer_gate: PerLayerGate | None = None
    output_scale: float = 1.0  # of the hidden states that it passes on

    @property
    def norms(self) -> list[Tensor]:
        norms = (
            self.input_layernorm, self.attention_output_norm, self.post_attention_layernorm, self.mlp_output_norm,
            self.per_layer_gate.norm if self.per_layer_gate is not None else None,
        )  # fmt: skip
        return [norm for norm in norms if norm is not None]

    def scaled(self, output: Tensor) -> Tensor:
        """The output of a module as it is added to the hidden states."""
        return output if self.residual_scale == 1.0 else output * self.residual_scale


@dataclass(frozen=True)
class DecoderStack:
    layers: Sequence[DecoderLayer]
    norm: Tensor | None  # [D]; None: the output is not normalized
    ops: TorchOps
    attention_kinds: Sequence[AttentionKind]  # a layer says which it has
    per_layer_input: PerLayerInput | None = None
    first_layer: int = 0  # of the network: those before it are in another stack

    @property
    def sliding_windows(self) -> frozenset[int | None]:
        return frozenset(layer.sliding_window for layer in self.layers)

    @torch.inference_mode()
    def forward(
        self, hidden_states: Tensor, batch: ForwardBatch, depth: ForwardDepth, attention_input: Tensor | None = None
    ) -> HiddenStates:
        """Run the first layers, then the final norm. [N, D]; with a per-layer input [N, D + L * P]

        Behind the hidden states come those of earlier stacks that the output contains: [N, D + states * D].
        `attention_input` replaces the normalized hidden states as input of the first attention. [N, inputs * D]
        """
        contexts = [LayerContext(kind.ops, batch, kind.rope(batch.positions)) for kind in self.attention_kinds]
        vectors: Sequence[Tensor] = ()
        if self.per_layer_input is not None:
            hidden_states, vectors = self.per_layer_input.split(hidden_states, self.ops)
        layers, earlier = self.layers[: max(depth.layers - self.first_layer, 0)], depth.states_before(self.first_layer)
        hidden_states, *states = (each.contiguous() for each in hidden_states.chunk(1 + len(earlier), dim=-1))
        by_layer = {self.first_layer: hidden_states, **dict(zip(earlier, states, strict=True))}
        norms = (*(layer.input_layernorm for layer in layers), self.norm)
        normed = self._norm(hidden_states, norms[0]) if attention_input is None else attention_input
        for index, (layer, next_norm) in enumerate(zip(layers, norms[1:], strict=True), self.first_layer):
            output = layer.self_attn(normed, contexts[layer.attention_kind], index, layer.sliding_window)
            output = self._norm(output, layer.attention_output_norm)
            hidden_states, normed = self._add(hidden_states, layer.scaled(output), layer.post_attention_layernorm)
            output = self._norm(layer.mlp(normed, self.ops), layer.mlp_output_norm)
            if layer.per_layer_gate is not None:
                hidden_states = hidden_states + layer.scaled(output)
                output = layer.per_layer_gate(hidden_states, vectors[index], self.ops)
            output = layer.scaled(output)
            hidden_states, normed = self._add(hidden_states, output, next_norm, layer.output_scale)
            if index + 1 in depth.hidden_state_layers:
                by_layer[index + 1] = hidden_states
        by_layer[FINAL_NORM] = normed
        selected = [by_layer[layer] for layer in depth.hidden_state_layers]
        one = selected[0] if len(selected) == 1 else None
        return HiddenStates(normed, torch.cat(selected, dim=-1) if len(selected) > 1 else one)

    def _norm(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        return rows if weight is None else self.ops.rms_norm(rows, weight)

    def _add(
        self, hidden_states: Tensor, output: Tensor, norm: Tensor | None, scale: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """The sum times a scale, and what the next module reads. [N, D] each"""
        if norm is not None and scale == 1.0:
            return self.ops.add_rms_norm(hidden_states, output, norm)
        hidden_states = (hidden_states + output) * scale
        return hidden_states, self._norm(hidden_states, norm)
