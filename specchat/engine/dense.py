"""A pass of the dense Llama family, written out: fused products, packed weights, rope from a table.

Llama, Qwen2, Qwen3, Mistral and what shares their shape. It computes what transformers computes and nothing besides,
and needs none of its modelling code. Knows tensors; how they came from a file is not its business.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.device import sent
from specchat.engine.graphs import Graphs, Record
from specchat.engine.mixing import mixed
from specchat.engine.model import FINAL, Output
from specchat.engine.passes import EXACT_WIDTH, Depth, Laid, Nodes, Pass, PassShape, States, chain_of
from specchat.engine.products import Product, is_steady
from specchat.engine.tree import DraftTree

BLOCK = 4  # rows that attention takes at once in exact mode; as many as often step together
TRIED_WIDTH = 600  # rows of keys to try attention with: more than it takes at once


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
    """Everything that a pass multiplies with. The embedding may lie on the CPU while all else is on a card."""

    embedding: Tensor  # [V, D]
    layers: list[Layer]
    norm: Tensor  # [D]
    head: Product  # -> V
    rope: tuple[Tensor, Tensor]  # cosine and (in its first half negative) sine of every position [longest, head_size]
    bytes: int


class DenseModel:
    """A model of the dense Llama family over our own passes. With `record`, passes over few nodes are replayed.

    In exact mode every pass has one number of rows over one width of keys. Where products round a row alike in any
    company, as packed and integer ones mostly do, rows are computed as they come, and attention takes them in blocks.
    """

    def __init__(
        self, sizes: Dimensions, weights: Weights, window: int, shape: PassShape, record: Record | None = None
    ) -> None:
        self.sizes, self.weights, self.shape = sizes, weights, shape
        self.device, self._like = weights.norm.device, weights.norm
        windows = frozenset(layer.window for layer in weights.layers)
        self.graphs = Graphs(record, windows, self._added) if record is not None else None
        self.window, self.vocabulary, self.bytes = window, sizes.vocabulary, weights.bytes
        self.chunk, self.widest, self.takes_trees = shape.chunk, shape.widest, not shape.exact
        rows = ((sizes.kv_heads, sizes.head_size, sizes.head_size),) * len(weights.layers)
        self.pool = KVPool(KVLayout(rows, self._like.dtype, self.device))
        self.taps: tuple[int, ...] = ()
        self._takes_blocks = shape.exact and self.graphs is None and self._is_steady()

    def tap(self, taps: tuple[int, ...]) -> None:
        """From now on, every output carries these hidden states."""
        self.taps = taps

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings. [n] -> [n, D]"""
        table = self.weights.embedding
        return table[tokens.to(table.device)].to(self.device, non_blocking=True)

    @torch.inference_mode()
    def score(self, hidden: Tensor) -> Tensor:
        """The output matrix alone. [n, D] -> [n, V]"""
        return self.weights.head(hidden)

    def exit(self, tokens: list[int], cache: KVCache, layers: int) -> Tensor:
        """Read tokens with the first layers only; their rows stay uncommitted. Logits of the last [1, V]"""
        return self.score(self._run(chain_of(tokens), cache, Depth(layers)).final[-1:])

    def forward(self, tree: DraftTree, cache: KVCache) -> Output:
        """Score every node of the tree in one pass. [N, V]"""
        nodes, count = self.shape.nodes(tree), len(tree)
        if self._takes_blocks:
            laid = self._in_blocks(self.shape.behind(nodes, cache), cache, count)
            states = self._through(laid, self._whole)
        else:
            states = self._run(nodes, cache, self._whole)
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
        device, windows = self.device, {layer.window for layer in self.weights.layers}
        return Laid(
            sent(nodes.tokens, device),
            sent(nodes.positions, device),
            {window: self._mask(nodes, window) for window in windows},
            partial(cache.write, width=nodes.width),
        )

    def _in_blocks(self, nodes: Pass, cache: KVCache, count: int) -> Laid:
        """The first `count` nodes of a padded pass; idle ones behind them fill the last block of attention."""
        laid = self._laid(nodes, cache)
        masks = {
            window: in_blocks(mask, len(nodes.tokens), -(-count // BLOCK)) if mask is not None else None
            for window, mask in laid.masks.items()
        }
        return replace(laid, tokens=laid.tokens[:count], positions=laid.positions[:count], masks=masks)

    @torch.inference_mode()
    def _through(self, laid: Laid, depth: Depth) -> States:
        """A pass through the first layers and the final norm."""
        weights, seen = self.weights, dict[int, Tensor]()
        rope = weights.rope[0][laid.positions][:, None], weights.rope[1][laid.positions][:, None]  # [N, 1, head_size]
        hidden = self.embed(laid.tokens)
        seen[0] = hidden
        for index, layer in enumerate(weights.layers[: depth.layers]):
            normed = self._norm(hidden, layer.before_attention)
            hidden = hidden + self._attention(index, normed, rope, laid)
            hidden = hidden + self._mlp(layer, hidden)
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

    def _mlp(self, layer: Layer, hidden: Tensor) -> Tensor:
        gate, up = layer.gate_up(self._norm(hidden, layer.before_mlp)).chunk(2, dim=-1)
        return layer.down(functional.silu(gate) * up)

    @torch.inference_mode()
    def _is_steady(self) -> bool:
        """Whether a row is rounded alike in any company. Layers have one shape, so one is looked at."""
        layer, sizes = self.weights.layers[0], self.sizes
        keys = torch.linspace(-1, 1, sizes.kv_heads * TRIED_WIDTH * sizes.head_size).sin_().to(self._like)
        keys = keys.view(1, sizes.kv_heads, TRIED_WIDTH, sizes.head_size)

        def attend(rows: Tensor) -> Tensor:
            mask = added(torch.ones(EXACT_WIDTH, TRIED_WIDTH).tril_().bool(), sizes.heads // sizes.kv_heads, self._like)
            mask = in_blocks(mask.to(self.device), EXACT_WIDTH, -(-len(rows) // BLOCK))
            return attended(rows.view(len(rows), sizes.heads, -1), keys, keys, mask)

        parts = (
            (attend, sizes.heads * sizes.head_size),
            (lambda rows: layer.qkv(self._norm(rows, layer.before_attention)), len(self._like)),
            (layer.attention_out, sizes.heads * sizes.head_size),
            (partial(self._mlp, layer), len(self._like)),
            (lambda rows: self.score(self._norm(rows, self.weights.norm)), len(self._like)),
        )
        return all(is_steady(part, inputs, self._like) for part, inputs in parts)

    def _mask(self, nodes: Pass, window: int | None) -> Tensor | None:
        return mask_of(nodes, window, self.sizes.heads // self.sizes.kv_heads, self._like)

    def _added(self, sees: Tensor) -> Tensor:
        return added(sees, self.sizes.heads // self.sizes.kv_heads, self._like)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, weight.shape, weight, self.sizes.epsilon)


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
    """What every row mixes of the values. queries [N, H, size]; keys, values [1, KV, width, size] -> [N, H * size]

    With a mask `in_blocks`, each block is computed by itself.
    """
    count, kv_heads = len(queries), keys.shape[1]
    shared, blocks = queries.shape[1] // kv_heads, 1 if mask is None else mask.shape[0]
    if blocks > 1 or (mask is not None and mask.shape[2] != shared * count):
        queries = functional.pad(queries, (0, 0, 0, 0, 0, blocks * BLOCK - count))
        keys, values = keys.expand(blocks, -1, -1, -1), values.expand(blocks, -1, -1, -1)
    # heads that share keys become rows of one head: [blocks, KV, shared * N / blocks, size]
    rows = queries.view(blocks, -1, kv_heads, shared, queries.shape[-1]).permute(0, 2, 3, 1, 4)
    result = mixed(rows.flatten(2, 3), keys, values, mask)
    result = result.view(blocks, kv_heads, shared, -1, result.shape[-1]).permute(0, 3, 1, 2, 4)
    return result.reshape(len(queries), -1)[:count]


def in_blocks(mask: Tensor, count: int, blocks: int) -> Tensor:
    """The first rows of a mask of `count` nodes, BLOCK nodes by themselves. [1, 1, shared * count, width] -> blocks

    What attention computes for a row hangs on how many rows there are, and so there are always as many:
    [blocks, 1, shared * BLOCK, width].
    """
    first = mask.view(-1, count, mask.shape[-1])[:, : blocks * BLOCK]
    return first.unflatten(1, (blocks, BLOCK)).transpose(0, 1).flatten(1, 2)[:, None]


def turned(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding, halves layout; the first half of the sine is negative. [N, heads, head_size]

    A table that is narrower than the heads turns their first numbers only.
    """
    if cosine.shape[-1] < states.shape[-1]:
        front, rest = states.split((cosine.shape[-1], states.shape[-1] - cosine.shape[-1]), dim=-1)
        return torch.cat((turned(front, cosine, sine), rest), dim=-1)
    first, second = states.chunk(2, dim=-1)
    return torch.addcmul(states * cosine, torch.cat((second, first), dim=-1), sine)
