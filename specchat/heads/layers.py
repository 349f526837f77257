"""The layers of a head: attention over keys and values of its own, and a network or a mixture of them behind it.

Shared by all heads that have layers. What goes in and what is made of what comes out is their own business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.forward.rope import turns
from specchat.heads.head_attention import Attention, Turn, normed
from specchat.heads.mla import LatentAttention
from specchat.heads.moe import Gated, Mixture
from specchat.heads.spec import HeadSpec
from specchat.models.tensor_files import Loader


@dataclass(frozen=True)
class Layer:
    """Weights of one layer of a head."""

    before_attention: Tensor | None  # norm [D]; the first layer of EAGLE has none
    attention: Attention | LatentAttention
    before_mlp: Tensor  # norm [D]
    mlp: Callable[[Tensor], Tensor]  # [N, D] -> [N, D]
    window: int | None  # positions that it looks back; None: all


class Stack:
    """The layers of one head, and the pool of their keys and values."""

    def __init__(self, spec: HeadSpec, loader: Loader, dtype: torch.dtype) -> None:
        self.sizes, self._spec, self._loader = spec.block, spec, loader
        self._adds_one = 1.0 if spec.wiring.norms_add_one else 0.0
        self.layers = [self._layer(index) for index in range(spec.block.layers)]
        self._speeds, self._size = spec.rope.speeds(spec.block.turned).to(loader.device), spec.rope.size
        self.pool = KVPool(KVLayout(tuple(layer.attention.row for layer in self.layers), dtype, loader.device))

    def turn(self, positions: Tensor, like: Tensor) -> Turn:
        """The angles of these positions, in the dtype of `like`."""
        cosine, sine = turns(positions.to(like.device), self._speeds, self._size)
        return Turn(cosine[:, None].to(like), sine[:, None].to(like))

    def through(
        self, index: int, stream: Tensor, rows: Tensor, turn: Turn, mask: Tensor | None, cache: KVCache, width: int
    ) -> Tensor:
        """The stream after a layer whose attention reads `rows`: the normed stream, or what a first layer is given.

        Keys and values of the rows go behind `cache.length`, and the first `width` rows are looked at. [N, D]
        """
        layer = self.layers[index]
        read = layer.attention.read(rows, turn)
        keys, values = cache.write(index, *read.offered, width)
        stream = stream + layer.attention.answer(read, keys, values, mask)
        return stream + layer.mlp(self.normed(stream, layer.before_mlp))

    def normed(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        """RMS norm over the last numbers; without a weight, the rows as they are."""
        return normed(rows, weight, self.sizes.epsilon)

    def weight(self, name: str) -> Tensor | None:
        """The weight of a norm; some families store it less one."""
        weight = self._loader.optional(f"{name}.weight")
        return weight if weight is None else weight + self._adds_one

    def _layer(self, index: int) -> Layer:
        at, loader, windows = f"layers.{index}", self._loader, self.sizes.windows
        before_mlp = self.weight(f"{at}.post_attention_layernorm")
        assert before_mlp is not None, "a layer without a norm before its MLP passed inspection"
        routing = self._spec.routing
        return Layer(
            before_attention=self.weight(f"{at}.input_layernorm"),
            attention=self._attention(f"{at}.self_attn"),
            before_mlp=before_mlp,
            mlp=Mixture(routing, loader, f"{at}.mlp") if routing else Gated.of(loader, f"{at}.mlp"),
            window=windows[index] if windows else None,
        )

    def _attention(self, at: str) -> Attention | LatentAttention:
        sizes, loader = self.sizes, self._loader
        if sizes.latent is not None:
            return LatentAttention(sizes.latent, loader, at, self._spec.rope.sharpness)
        return Attention(
            sizes,
            qkv=loader.product(*(f"{at}.{part}_proj" for part in "qkv")),
            query_norm=self.weight(f"{at}.q_norm"),
            key_norm=self.weight(f"{at}.k_norm"),
            out=loader.product(f"{at}.o_proj"),
        )
