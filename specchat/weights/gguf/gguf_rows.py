"""The rows of a published tensor, read from the blocks of a GGUF file: as blocks, or in bf16.

llama.cpp's changes are undone (`gguf_manifest.WeightChange`). Memory holds a few megabytes of a tensor at a time.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy

from specchat.weights.gguf.gguf_bytes import TensorBytes
from specchat.weights.gguf.gguf_manifest import MappedTensor, WeightChange
from specchat.weights.gguf.gguf_values import bf16_bits, check_dequantizable, damaged, dequantized, has_finite_scales

CHUNK_VALUES = 2**19  # that are in memory as float32 at a time


@dataclass(frozen=True)
class PublishedRows:
    """The rows of a matrix; a vector is one row."""

    tensor: MappedTensor
    stored: TensorBytes
    order: numpy.ndarray | None  # the stored row of each published row, if it is another one

    @classmethod
    def of(cls, tensor: MappedTensor) -> PublishedRows:
        is_paired = len(tensor.source.shape) > 1 and tensor.change is WeightChange.PAIRED_ROWS
        order = halves_of_pairs(row_count(tensor), tensor.heads) if is_paired else None
        return cls(tensor, TensorBytes(tensor.source), order)

    def blocks(self, first: int, last: int) -> numpy.ndarray:
        """The blocks of some rows. uint8 [rows, bytes of a row]

        ModelError for scales that are not finite: they would make every answer noise.
        """
        rows = self._rows(first, last)
        if not has_finite_scales(rows, self.tensor.source.type_name):
            raise damaged(self.tensor.source)
        return rows

    def bf16(self, first: int, last: int) -> numpy.ndarray:
        """Some rows as 16-bit numbers, rounded to bf16. uint16 [rows, columns]"""
        numbers, done = numpy.empty((last - first, self.tensor.source.shape[-1]), numpy.uint16), 0
        for chunk in self.bf16_chunks(first, last):
            numbers[done : done + len(chunk)] = chunk
            done += len(chunk)
        return numbers

    def bf16_chunks(self, first: int, last: int) -> Iterator[numpy.ndarray]:
        """The same, a few rows after the other."""
        step = max(1, CHUNK_VALUES // self.tensor.source.shape[-1])
        for begin in range(first, last, step):
            yield published_bf16(self.tensor, self._rows(begin, min(begin + step, last)))

    def _rows(self, first: int, last: int) -> numpy.ndarray:
        if self.order is None:
            return self.stored.rows(first, last)
        places = self.order[first:last]
        lowest = places.min()  # of one head, or of a few that follow each other
        return self.stored.rows(lowest, places.max() + 1)[places - lowest]


def published_bf16(tensor: MappedTensor, blocks: numpy.ndarray) -> numpy.ndarray:
    """Rows of a tensor from their blocks, rounded to bf16. uint16 [rows, columns]"""
    values = dequantized(blocks, tensor.source.type_name)
    if not numpy.isfinite(values).all():
        raise damaged(tensor.source)
    match tensor.change:
        case WeightChange.PLUS_ONE:
            values = values - numpy.float32(1)
        case WeightChange.PAIRED_ROWS if len(tensor.source.shape) == 1:  # a bias
            values = values[halves_of_pairs(values.size, tensor.heads)]
        case _:
            pass
    return bf16_bits(values).reshape(len(blocks), -1)


def halves_of_pairs(rows: int, heads: int) -> numpy.ndarray:
    """The stored row of each published row: two heads of 4 rows are stored as 0 2 1 3, 4 6 5 7."""
    return numpy.arange(rows).reshape(heads, -1, 2).transpose(0, 2, 1).reshape(-1)


def row_count(tensor: MappedTensor) -> int:
    return prod(tensor.source.shape[:-1])


def check_block_types(tensors: Sequence[MappedTensor]) -> None:
    """ModelError when a tensor has blocks that cannot be dequantized."""
    for tensor in {each.source.type_name: each.source for each in tensors}.values():
        check_dequantizable(tensor)
