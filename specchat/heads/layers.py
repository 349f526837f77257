"""The layers of a head: attention over keys and values of its own, and a network or a mixture of them behind it.

Shared by all heads that have layers. What goes in and what is made of what comes out is their own business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.forward.rope import cos_sin
from specchat.heads.head_attention import Attention, RopeAngles, rms_norm
from specchat.heads.mla import MlaAttention
from specchat.heads.moe import MixtureOfExperts, SwiGluMlp
from specchat.heads.spec import HeadSpec
from specchat.models.tensor_files import WeightLoader


@dataclass(frozen=True)
class HeadLayer:
    """Weights of one layer of a head."""

    input_layernorm: Tensor | None  # norm [D]; the first layer of EAGLE has none
    attention: Attention | MlaAttention
    post_attention_layernorm: Tensor  # norm [D]
    mlp: Callable[[Tensor], Tensor]  # [N, D] -> [N, D]
    sliding_window: int | None  # positions that it looks back; None: all


class LayerStack:
    """The layers of one head, and the pool of their keys and values."""

    def __init__(self, spec: HeadSpec, loader: WeightLoader, dtype: torch.dtype) -> None:
        self.dimensions, self._spec, self._loader = spec.dimensions, spec, loader
        self._norm_offset = 1.0 if spec.wiring.norms_add_one else 0.0
        self.layers = [self._layer(index) for index in range(spec.dimensions.layers)]
        self._inv_freq, self._attention_factor = (
            spec.rope.inv_freq(spec.dimensions.rope_size).to(loader.device),
            spec.rope.attention_factor,
        )
        self.pool = KVPool(KVLayout(tuple(layer.attention.kv_shape for layer in self.layers), dtype, loader.device))

    def rope_angles(self, positions: Tensor, like: Tensor) -> RopeAngles:
        """The angles of these positions, in the dtype of `like`."""
        cosine, sine = cos_sin(positions.to(like.device), self._inv_freq, self._attention_factor)
        return RopeAngles(cosine[:, None].to(like), sine[:, None].to(like))

    def forward_layer(
        self,
        index: int,
        residual: Tensor,
        attention_input: Tensor,
        rope: RopeAngles,
        mask: Tensor | None,
        cache: KVCache,
        kv_length: int,
    ) -> Tensor:
        """The stream after a layer whose attention reads `rows`: the normed stream, or what a first layer is given.

        Keys and values of the rows go behind `cache.length`, and the first `width` rows are looked at. [N, D]
        """
        layer = self.layers[index]
        read = layer.attention.project_qkv(attention_input, rope)
        keys, values = cache.write(index, *read.cache_rows, kv_length)
        residual = residual + layer.attention.attend(read, keys, values, mask)
        return residual + layer.mlp(self.rms_norm(residual, layer.post_attention_layernorm))

    def rms_norm(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        """RMS norm over the last numbers; without a weight, the rows as they are."""
        return rms_norm(rows, weight, self.dimensions.epsilon)

    def norm_weight(self, name: str) -> Tensor | None:
        """The weight of a norm; some families store it less one."""
        weight = self._loader.optional(f"{name}.weight")
        return weight if weight is None else weight + self._norm_offset

    def _layer(self, index: int) -> HeadLayer:
        at, loader, windows = f"layers.{index}", self._loader, self.dimensions.sliding_windows
        before_mlp = self.norm_weight(f"{at}.post_attention_layernorm")
        assert before_mlp is not None, "a layer without a norm before its MLP passed inspection"
        routing = self._spec.routing
        return HeadLayer(
            input_layernorm=self.norm_weight(f"{at}.input_layernorm"),
            attention=self._attention(f"{at}.self_attn"),
            post_attention_layernorm=before_mlp,
            mlp=MixtureOfExperts(routing, loader, f"{at}.mlp") if routing else SwiGluMlp.load(loader, f"{at}.mlp"),
            sliding_window=windows[index] if windows else None,
        )

    def _attention(self, prefix: str) -> Attention | MlaAttention:
        sizes, loader = self.dimensions, self._loader
        if sizes.mla is not None:
            return MlaAttention(sizes.mla, loader, prefix, self._spec.rope.softmax_mscale)
        return Attention(
            sizes,
            qkv_proj=loader.linear(*(f"{prefix}.{part}_proj" for part in "qkv")),
            q_norm=self.norm_weight(f"{prefix}.q_norm"),
            k_norm=self.norm_weight(f"{prefix}.k_norm"),
            o_proj=loader.linear(f"{prefix}.o_proj"),
        )
