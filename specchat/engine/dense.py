"""A pass of the dense Llama family, written out: fused products, packed weights, rope from a table.

Llama, Qwen2, Qwen3, Mistral and what shares their shape. It computes what transformers computes and nothing besides,
and needs none of its modelling code. Knows tensors; how they came from a file is not its business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.model import FINAL, Output
from specchat.engine.passes import Pass, PassShape
from specchat.engine.tree import DraftTree

Product = Callable[[Tensor], Tensor]  # [N, in] -> [N, out]
PACKED_ROWS = 8  # the row count that packed weights are laid out for; measured good from 1 to 128


@dataclass(frozen=True)
class Dimensions:
    """The numbers of a network."""

    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    epsilon: float
    longest: int  # positions that it was made for


@dataclass(frozen=True)
class Layer:
    """Weights of one layer. Query, key and value are one product; gate and up another."""

    before_attention: Tensor  # norm [D]
    qkv: Product  # -> (H + 2 KV) * head_size
    query_norm: Tensor | None  # [head_size]
    key_norm: Tensor | None
    attention_out: Product
    before_mlp: Tensor  # norm [D]
    gate_up: Product
    down: Product
    window: int | None  # positions that it looks back; None: all


@dataclass(frozen=True)
class Weights:
    """Everything that a pass multiplies with."""

    embedding: Tensor  # [V, D]
    layers: list[Layer]
    norm: Tensor  # [D]
    head: Product  # -> V
    rope: tuple[Tensor, Tensor]  # cosine and (in its first half negative) sine of every position [longest, head_size]
    bytes: int


class DenseModel:
    """A model of the dense Llama family over our own passes."""

    def __init__(self, sizes: Dimensions, weights: Weights, window: int, shape: PassShape) -> None:
        self.sizes, self.weights, self.shape = sizes, weights, shape
        self.window, self.vocabulary, self.bytes = window, sizes.vocabulary, weights.bytes
        self.chunk, self.widest, self.takes_trees = shape.chunk, shape.widest, not shape.exact
        rows = ((sizes.kv_heads, sizes.head_size, sizes.head_size),) * len(weights.layers)
        self.pool = KVPool(KVLayout(rows, weights.embedding.dtype, weights.embedding.device))
        self.taps: tuple[int, ...] = ()

    def tap(self, taps: tuple[int, ...]) -> None:
        """From now on, every output carries these hidden states."""
        self.taps = taps

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings. [n] -> [n, D]"""
        return self.weights.embedding[tokens]

    @torch.inference_mode()
    def score(self, hidden: Tensor) -> Tensor:
        """The output matrix alone. [n, D] -> [n, V]"""
        return self.weights.head(hidden)

    def exit(self, tokens: list[int], cache: KVCache, layers: int) -> Tensor:
        """Read tokens with the first layers only; their rows stay uncommitted. Logits of the last [1, V]"""
        hidden = self._through(self.shape.of_chunk(tokens, cache), cache, self.weights.layers[:layers], {})
        return self.score(hidden[-1:])

    def forward(self, tree: DraftTree, cache: KVCache) -> Output:
        """Score every node of the tree in one pass. [N, V]"""
        hidden, features = self._run(self.shape.of_tree(tree, cache), cache)
        count = len(tree)
        return Output(self.score(hidden)[:count], features[:count] if features is not None else None)

    def read(self, tokens: list[int], cache: KVCache) -> Output:
        """Take in a chunk of a prompt and commit it. Logits [1, V], features [len(tokens), taps * D]"""
        hidden, features = self._run(self.shape.of_chunk(tokens, cache), cache)
        cache.commit(list(range(len(tokens))))
        return Output(self.score(hidden[-1:]), features)

    def _run(self, nodes: Pass, cache: KVCache) -> tuple[Tensor, Tensor | None]:
        """States after the final norm [N, D], and the tapped ones side by side [N, taps * D]."""
        seen: dict[int, Tensor] = {}
        hidden = self._through(nodes, cache, self.weights.layers, seen)
        return hidden, torch.cat([seen[tap] for tap in self.taps], dim=-1) if self.taps else None

    @torch.inference_mode()
    def _through(self, nodes: Pass, cache: KVCache, layers: list[Layer], seen: dict[int, Tensor]) -> Tensor:
        """A pass through the first layers and the final norm [N, D]; notes in `seen` what is tapped."""
        weights, device = self.weights, self.weights.embedding.device
        positions = nodes.positions.to(device)
        rope = weights.rope[0][positions][:, None], weights.rope[1][positions][:, None]  # [N, 1, head_size]
        masks = {window: self._mask(nodes, window) for window in {layer.window for layer in layers}}
        hidden = weights.embedding[torch.tensor(nodes.tokens, device=device)]
        if 0 in self.taps:
            seen[0] = hidden
        for index, layer in enumerate(layers):
            normed = self._norm(hidden, layer.before_attention)
            hidden = hidden + self._attention(index, normed, rope, masks[layer.window], cache, nodes.width)
            gate, up = layer.gate_up(self._norm(hidden, layer.before_mlp)).chunk(2, dim=-1)
            hidden = hidden + layer.down(functional.silu(gate) * up)
            if index + 1 in self.taps:
                seen[index + 1] = hidden
        hidden = self._norm(hidden, weights.norm)
        seen[FINAL] = hidden
        return hidden

    def _attention(
        self, index: int, normed: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None, cache: KVCache, width: int
    ) -> Tensor:
        sizes, layer = self.sizes, self.weights.layers[index]
        states = layer.qkv(normed).view(len(normed), -1, sizes.head_size)
        queries, keys, values = states.split((sizes.heads, sizes.kv_heads, sizes.kv_heads), dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = self._norm(queries, layer.query_norm), self._norm(keys, layer.key_norm)
            both = turned(torch.cat((queries, keys), dim=1), *rope)
        else:
            both = turned(states[:, : sizes.heads + sizes.kv_heads], *rope)
        queries, keys = both.split((sizes.heads, sizes.kv_heads), dim=1)
        keys, values = cache.write(index, keys.transpose(0, 1)[None], values.transpose(0, 1)[None], width)
        return layer.attention_out(attended(queries, keys, values, mask))

    def _mask(self, nodes: Pass, window: int | None) -> Tensor | None:
        return mask_of(nodes, window, self.sizes.heads // self.sizes.kv_heads, self.weights.embedding)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, weight.shape, weight, self.sizes.epsilon)


def product(weight: Tensor, bias: Tensor | None = None) -> Product:
    """x -> x @ weight.T + bias. On a CPU the weight is packed for oneDNN, and the unpacked one can be dropped."""
    if weight.device.type == "cpu" and torch.backends.mkldnn.is_available():
        onednn = torch.ops.mkldnn  # what torch.compile calls for frozen weights; there is no public name for it
        packed = onednn._reorder_linear_weight(weight, PACKED_ROWS)  # noqa: SLF001
        multiply = onednn._linear_pointwise.default  # noqa: SLF001
        return lambda rows: multiply(rows, packed, bias, "none", [], "")
    return lambda rows: functional.linear(rows, weight, bias)


def mask_of(nodes: Pass, window: int | None, shared: int, like: Tensor) -> Tensor | None:
    """What is added to the scores of attention; None when all is seen. [1, 1, shared * N, width]

    `shared`: query heads that look at the same keys. `like` gives dtype and device.
    """
    sees = nodes.sees if window is None else nodes.near(window)
    if bool(sees.all()):
        return None
    mask = torch.zeros(sees.shape, dtype=like.dtype).masked_fill_(~sees, float("-inf")).to(like.device)
    return mask.repeat(shared, 1)[None, None]


def attended(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """What every row mixes of the values. queries [N, H, size]; keys, values [1, KV, width, size] -> [N, H * size]"""
    count, kv_heads = len(queries), keys.shape[1]
    shared = queries.shape[1] // kv_heads
    # heads that share keys become rows of one head: [1, KV, shared * N, size]
    rows = queries.view(count, kv_heads, shared, -1).permute(1, 2, 0, 3).reshape(1, kv_heads, shared * count, -1)
    mixed = functional.scaled_dot_product_attention(rows, keys, values, attn_mask=mask)
    return mixed.view(kv_heads, shared, count, -1).permute(2, 0, 1, 3).reshape(count, -1)


def turned(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding, halves layout; the first half of the sine is negative. [N, heads, head_size]

    A table that is narrower than the heads turns their first numbers only.
    """
    if cosine.shape[-1] < states.shape[-1]:
        front, rest = states.split((cosine.shape[-1], states.shape[-1] - cosine.shape[-1]), dim=-1)
        return torch.cat((turned(front, cosine, sine), rest), dim=-1)
    first, second = states.chunk(2, dim=-1)
    return torch.addcmul(states * cosine, torch.cat((second, first), dim=-1), sine)
