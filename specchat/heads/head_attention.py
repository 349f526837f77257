"""How rows of a head's layer look back: what they ask of the text, and what they leave for later rows to ask.

This is the attention of a Llama, with what some families add: norms of queries and keys, and gates. Attention over
latents is in `latent.py`. Knows neither the layer around it nor the cache between what is left and what is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from specchat.forward.attention import attended, turned
from specchat.forward.linear import Product
from specchat.heads.spec import Block


@dataclass(frozen=True)
class Turn:
    """How far the rows of a pass are turned: cosine and sine. [N, 1, turned numbers of a head]"""

    cosine: Tensor
    sine: Tensor

    def __call__(self, states: Tensor) -> Tensor:
        """Turn the heads of every row. [N, heads, size]"""
        return turned(states, self.cosine, self.sine)


@dataclass(frozen=True)
class Read:
    """Queries, keys and values of the rows of a pass, turned, and the gate of their mix."""

    queries: Tensor  # [N, heads, size of a key]
    keys: Tensor  # [N, KV, size of a key]
    values: Tensor  # [N, KV, size of a value]
    gate: Tensor | None = None  # [N, heads, size of a value]

    @property
    def offered(self) -> tuple[Tensor, Tensor]:
        """Keys and values as a cache takes them. [1, KV, N, size] each"""
        return self.keys.transpose(0, 1)[None], self.values.transpose(0, 1)[None]


@dataclass(frozen=True)
class Attention:
    """Every head has queries of its own, and keys and values for itself or with a few others."""

    sizes: Block
    qkv: Product
    query_norm: Tensor | None  # [head_size]
    key_norm: Tensor | None
    out: Product

    @property
    def row(self) -> tuple[int, int, int]:
        """What it leaves for a token: heads, size of a key, size of a value."""
        return self.sizes.kv_heads, self.sizes.head_size, self.sizes.head_size

    def read(self, rows: Tensor, turn: Turn) -> Read:
        """What these rows ask and offer."""
        sizes, count = self.sizes, len(rows)
        size, wide = sizes.head_size, 2 if sizes.gated else 1
        parts = self.qkv(rows).split((sizes.heads * size * wide, *(sizes.kv_heads * size,) * 2), dim=-1)
        queries, keys, values = (part.view(count, -1, size) for part in parts)
        gate = None
        if sizes.gated:
            queries, gate = parts[0].view(count, sizes.heads, 2 * size).chunk(2, dim=-1)
        queries, keys = (
            normed(states, weight, sizes.epsilon)
            for states, weight in ((queries, self.query_norm), (keys, self.key_norm))
        )
        return Read(turn(queries), turn(keys), values, gate)

    def answer(self, read: Read, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """What the rows make of the keys and values that they see, [1, KV, width, size] each. [N, D]"""
        mixed = attended(read.queries, keys, values, mask)
        if read.gate is not None:
            mixed = mixed * read.gate.reshape(len(mixed), -1).sigmoid()
        return self.out(mixed)


def normed(rows: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    """RMS norm over the last numbers; without a weight, the rows as they are."""
    return rows if weight is None else functional.rms_norm(rows, weight.shape, weight, epsilon)
