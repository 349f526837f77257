"""Attention over latents, DeepSeek's MLA (arXiv 2405.04434, section 2.1; arXiv 2412.19437): little is kept of a token.

A token leaves a short vector, its latent, of which the keys and values of all heads are linear maps, and one turned key
for all heads. Just that is cached, as one key whose front is also the value, beside a value of no numbers: any cache
takes such rows, and DeepSeek-V3 needs 576 numbers for a token where the keys and values of its 128 heads are 40,960.

So the maps change sides. A query is asked in the words of latents, and what the heads mix of latents becomes values
afterwards: the same products in another order (the paper calls the maps absorbed), equal but for rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specchat.forward.linear import Linear, float_linear
from specchat.heads.head_attention import QKV, RopeAngles, rms_norm
from specchat.heads.spec import MlaDimensions
from specchat.models.tensor_files import WeightLoader

LATENT_NORM_EPSILON = 1e-6  # of the norms of latents, whatever the config says of the others


class MlaAttention:
    """All heads ask one vector of every token, each in its own way."""

    def __init__(self, dimensions: MlaDimensions, loader: WeightLoader, prefix: str, softmax_mscale: float) -> None:
        self._dimensions, self._loader, self._prefix = dimensions, loader, prefix
        asking = "q_b_proj" if dimensions.q_lora_rank else "q_proj"
        self._q_a_proj = loader.linear(f"{prefix}.q_a_proj") if dimensions.q_lora_rank else None
        self._q_a_norm = loader.optional(f"{prefix}.q_a_layernorm.weight")
        self._q_proj = self._rope_half_split_proj(asking, heads=dimensions.heads, unrotated=dimensions.qk_nope_head_dim)
        self._kv_a_proj = self._rope_half_split_proj("kv_a_proj_with_mqa", heads=1, unrotated=dimensions.kv_lora_rank)
        self._kv_a_norm = loader.optional(f"{prefix}.kv_a_layernorm.weight")
        both = loader.tensor(f"{prefix}.kv_b_proj.weight").view(dimensions.heads, -1, dimensions.kv_lora_rank)
        self._w_uk, self._w_uv = (
            both[:, : dimensions.qk_nope_head_dim],
            both[:, dimensions.qk_nope_head_dim :],
        )  # [heads, size, rank]
        self._o_proj = loader.linear(f"{prefix}.o_proj")
        self._softmax_scale = softmax_mscale / math.sqrt(
            dimensions.qk_nope_head_dim + dimensions.qk_rope_head_dim
        )  # not of what is asked, which has another size

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """What it leaves for a token: heads, size of a key, size of a value."""
        return 1, self._dimensions.kv_lora_rank + self._dimensions.qk_rope_head_dim, 0

    def project_qkv(self, hidden_states: Tensor, rope: RopeAngles) -> QKV:
        """What these rows ask and offer."""
        sizes = self._dimensions
        inner = (
            hidden_states
            if self._q_a_proj is None
            else rms_norm(self._q_a_proj(hidden_states), self._q_a_norm, LATENT_NORM_EPSILON)
        )
        still, moving = (
            self._q_proj(inner)
            .view(len(hidden_states), sizes.heads, -1)
            .split((sizes.qk_nope_head_dim, sizes.qk_rope_head_dim), dim=-1)
        )
        latents, shared = self._kv_a_proj(hidden_states)[:, None].split(
            (sizes.kv_lora_rank, sizes.qk_rope_head_dim), dim=-1
        )
        asked = torch.cat((torch.einsum("nhs,hsr->nhr", still, self._w_uk), rope(moving)), dim=-1)
        offered = torch.cat((rms_norm(latents, self._kv_a_norm, LATENT_NORM_EPSILON), rope(shared)), dim=-1)
        return QKV(asked * self._softmax_scale, offered, offered[..., :0])

    def attend(self, qkv: QKV, keys: Tensor, _values: Tensor, mask: Tensor | None) -> Tensor:
        """What the rows make of the latents that they see [1, 1, width, rank + turned]. [N, D]"""
        sizes, count, seen = self._dimensions, len(qkv.queries), keys[0, 0]
        scores = (qkv.queries.flatten(0, 1) @ seen.T).view(count, sizes.heads, -1).float()
        if mask is not None:
            scores += mask[0, 0, :, None]
        mixed = scores.softmax(-1).to(seen).flatten(0, 1) @ seen[:, : sizes.kv_lora_rank]
        values = torch.einsum("nhr,hvr->nhv", mixed.view(count, sizes.heads, -1), self._w_uv)
        return self._o_proj(values.flatten(1))

    def _rope_half_split_proj(self, name: str, heads: int, unrotated: int) -> Linear:
        """A map whose every head ends in numbers to be turned. Where neighbours turn together, they are laid apart.

        Of (0, 1, 2, 3) it makes (0, 2, 1, 3): what turned 0 with 1 now turns the first half with the second. Queries
        and keys are laid out alike, so their products are what they were.
        """
        turned, bias = self._dimensions.qk_rope_head_dim, self._loader.optional(f"{self._prefix}.{name}.bias")
        weight = self._loader.tensor(f"{self._prefix}.{name}.weight")
        if self._dimensions.is_rope_interleaved:
            halves = unrotated + torch.arange(turned).view(-1, 2).T.flatten()
            order = torch.cat((torch.arange(unrotated), halves))
            order = (torch.arange(heads)[:, None] * len(order) + order).flatten().to(weight.device)
            weight, bias = weight[order], None if bias is None else bias[order]
        return float_linear(weight, bias)
