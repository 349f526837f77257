"""How rows of a head's layer look back: what they ask of the text, and what they leave for later rows to ask.

This is the attention of a Llama, with what some families add: norms of queries and keys, and gates. Attention over
latents is in `latent.py`. Knows neither the layer around it nor the cache between what is left and what is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from specchat.forward.attention import apply_rope, attention
from specchat.forward.linear import Linear
from specchat.heads.spec import HeadDimensions


@dataclass(frozen=True)
class RopeAngles:
    """How far the rows of a pass are turned: cosine and sine. [N, 1, turned numbers of a head]"""

    cos: Tensor
    sin: Tensor

    def __call__(self, states: Tensor) -> Tensor:
        """Turn the heads of every row. [N, heads, size]"""
        return apply_rope(states, self.cos, self.sin)


@dataclass(frozen=True)
class QKV:
    """Queries, keys and values of the rows of a pass, turned, and the gate of their mix."""

    queries: Tensor  # [N, heads, size of a key]
    keys: Tensor  # [N, KV, size of a key]
    values: Tensor  # [N, KV, size of a value]
    gate: Tensor | None = None  # [N, heads, size of a value]

    @property
    def cache_rows(self) -> tuple[Tensor, Tensor]:
        """Keys and values as a cache takes them. [1, KV, N, size] each"""
        return self.keys.transpose(0, 1)[None], self.values.transpose(0, 1)[None]


@dataclass(frozen=True)
class Attention:
    """Every head has queries of its own, and keys and values for itself or with a few others."""

    dimensions: HeadDimensions
    qkv_proj: Linear
    q_norm: Tensor | None  # [head_size]
    k_norm: Tensor | None
    o_proj: Linear

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """What it leaves for a token: heads, size of a key, size of a value."""
        return self.dimensions.kv_heads, self.dimensions.head_size, self.dimensions.head_size

    def project_qkv(self, hidden_states: Tensor, rope: RopeAngles) -> QKV:
        """What these rows ask and offer."""
        sizes, count = self.dimensions, len(hidden_states)
        size, wide = sizes.head_size, 2 if sizes.has_output_gate else 1
        parts = self.qkv_proj(hidden_states).split((sizes.heads * size * wide, *(sizes.kv_heads * size,) * 2), dim=-1)
        queries, keys, values = (part.view(count, -1, size) for part in parts)
        gate = None
        if sizes.has_output_gate:
            queries, gate = parts[0].view(count, sizes.heads, 2 * size).chunk(2, dim=-1)
        queries, keys = (
            rms_norm(states, weight, sizes.epsilon) for states, weight in ((queries, self.q_norm), (keys, self.k_norm))
        )
        return QKV(rope(queries), rope(keys), values, gate)

    def attend(self, qkv: QKV, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """What the rows make of the keys and values that they see, [1, KV, width, size] each. [N, D]"""
        mixed = attention(qkv.queries, keys, values, mask)
        if qkv.gate is not None:
            mixed = mixed * qkv.gate.reshape(len(mixed), -1).sigmoid()
        return self.o_proj(mixed)


def rms_norm(rows: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    """RMS norm over the last numbers; without a weight, the rows as they are."""
    return rows if weight is None else functional.rms_norm(rows, weight.shape, weight, epsilon)
