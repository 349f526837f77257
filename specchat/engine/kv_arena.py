"""The KV arena: the rows of all KV caches of one model, at one address for life.

A CUDA graph works at fixed addresses. Over an arena, the first row and the length of a text are numbers that a graph
reads on the device, so one graph serves every conversation, however long it is. A slot is a range of rows. Knows rows,
no cache and no text.
"""

from collections.abc import Sequence

from torch import Tensor

from specchat.engine.cache import KVLayout, LayerRows, Slot, allocate_stacks, layers_of
from specchat.engine.cache_sizes import SPARE_ROWS, whole_steps


class KVArena:
    """Rows for slots, which are given from the front and move together where a gap is in the way."""

    def __init__(self, layout: KVLayout, rows: int) -> None:
        self.layout, self.rows = layout, rows
        self.stacks = allocate_stacks(layout, rows + SPARE_ROWS)
        self.layers: list[LayerRows] = layers_of(layout, self.stacks)

    @property
    def bytes(self) -> int:
        return (self.rows + SPARE_ROWS) * self.layout.bytes_per_row

    def slot_rows(self, min_rows: int) -> int:
        """The size of a slot for at least `min_rows` rows; more than the arena has if it has too few."""
        return max(min(whole_steps(min_rows), self.rows), min_rows)

    def slot(self, first_row: int, rows: int) -> Slot:
        stacks = {shape: stack.narrow(2, first_row, rows) for shape, stack in self.stacks.items()}
        return Slot(self.layout, rows, stacks, first_row)

    def can_extend(self, slot: Slot, rows: int, others: Sequence[Slot]) -> bool:
        """Whether a slot can grow to `rows` rows where it is."""
        end = slot.first_row + rows
        return end <= self.rows and all(other.first_row < slot.first_row or other.first_row >= end for other in others)

    def moved(self, slot: Slot, first_row: int, length: int) -> Slot:
        """The slot at another place, with its first `length` rows."""
        if first_row == slot.first_row:
            return slot
        there = self.slot(first_row, slot.rows)
        for shape, stack in slot.stacks.items():  # one stack at a time: the ranges may overlap
            there.stacks[shape][:, :, :length] = stack[:, :, :length].clone()
        return there


def write_rows(layer: LayerRows, new_rows: Tensor, keys: Tensor, values: Tensor) -> LayerRows:
    """Write keys and values [1, H, N, size] to the rows with these numbers on the device [N]; return the layer."""
    stored_keys, stored_values = layer
    stored_keys.index_copy_(2, new_rows, keys)
    stored_values.index_copy_(2, new_rows, values)
    return layer
