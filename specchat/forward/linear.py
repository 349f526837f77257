"""Linear layers with float weights, and the weights that quantized layers are made from.

`quant_linear.py` has the layers with 8-bit and 4-bit weights. A weight is a `WeightSource` that is read in chunks of
rows, so that no complete float copy is in memory while it is packed or quantized. Knows tensors; knows no network and
no file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]  # [N, in] -> [N, out]
ONEDNN_PACK_ROWS = 8  # the row count that packed weights are laid out for; measured to be good from 1 to 128
CHUNK_ELEMENTS = 2**19  # numbers of a weight that are in memory as floats during quantization
TILE = 32  # outputs that bitsandbytes computes together on a CPU; chunks have whole tiles
TESTED_ROWS = 16  # the largest row count that `batch_invariant_from` tests: an exact pass has no more
TESTS_PER_ROW_COUNT = 2


class QuantLinear(ABC):
    """A linear layer in one of QUANT_FORMATS, floats included. Subclasses are dataclasses of tensors."""

    @property
    def bytes(self) -> int:
        return tensor_bytes(*(value for value in vars(self).values() if isinstance(value, Tensor)))

    @abstractmethod
    def __call__(self, rows: Tensor, /) -> Tensor:
        """rows @ weight.T + bias, in the dtype of the rows. [N, in] -> [N, out]"""


@dataclass(frozen=True)
class WeightSource:
    """A weight that may still be in a file: its rows are read on request."""

    shape: tuple[int, int]  # out, in
    read_rows: Callable[[int, int], Tensor]  # first, last -> [last - first, in], on the device, in the compute dtype
    device: torch.device

    @classmethod
    def from_tensor(cls, weight: Tensor) -> WeightSource:
        return cls((weight.shape[0], weight.shape[1]), lambda first, last: weight[first:last], weight.device)

    def all_rows(self) -> Tensor:
        return self.read_rows(0, self.shape[0])

    def row_chunks(self) -> Iterator[tuple[int, Tensor]]:
        """The rows in chunks of whole tiles (the last chunk may be smaller), each with the index of its first row."""
        height = max(CHUNK_ELEMENTS // self.shape[1] // TILE, 1) * TILE
        for first, last in pairwise([*range(0, self.shape[0], height), self.shape[0]]):
            yield first, self.read_rows(first, last)


@dataclass(frozen=True)
class FloatLinear(QuantLinear):
    weight: Tensor
    bias: Tensor | None

    def __call__(self, rows: Tensor, /) -> Tensor:
        return functional.linear(rows, self.weight, self.bias)


@dataclass(frozen=True)
class OneDnnLinear(QuantLinear):
    """A float weight in the packed layout of oneDNN."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, rows: Tensor, /) -> Tensor:
        multiply = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001
        return multiply(rows, self.weight, self.bias, "none", [], "")


def float_linear(weight: Tensor, bias: Tensor | None = None) -> QuantLinear:
    """A linear layer with a float weight. On a CPU the weight is packed, and the original can be freed."""
    if weight.device.type == "cpu" and torch.backends.mkldnn.is_available():
        # what torch.compile calls for frozen weights; it has no public name
        return OneDnnLinear(torch.ops.mkldnn._reorder_linear_weight(weight, ONEDNN_PACK_ROWS), bias)  # noqa: SLF001
    return FloatLinear(weight, bias)


def tensor_bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def batch_invariant_from(linear: Linear, in_features: int, like: Tensor) -> int:
    """The number of rows from which the result of a row is bit-identical in every batch, up to TESTED_ROWS.

    Kernels are selected by shape, not by value. But two kernels that sum in a different order mostly round to the same
    bfloat16, so this compares every row at every batch size. `like` gives dtype and device.
    """
    generator, invariant_from = torch.Generator().manual_seed(0), 1
    for _ in range(TESTS_PER_ROW_COUNT):
        rows = torch.randn(TESTED_ROWS, in_features, generator=generator).to(like)
        expected = linear(rows)
        for count in range(TESTED_ROWS - 1, invariant_from - 1, -1):
            batches = [slice(first, first + count) for first in range(0, TESTED_ROWS - count + 1, count)]
            if not all(torch.equal(linear(rows[batch]), expected[batch]) for batch in batches):
                invariant_from = count + 1
                break
    return invariant_from
