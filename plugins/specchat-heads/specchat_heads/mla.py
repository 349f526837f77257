"""Multi-head latent attention, DeepSeek's MLA (arXiv 2405.04434, section 2.1; arXiv 2412.19437).

A token is cached as a latent, of which the keys and values of all heads are linear projections, and one rotated key
that all heads share. In the cache these are one key, whose front is also the value, and a value of size 0. DeepSeek-V3
caches 576 numbers for a token; the keys and values of its 128 heads would be 40,960.

The projections are absorbed, as the paper says: queries are projected to the latent space, and the attention output
from latents to values. The same matmuls in another order, equal except for rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specchat.forward.attention import apply_rope
from specchat.forward.fused_ops import QKV, TorchOps
from specchat.forward.linear.linear import Linear, float_linear
from specchat.forward.llama.decoder_layer import LayerContext, RopeAngles
from specchat.weights.tensor_files import WeightLoader

LATENT_NORM_EPSILON = 1e-6  # of the norms of latents, whatever the config has for the others


@dataclass(frozen=True)
class MlaDimensions:
    """The sizes of multi-head latent attention, with DeepSeek's config keys as names."""

    heads: int
    kv_lora_rank: int  # size of a latent
    qk_nope_head_dim: int  # numbers of a query head that are not rotated
    qk_rope_head_dim: int  # numbers of a query head that are rotated
    v_head_dim: int
    q_lora_rank: int | None  # None: queries are projected from the hidden states directly
    is_rope_interleaved: bool = True  # neighbouring numbers are a pair; else first and second half


class MlaAttention:
    """An `AttentionModule` whose heads share one latent per token."""

    def __init__(self, dimensions: MlaDimensions, loader: WeightLoader, prefix: str, softmax_mscale: float) -> None:
        self._dimensions, self._loader, self._prefix, sizes = dimensions, loader, prefix, dimensions
        q_proj = "q_b_proj" if sizes.q_lora_rank else "q_proj"
        self._q_a_proj = loader.linear(f"{prefix}.q_a_proj") if sizes.q_lora_rank else None
        self._q_a_norm = loader.optional(f"{prefix}.q_a_layernorm.weight")
        self._q_proj = self._rope_half_split_proj(q_proj, heads=sizes.heads, unrotated=sizes.qk_nope_head_dim)
        self._kv_a_proj = self._rope_half_split_proj("kv_a_proj_with_mqa", heads=1, unrotated=sizes.kv_lora_rank)
        self._kv_a_norm = loader.optional(f"{prefix}.kv_a_layernorm.weight")
        kv_b_proj = loader.tensor(f"{prefix}.kv_b_proj.weight").view(sizes.heads, -1, sizes.kv_lora_rank)
        self._w_uk = kv_b_proj[:, : sizes.qk_nope_head_dim]  # [heads, size, rank]
        self._w_uv = kv_b_proj[:, sizes.qk_nope_head_dim :]
        self._o_proj = loader.linear(f"{prefix}.o_proj")
        # of the size of unabsorbed queries
        self._softmax_scale = softmax_mscale / math.sqrt(sizes.qk_nope_head_dim + sizes.qk_rope_head_dim)

    def project_qkv(self, hidden_states: Tensor, _ops: TorchOps, rope: RopeAngles) -> QKV:
        """Queries in the latent space, latents with rotated keys, and empty values."""
        sizes, count = self._dimensions, len(hidden_states)
        query_input = hidden_states
        if self._q_a_proj is not None:
            query_input = _rms_norm(self._q_a_proj(hidden_states), self._q_a_norm)
        queries = self._q_proj(query_input).view(count, sizes.heads, -1)
        unrotated, rotated = queries.split((sizes.qk_nope_head_dim, sizes.qk_rope_head_dim), dim=-1)
        latents, key = self._kv_a_proj(hidden_states)[:, None].split((sizes.kv_lora_rank, sizes.qk_rope_head_dim), -1)
        latent_queries = torch.einsum("nhs,hsr->nhr", unrotated, self._w_uk)
        queries = torch.cat((latent_queries, apply_rope(rotated, rope.cos, rope.sin)), dim=-1)
        keys = torch.cat((_rms_norm(latents, self._kv_a_norm), apply_rope(key, rope.cos, rope.sin)), dim=-1)
        return QKV(queries * self._softmax_scale, keys, keys[..., :0])

    def __call__(self, hidden_states: Tensor, context: LayerContext, layer: int, window: int | None) -> Tensor:
        sizes, qkv = self._dimensions, self.project_qkv(hidden_states, context.ops, context.rope)
        keys, _values = context.batch.write_kv(layer, *qkv.cache_rows)  # [1, 1, kv_length, rank + rotary size]
        rows, count, mask = keys[0, 0], len(hidden_states), context.batch.masks[window]
        scores = (qkv.queries.flatten(0, 1) @ rows.T).view(count, sizes.heads, -1).float()
        if mask is not None:
            scores += mask.additive[0, 0, :, None]
        latents = scores.softmax(-1).to(rows).flatten(0, 1) @ rows[:, : sizes.kv_lora_rank]
        values = torch.einsum("nhr,hvr->nhv", latents.view(count, sizes.heads, -1), self._w_uv)
        return self._o_proj(values.flatten(1))

    def _rope_half_split_proj(self, name: str, heads: int, unrotated: int) -> Linear:
        """A projection whose heads end in numbers to rotate, with an interleaved layout changed to half-split.

        (0, 1, 2, 3) becomes (0, 2, 1, 3): the pair 0, 1 then spans both halves. Queries and keys change in the same
        way, so their dot products stay the same.
        """
        rotary_size, bias = self._dimensions.qk_rope_head_dim, self._loader.optional(f"{self._prefix}.{name}.bias")
        weight = self._loader.tensor(f"{self._prefix}.{name}.weight")
        if self._dimensions.is_rope_interleaved:
            halves = unrotated + torch.arange(rotary_size).view(-1, 2).T.flatten()
            order = torch.cat((torch.arange(unrotated), halves))
            order = (torch.arange(heads)[:, None] * len(order) + order).flatten().to(weight.device)
            weight, bias = weight[order], None if bias is None else bias[order]
        return float_linear(weight, bias)


def _rms_norm(rows: Tensor, weight: Tensor | None) -> Tensor:
    return rows if weight is None else functional.rms_norm(rows, weight.shape, weight, LATENT_NORM_EPSILON)
