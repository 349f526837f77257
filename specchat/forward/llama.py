"""A pass of the dense Llama family, written out: fused products, packed weights, rope from a table.

Llama, Qwen2, Qwen3, Mistral and what shares their shape. It computes what transformers computes and nothing besides,
and needs none of its modelling code. Knows tensors; how they came from a file is not its business.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.device import sent
from specchat.engine.model import FINAL, Output
from specchat.engine.tree import DraftTree
from specchat.forward.attention import BLOCK, added, attended, in_blocks, mask_of
from specchat.forward.batch import EXACT_WIDTH, Depth, Laid, Nodes, Pass, PassShape, States, chain_of
from specchat.forward.cuda_graphs import Graphs, Record
from specchat.forward.fused_ops import Asked, Composed, Heads, between
from specchat.forward.linear import Product, steady_from

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

    In exact mode every pass looks at one width of keys, attention by torch takes rows in blocks, and there are at least
    as many rows as products need to round each alike in any company: one or two, for most that are packed or integer.
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
        heads = Heads(sizes.heads, sizes.kv_heads, sizes.head_size, sizes.epsilon)
        is_for_kernels = record is None and _have_one_dtype(weights)  # those of ours cannot be recorded
        self.between = between(heads, self._like) if is_for_kernels else Composed(heads)
        self._fewest = self._steady_from() if shape.exact and self.graphs is None else 0

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
        if self._fewest:
            laid = self._alike(self.shape.behind(nodes, cache), cache, max(count, self._fewest))
            states = self._through(laid, self._whole)
        else:
            states = self._run(nodes, cache, self._whole)
        return Output(self.score(states.final)[:count], states.tapped[:count] if states.tapped is not None else None)

    def read(self, tokens: list[int] | Tensor, cache: KVCache) -> Output:
        """Take in a chunk of a prompt and commit it. Logits [1, V], features [len(tokens), taps * D]"""
        states = self._run(chain_of(tokens), cache, self._whole)
        cache.commit(list(range(len(tokens))))
        return Output(self.score(states.final[-1:]), states.tapped)

    def walk(
        self, token: Tensor, links: int, cache: KVCache, pick: Callable[[Tensor], Tensor], kind: Hashable
    ) -> Tensor | None:
        """Tokens behind one that is on the device, each picked from what was said after the one before. [links]

        In one recording; None without recordings. Rows stay uncommitted. `pick` makes tokens [1] of logits [1, V], and
        `kind` tells apart what it does.
        """
        if self.graphs is None:
            return None
        depth = Depth(len(self.weights.layers))
        return self.graphs.walk(
            token, links, cache, lambda laid: pick(self.score(self._through(laid, depth).final)), kind
        )

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
            partial(cache.place, width=nodes.width),
        )

    def _alike(self, nodes: Pass, cache: KVCache, count: int) -> Laid:
        """The first `count` nodes of a padded pass, laid out so that each is computed alike in any company.

        Where attention itself does not do so, it gets blocks, of which idle nodes fill the last.
        """
        laid = self._laid(nodes, cache)
        laid = replace(laid, tokens=laid.tokens[:count], positions=laid.positions[:count], is_exact=True)
        if self.between.is_exact_over(nodes.width):
            return laid
        masks = {
            window: in_blocks(mask, len(nodes.tokens), -(-count // BLOCK)) if mask is not None else None
            for window, mask in laid.masks.items()
        }
        return replace(laid, masks=masks, place=None)

    @torch.inference_mode()
    def _through(self, laid: Laid, depth: Depth) -> States:
        """A pass through the first layers and the final norm."""
        weights, between, seen = self.weights, self.between, dict[int, Tensor]()
        cosine, sine = weights.rope[0][laid.positions][:, None], weights.rope[1][laid.positions][:, None]
        layers = weights.layers[: depth.layers]
        hidden = seen[0] = self.embed(laid.tokens)
        normed = between.norm(hidden, layers[0].before_attention)
        for index, layer in enumerate(layers):
            asked = Asked(layer.qkv(normed), layer.query_norm, layer.key_norm, cosine, sine)
            mix = layer.attention_out(between.attend(asked, laid, index, layer.window))
            hidden, normed = between.add(hidden, mix, layer.before_mlp)
            is_last = index + 1 == len(layers)
            next_norm = weights.norm if is_last else layers[index + 1].before_attention
            hidden, normed = between.add(hidden, self._mlp(layer, normed), next_norm)
            if index + 1 in depth.taps:
                seen[index + 1] = hidden
        seen[FINAL] = normed
        return States(normed, torch.cat([seen[tap] for tap in depth.taps], dim=-1) if depth.taps else None)

    def _mlp(self, layer: Layer, normed: Tensor) -> Tensor:
        return layer.down(self.between.gate(layer.gate_up(normed)))

    @torch.inference_mode()
    def _steady_from(self) -> int:
        """From how many rows on a row is rounded alike in any company. Layers have one shape, so one is looked at."""
        layer, sizes = self.weights.layers[0], self.sizes
        keys = torch.linspace(-1, 1, sizes.kv_heads * TRIED_WIDTH * sizes.head_size).sin_().to(self._like)
        keys = keys.view(1, sizes.kv_heads, TRIED_WIDTH, sizes.head_size)

        def attend(rows: Tensor) -> Tensor:
            mask = added(torch.ones(EXACT_WIDTH, TRIED_WIDTH).bool(), sizes.heads // sizes.kv_heads, self._like)
            mask = in_blocks(mask.to(self.device), EXACT_WIDTH, -(-len(rows) // BLOCK))
            return attended(rows.view(len(rows), sizes.heads, -1), keys, keys, mask)

        norm = self.between.norm
        parts = (
            (attend, sizes.heads * sizes.head_size),
            (lambda rows: layer.qkv(norm(rows, layer.before_attention)), len(self._like)),
            (layer.attention_out, sizes.heads * sizes.head_size),
            (lambda rows: self._mlp(layer, norm(rows, layer.before_mlp)), len(self._like)),
            (lambda rows: self.score(norm(rows, self.weights.norm)), len(self._like)),
        )
        return max(steady_from(part, inputs, self._like) for part, inputs in parts)

    def _mask(self, nodes: Pass, window: int | None) -> Tensor | None:
        return mask_of(nodes, window, self.sizes.heads // self.sizes.kv_heads, self._like)

    def _added(self, sees: Tensor) -> Tensor:
        return added(sees, self.sizes.heads // self.sizes.kv_heads, self._like)


def _have_one_dtype(weights: Weights) -> bool:
    norms = (norm for layer in weights.layers for norm in (layer.before_attention, layer.before_mlp))
    return all(each.dtype == weights.norm.dtype for each in (weights.embedding, *norms))
