"""Passes of a head over its KV arena, whose place and lengths are numbers on the device.

Nothing here waits for the device, so the passes of a whole draft tree can be one CUDA graph: the new pairs of the text,
then one pass for each level of the tree. Knows rows and positions; knows no sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.drafters.eagle.head import HeadOutput
from specchat.drafters.heads.networks import EagleHead
from specchat.engine.kv_arena import KVArena, write_rows
from specchat.forward.batch import ForwardBatch


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
