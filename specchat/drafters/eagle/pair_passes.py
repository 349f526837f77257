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
from specchat.forward.batch import ForwardBatch, RowBatch

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
    """Where the pairs of a text lie in the arena, as numbers on the device."""

    first_row: Tensor  # []
    length: Tensor  # []: committed pairs
    count: Tensor  # []: new pairs, which the first pass computes
    first_position: Tensor  # []: of the pair in the first row


class ArenaPasses:
    """The passes of one draft tree with `width` nodes in each level."""

    def __init__(self, head: EagleHead, arena: KVArena, place: TextPlace, width: int) -> None:
        self.head, self.arena, self.place, self.width = head, arena, place, width
        self._row = (
            torch.arange(arena.layers[0][0].shape[2], device=place.length.device) - place.first_row
        )  # of the text
        self._pairs = place.length + place.count  # of the text
        self._is_pair = (self._row >= 0) & (self._row < self._pairs)

    def read_pairs(self, hidden_states: Tensor, tokens: Tensor) -> HeadOutput:
        """Compute the new pairs; the output of the last one. Rows behind `count` are padding. [P, …] -> [1, …]"""
        row = self.place.length + torch.arange(len(tokens), device=tokens.device)
        positions = self.place.first_position + row
        seen = self._is_pair & (self._row <= row[:, None])
        batch = self._batch(row, positions, seen, self.place.first_position + self._row)
        return self.head.forward_batch(hidden_states, self.head.embed(tokens), batch, self.place.count[None] - 1)

    def read_level(self, depth: int, hidden_states: Tensor, tokens: Tensor, ancestors: Tensor) -> HeadOutput:
        """Compute the nodes of a level of the tree, from 1 on. `ancestors` bool [width, depth * width]"""
        nodes, first = depth * self.width, self._pairs + (depth - 1) * self.width
        node = self._row - self._pairs
        is_node, node = (node >= 0) & (node < nodes), node.clamp(0, nodes - 1)
        last_position = self.place.first_position + self._pairs - 1
        positions = (last_position + depth).expand(self.width)
        row_positions = torch.where(
            is_node, last_position + 1 + node // self.width, self.place.first_position + self._row
        )
        seen = torch.where(is_node, ancestors[:, node], self._is_pair)
        row = first + torch.arange(self.width, device=tokens.device)
        return self.head.forward_batch(
            hidden_states, self.head.embed(tokens), self._batch(row, positions, seen, row_positions)
        )

    def _batch(self, row: Tensor, positions: Tensor, seen: Tensor, row_positions: Tensor) -> ForwardBatch:
        """A head attends to no more positions than it was trained for, and a layer to its window."""
        masks = {
            window: self.head.make_mask(
                seen & (row_positions > positions[:, None] - min(window or 2**62, self.head.context_window))
            )
            for window in self.head.sliding_windows
        }
        rows = self.place.first_row + row

        def write_kv(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            return write_rows(self.arena.layers[layer], rows, keys, values)

        return ForwardBatch(positions, masks, write_kv)
