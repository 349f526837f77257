"""The layers of a head: attention over keys and values of its own, and a network or a mixture of them behind it.

Shared by all heads that have layers. What goes in and what is made of what comes out is their own business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.dense import Product, attended, turned
from specchat.models.experts import Gated, Mixture
from specchat.models.headspec import HeadSpec
from specchat.models.rope import turns
from specchat.models.weights import Loader


@dataclass(frozen=True)
class Layer:
    """Weights of one layer of a head."""

    before_attention: Tensor | None  # norm [D]; the first layer of EAGLE has none
    qkv: Product
    query_norm: Tensor | None  # [head_size]
    key_norm: Tensor | None
    attention_out: Product
    before_mlp: Tensor  # norm [D]
    mlp: Callable[[Tensor], Tensor]  # [N, D] -> [N, D]
    window: int | None  # positions that it looks back; None: all


@dataclass(frozen=True)
class Read:
    """Queries, keys and values of the rows of a pass, turned, and the gate of their mix. [N, heads, head_size]"""

    queries: Tensor
    keys: Tensor
    values: Tensor
    gate: Tensor | None

    @property
    def offered(self) -> tuple[Tensor, Tensor]:
        """Keys and values as a cache takes them. [1, KV, N, head_size] each"""
        return self.keys.transpose(0, 1)[None], self.values.transpose(0, 1)[None]


@dataclass(frozen=True)
class Turn:
    """How far the rows of a pass are turned: cosine and sine. [N, 1, turned numbers of a head]"""

    cosine: Tensor
    sine: Tensor


class Stack:
    """The layers of one head, and the pool of their keys and values."""

    def __init__(self, spec: HeadSpec, loader: Loader, dtype: torch.dtype) -> None:
        self.sizes, self._spec, self._loader = spec.block, spec, loader
        self._adds_one = 1.0 if spec.wiring.norms_add_one else 0.0
        self.layers = [self._layer(index) for index in range(spec.block.layers)]
        self._speeds, self._size = spec.rope.speeds(spec.block.head_size).to(loader.device), spec.rope.size
        rows = ((spec.block.kv_heads, spec.block.head_size, spec.block.head_size),) * spec.block.layers
        self.pool = KVPool(KVLayout(rows, dtype, loader.device))

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
        read = self.read(layer, rows, turn)
        keys, values = cache.write(index, *read.offered, width)
        mixed = attended(read.queries, keys, values, mask)
        if read.gate is not None:
            mixed = mixed * read.gate.reshape(len(mixed), -1).sigmoid()
        stream = stream + layer.attention_out(mixed)
        return stream + layer.mlp(self.normed(stream, layer.before_mlp))

    def read(self, layer: Layer, rows: Tensor, turn: Turn) -> Read:
        """What a layer's attention asks and offers for these rows."""
        sizes, count = self.sizes, len(rows)
        size, wide = sizes.head_size, 2 if sizes.gated else 1
        parts = layer.qkv(rows).split((sizes.heads * size * wide, *(sizes.kv_heads * size,) * 2), dim=-1)
        queries, keys, values = (part.view(count, -1, size) for part in parts)
        gate = None
        if sizes.gated:
            queries, gate = parts[0].view(count, sizes.heads, 2 * size).chunk(2, dim=-1)
        queries, keys = self.normed(queries, layer.query_norm), self.normed(keys, layer.key_norm)
        return Read(turned(queries, turn.cosine, turn.sine), turned(keys, turn.cosine, turn.sine), values, gate)

    def normed(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        """RMS norm over the last numbers; without a weight, the rows as they are."""
        return rows if weight is None else functional.rms_norm(rows, weight.shape, weight, self.sizes.epsilon)

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
            qkv=loader.product(*(f"{at}.self_attn.{part}_proj" for part in "qkv")),
            query_norm=self.weight(f"{at}.self_attn.q_norm"),
            key_norm=self.weight(f"{at}.self_attn.k_norm"),
            attention_out=loader.product(f"{at}.self_attn.o_proj"),
            before_mlp=before_mlp,
            mlp=Mixture(routing, loader, f"{at}.mlp") if routing else Gated.of(loader, f"{at}.mlp"),
            window=windows[index] if windows else None,
        )
