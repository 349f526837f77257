"""A pass of the dense Llama family, written out: fused products, packed weights, rope from a table.

Llama, Qwen2, Qwen3, Mistral and what shares their shape. It computes what transformers computes and nothing besides,
and needs none of its modelling code. Knows tensors; how they came from a file is not its business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.device import sent
from specchat.engine.graphs import Graphs, Record
from specchat.engine.model import FINAL, Output
from specchat.engine.passes import Depth, Laid, Nodes, Pass, PassShape, States, chain_of
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
    """A model of the dense Llama family over our own passes. With `record`, passes over few nodes are replayed."""

    def __init__(
        self, sizes: Dimensions, weights: Weights, window: int, shape: PassShape, record: Record | None = None
    ) -> None:
        self.sizes, self.weights, self.shape = sizes, weights, shape
        windows = frozenset(layer.window for layer in weights.layers)
        self.graphs = Graphs(record, windows, self._added) if record is not None else None
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
        return self.score(self._run(chain_of(tokens), cache, Depth(layers)).final[-1:])

    def forward(self, tree: DraftTree, cache: KVCache) -> Output:
        """Score every node of the tree in one pass. [N, V]"""
        states, count = self._run(self.shape.nodes(tree), cache, self._whole), len(tree)
        return Output(self.score(states.final)[:count], states.tapped[:count] if states.tapped is not None else None)

    def read(self, tokens: list[int] | Tensor, cache: KVCache) -> Output:
        """Take in a chunk of a prompt and commit it. Logits [1, V], features [len(tokens), taps * D]"""
        states = self._run(chain_of(tokens), cache, self._whole)
        cache.commit(list(range(len(tokens))))
        return Output(self.score(states.final[-1:]), states.tapped)

    @property
    def _whole(self) -> Depth:
        return Depth(len(self.weights.layers), self.taps)

    def _run(self, nodes: Nodes, cache: KVCache, depth: Depth) -> States:
        if self.graphs is not None:
            states = self.graphs.run(nodes, cache, depth, self._through, self.shape.exact)
            if states is not None:
                return states
        return self._through(self._laid(self.shape.behind(nodes, cache), cache), depth)

    def _laid(self, nodes: Pass, cache: KVCache) -> Laid:
        device, windows = self.weights.embedding.device, {layer.window for layer in self.weights.layers}
        return Laid(
            sent(nodes.tokens, device),
            sent(nodes.positions, device),
            {window: self._mask(nodes, window) for window in windows},
            partial(cache.write, width=nodes.width),
        )

    @torch.inference_mode()
    def _through(self, laid: Laid, depth: Depth) -> States:
        """A pass through the first layers and the final norm."""
        weights, seen = self.weights, dict[int, Tensor]()
        rope = weights.rope[0][laid.positions][:, None], weights.rope[1][laid.positions][:, None]  # [N, 1, head_size]
        hidden = weights.embedding[laid.tokens]
        seen[0] = hidden
        for index, layer in enumerate(weights.layers[: depth.layers]):
            normed = self._norm(hidden, layer.before_attention)
            hidden = hidden + self._attention(index, normed, rope, laid)
            gate, up = layer.gate_up(self._norm(hidden, layer.before_mlp)).chunk(2, dim=-1)
            hidden = hidden + layer.down(functional.silu(gate) * up)
            if index + 1 in depth.taps:
                seen[index + 1] = hidden
        seen[FINAL] = hidden = self._norm(hidden, weights.norm)
        return States(hidden, torch.cat([seen[tap] for tap in depth.taps], dim=-1) if depth.taps else None)

    def _attention(self, index: int, normed: Tensor, rope: tuple[Tensor, Tensor], laid: Laid) -> Tensor:
        sizes, layer = self.sizes, self.weights.layers[index]
        states = layer.qkv(normed).view(len(normed), -1, sizes.head_size)
        queries, keys, values = states.split((sizes.heads, sizes.kv_heads, sizes.kv_heads), dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = self._norm(queries, layer.query_norm), self._norm(keys, layer.key_norm)
            both = turned(torch.cat((queries, keys), dim=1), *rope)
        else:
            both = turned(states[:, : sizes.heads + sizes.kv_heads], *rope)
        queries, keys = both.split((sizes.heads, sizes.kv_heads), dim=1)
        keys, values = laid.write(index, keys.transpose(0, 1)[None], values.transpose(0, 1)[None])
        return layer.attention_out(attended(queries, keys, values, laid.masks[layer.window]))

    def _mask(self, nodes: Pass, window: int | None) -> Tensor | None:
        return mask_of(nodes, window, self.sizes.heads // self.sizes.kv_heads, self.weights.embedding)

    def _added(self, sees: Tensor) -> Tensor:
        return added(sees, self.sizes.heads // self.sizes.kv_heads, self.weights.embedding)

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
    return added(sees, shared, like).to(like.device, non_blocking=True)


def added(sees: Tensor, shared: int, like: Tensor) -> Tensor:
    """Nothing where a row is seen, and minus infinity elsewhere. bool [N, width] -> [1, 1, shared * N, width]"""
    mask = torch.zeros(sees.shape, dtype=like.dtype, device=sees.device).masked_fill_(~sees, float("-inf"))
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
