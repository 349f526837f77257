"""The passes of a head for one draft tree: the last pairs of the text, and then each level of the tree.

`CachePasses` writes to the slot of a KV cache. `ArenaPasses` computes in an arena, whose place and lengths are numbers
on the device, so nothing waits for it and the passes of a whole tree can be one CUDA graph. Knows rows and positions;
knows no sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.device import copy_to_device
from specchat.engine.kv_arena import KVArena, write_rows
from specchat.forward.batch import CacheRows, ForwardBatch, RowBatch, ancestor_masks

if TYPE_CHECKING:
    from specchat.drafters.eagle.head import EagleHead, HeadOutput, PairHead


@dataclass(frozen=True)
class TextEnd:
    """The last pairs of a text, which the head has not computed yet, and where they belong."""

    hidden_states: Tensor  # the target's [n, layers * D]
    tokens: Sequence[int]  # that follow them [n]
    cache: KVCache  # of the head, with the pairs before
    first_position: int  # of the pair in the first row of the cache


def text_batch(cache: KVCache, first_position: int, count: int, window: int) -> RowBatch:
    """Pairs behind the committed ones, each of which sees those before it, at most `window`."""
    length = cache.length
    position = first_position + length
    mask = torch.ones(count, length + count, dtype=torch.bool).tril_(length)
    batch = RowBatch([0] * count, torch.arange(position, position + count), mask, length, first_position)
    return batch if length + count <= window else replace(batch, attention_mask=batch.sliding_window_mask(window))


class CachePasses:
    """Passes over the slot of a cache. Pairs and nodes are committed; the caller rolls the nodes back."""

    def __init__(self, head: PairHead, end: TextEnd) -> None:
        self.head, self.end, self.cache, self.device = head, end, end.cache, head.pool.layout.device
        self._pairs = end.cache.length + len(end.tokens)

    def read_pairs(self) -> HeadOutput:
        """Compute and commit the new pairs; the output of the last one. [1, …]"""
        batch = text_batch(self.cache, self.end.first_position, len(self.end.tokens), self.head.context_window)
        embeddings = self.head.embed(copy_to_device(self.end.tokens, self.device))
        output = self.head.forward(self.head.fuse(self.end.hidden_states), embeddings, batch, self.cache, 1)
        self.cache.commit(list(range(len(self.end.tokens))))
        return output

    def read_level(self, depth: int, hidden_states: Tensor, tokens: Tensor, ancestors: Tensor) -> HeadOutput:
        """Compute the nodes of a level of the tree, from 1 on. `ancestors` bool [n, nodes of all levels so far]"""
        length, count, first = self.cache.length, len(tokens), self.end.first_position
        position = first + self._pairs - 1 + depth
        mask = torch.cat((torch.ones(count, self._pairs, dtype=torch.bool), ancestors.cpu()), dim=1)
        if (outdated := position - self.head.context_window + 1 - first) > 0:
            mask[:, :outdated] = False
        batch = RowBatch(tokens, torch.full((count,), position), mask, length, first)
        output = self.head.forward(hidden_states, self.head.embed(tokens.to(self.device)), batch, self.cache)
        self.cache.commit(list(range(count)))  # for the next levels
        return output


@dataclass(frozen=True)
class TextPlace:
    """Where the pairs of a text lie in the arena, and what is computed of it, as numbers on the device."""

    first_row: Tensor  # []
    length: Tensor  # []: committed pairs
    pairs: Tensor  # []: with the new ones, which the first pass computes
    last: Tensor  # [1]: index of the last new one
    first_position: Tensor  # []: of the pair in the first row
    positions: Tensor  # of the new pairs and their padding, then of the nodes of each level [P + nodes]
    seen_pairs: Tensor  # of the new pairs, by each of them: the bits of a number [P]


class ArenaPasses:
    """The passes of one draft tree with `width` nodes in each level.

    Where kernels read the rows of a text, what a row sees is said by bits; else by masks over all rows of the arena.
    """

    def __init__(self, head: EagleHead, arena: KVArena, place: TextPlace, width: int) -> None:
        self.head, self.arena, self.place, self.width = head, arena, place, width

    def read_pairs(self, hidden_states: Tensor, tokens: Tensor) -> HeadOutput:
        """Compute the new pairs; the output of the last one. Rows behind it are padding. [P, …] -> [1, …]"""
        batch = self._batch(self.place.length, self.place.positions[: len(tokens)], self.place.seen_pairs, 0, 1)
        return self.head.forward_batch(hidden_states, self.head.embed(tokens), batch, self.place.last)

    def read_level(self, depth: int, hidden_states: Tensor, tokens: Tensor, ancestors: Tensor) -> HeadOutput:
        """Compute the nodes of a level of the tree, from 1 on.

        `ancestors`: the nodes of all levels so far that each sees, bool [width, depth * width] or as bits [width]
        """
        bits = ancestors if ancestors.dtype == torch.long else ancestor_masks(ancestors)
        node = (depth - 1) * self.width
        first = len(self.place.seen_pairs) + node
        batch = self._batch(self.place.pairs, self.place.positions[first : first + self.width], bits, node, self.width)
        return self.head.forward_batch(hidden_states, self.head.embed(tokens), batch)

    def _batch(
        self, length: Tensor, positions: Tensor, seen: Tensor, first_node: int, nodes_of_position: int
    ) -> ForwardBatch:
        """Rows that see `length` pairs, and of the nodes behind these the ones that `seen` has bits of. [N]

        A head attends to no more positions than it was trained for, and a layer to its window.
        """
        place, layers = self.place, self.arena.layers
        kv_length, nodes = layers[0][0].shape[2], first_node + len(positions)

        def write_kv(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            rows = place.first_row + length + torch.arange(first_node, nodes, device=positions.device)
            return write_rows(layers[layer], rows, keys, values)

        if self.head.reads_cache_rows:
            window = self.head.context_window
            where = CacheRows(layers.__getitem__, place.first_row, length, seen, kv_length, first_node, window)
            return ForwardBatch(positions, {}, write_kv, cache_rows=where)
        row = torch.arange(kv_length, device=positions.device) - place.first_row
        node = row - length
        is_node, node = (node >= 0) & (node < nodes), node.clamp(0, nodes - 1)
        allowed = torch.where(is_node, ((seen[:, None] >> node) & 1).bool(), (row >= 0) & (row < length))
        row_positions = place.first_position + torch.where(is_node, length + node // nodes_of_position, row)
        masks = {
            window: self.head.make_mask(
                allowed & (row_positions > positions[:, None] - min(window or 2**62, self.head.context_window))
            )
            for window in self.head.sliding_windows
        }
        return ForwardBatch(positions, masks, write_kv)
