"""Linear layers on the blocks of GGUF files: the 4 to 8 bits a weight that the file has, never dequantized.

`native_packed.cpp` multiplies them with activations of 8 bits, as llama.cpp does: integer sums within a group of 32
inputs, which are scaled and added in order. A number of more than three times the next largest of its group stays a
float, as in LLM.int8() (Dettmers et al., 2022), so the others keep their bits. A row has the same bits in every batch.
The blocks are packed once, for groups of outputs that the kernel computes together; no number of the file is rounded.

| format | bits in the file | in memory | a weight is |
|---|---|---|---|
| `Q4_0`, `Q4_1` | 4.5, 5 | 4.5, 5 | scale * (code - 8), scale * code + minimum |
| `Q5_0`, `Q5_1` | 5.5, 6 | 5.5, 6 | scale * (code - 16), scale * code + minimum |
| `Q8_0` | 8.5 | 8.5 | scale * code |
| `Q4_K`, `Q5_K` | 4.5, 5.5 | 4.6, 5.6 | d * scale * code - dmin * minimum |
| `Q6_K` | 6.6 | 6.6 | d * scale * (code - 32), a scale for 16 inputs |

Knows tensors and blocks; knows no file and no network.
"""

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from specchat.forward.linear.linear import QuantLinear, WeightSource
from specchat.forward.native.native_ops import (
    DTYPE_NAMES,
    Kernel,
    NativeBorderError,
    NativeKernels,
    data_pointer,
    native_kernels,
)

GROUP, SUPER_GROUPS = 32, 8  # inputs of a group, groups of a super-block
PACKED_OUTPUTS = 256  # that are read before they are packed: their floats are in memory meanwhile
HUGE_PAGE_BYTES = 2**21
INT8_MAX, SMALLEST_SCALE = 127, 2.0**-24  # of half floats
TOLERANCE = 0.05  # of a layer with 8-bit activations against one with floats


@dataclass(frozen=True)
class PackedFormat:
    """A type of blocks, and the kernel that multiplies them."""

    block_inputs: int
    block_bytes: int
    file_number: int  # of the blocks of files, in native_packed.cpp
    kernel_number: int  # of the packed blocks, there
    offset: int  # of the codes; 0 where there are minimums


@dataclass(frozen=True)
class StoredBlocks:
    """A weight as it is in a file. `read_rows(first, last)` returns uint8 [last - first, bytes of a row]."""

    type_name: str
    shape: tuple[int, int]  # out, in
    read_rows: Callable[[int, int], Tensor]
    inputs: Tensor | None = None  # int64 [in]: the input that each column is for, where it is another one


@dataclass(frozen=True)
class PackedPart:
    """Outputs of a layer that have one format."""

    weight: Tensor  # uint8 [blocks of outputs, bytes]
    format: PackedFormat
    outputs: int


class NativePart(ctypes.Structure):
    """A `Part` of native_packed.cpp."""

    _fields_ = (("weights", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("outputs", "format", "offset")))


@dataclass(frozen=True)
class PackedLinear(QuantLinear):
    """One or more weights with the same inputs, as in a GGUF file."""

    is_batch_invariant = True

    parts: tuple[PackedPart, ...]
    bias: Tensor | None
    in_features: int
    kernels: Mapping[torch.dtype, Kernel]  # by that of the rows: the blocks have none

    def __getstate__(self) -> dict[str, object]:
        """For a file: the kernels are those of the process that reads it."""
        return {"parts": self.parts, "bias": self.bias, "in_features": self.in_features}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, kernels=packed_kernels(native_kernels()))

    @property
    def padded_inputs(self) -> int:
        return self.in_features

    @cached_property
    def out_features(self) -> int:
        return sum(part.outputs for part in self.parts)

    @cached_property
    def part_table(self) -> ctypes.Array[NativePart]:
        """The parts as the kernel reads them."""
        table = (NativePart * len(self.parts))()
        for row, part in zip(table, self.parts, strict=True):
            row.weights, row.outputs = part.weight.data_ptr(), part.outputs
            row.format, row.offset = part.format.kernel_number, part.format.offset
        return table

    def __call__(self, rows: Tensor, /) -> Tensor:
        kernel, bias = self.kernels.get(rows.dtype), self.bias
        is_right = rows.shape[-1] == self.in_features and (bias is None or bias.dtype == rows.dtype)
        if kernel is None or not is_right:
            raise NativeBorderError(f"linear: rows of {rows.shape[-1]} {rows.dtype}, not {self.in_features}")
        rows = rows.contiguous()
        out = rows.new_empty(*rows.shape[:-1], self.out_features)
        kernel(
            rows.data_ptr(), self.part_table, len(self.parts), data_pointer(bias), out.data_ptr(),
            rows.numel() // self.in_features, self.in_features, self.out_features, torch.get_num_threads(),
        )  # fmt: skip
        return out


@dataclass(frozen=True)
class ReorderedLinear(QuantLinear):
    """A layer whose columns are for its inputs in another order: blocks of columns cannot be taken apart."""

    is_batch_invariant = True

    linear: QuantLinear
    inputs: Tensor

    def __call__(self, rows: Tensor, /) -> Tensor:
        return self.linear(rows.index_select(-1, self.inputs))


def packed_linear(
    weights: Sequence[StoredBlocks], dtype: torch.dtype, bias: Tensor | None = None
) -> QuantLinear | None:
    """The layer of these weights, one above the other; None where a format or this CPU has no kernel."""
    native = native_kernels()
    kernels = packed_kernels(native)
    if dtype not in kernels or any(each.type_name not in PACKED_FORMATS for each in weights):
        return None
    parts, inputs = tuple(pack(each, native) for each in weights), weights[0].inputs
    linear = PackedLinear(parts, bias, weights[0].shape[1], kernels)
    return linear if inputs is None else ReorderedLinear(linear, inputs)


def multiplies_blocks() -> bool:
    """Whether this CPU has kernels for blocks."""
    return bool(packed_kernels(native_kernels()))


def blocks_of_8_bits(weight: WeightSource) -> StoredBlocks:
    """A float weight, rounded to blocks of Q8_0: a relative error of about 0.4 % of the largest number of each."""

    def read_rows(first: int, last: int) -> Tensor:
        groups = weight.read_rows(first, last).float().view(last - first, -1, GROUP)
        scales = (groups.abs().amax(dim=2, keepdim=True) / INT8_MAX).half()
        codes = (groups / scales.float().clamp(min=SMALLEST_SCALE)).round().clamp(-INT8_MAX, INT8_MAX).to(torch.int8)
        return torch.cat((scales.view(torch.uint8), codes.view(torch.uint8)), dim=2).flatten(1)

    return StoredBlocks("Q8_0", weight.shape, read_rows)


def pack(blocks: StoredBlocks, native: NativeKernels) -> PackedPart:
    """The blocks in the order in which the kernel reads them; outputs are padded to whole packed blocks."""
    kind, (outputs, inputs) = PACKED_FORMATS[blocks.type_name], blocks.shape
    if inputs % kind.block_inputs:
        raise NativeBorderError(f"pack: {inputs} inputs are no whole blocks of {kind.block_inputs}")
    row_bytes, together = inputs // kind.block_inputs * kind.block_bytes, native.call("packed_outputs")
    packed = empty_on_huge_pages(-(-outputs // together), native.call("packed_block_bytes", kind.file_number, inputs))
    for first, last in pairwise([*range(0, outputs, PACKED_OUTPUTS), outputs]):
        rows = blocks.read_rows(first, last).contiguous()
        if rows.shape != (last - first, row_bytes) or rows.dtype != torch.uint8:
            raise NativeBorderError(f"pack: {list(rows.shape)} {rows.dtype}, not {[last - first, row_bytes]} bytes")
        place = rows.data_ptr(), packed[first // together].data_ptr()
        native.call("pack_blocks", *place, last - first, inputs, kind.file_number, torch.get_num_threads())
    return PackedPart(packed, kind, outputs)


def empty_on_huge_pages(height: int, width: int) -> Tensor:
    """A matrix of bytes. A CPU that reads it as a whole looks up its addresses 512 times less often than by default."""
    size = height * width
    if size < HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(height, width, dtype=torch.uint8)
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8).view(height, width)


PACKED_FORMATS: Mapping[str, PackedFormat] = {
    "Q4_0": PackedFormat(32, 18, 0, 0, 8),
    "Q4_1": PackedFormat(32, 20, 1, 1, 0),
    "Q5_0": PackedFormat(32, 22, 2, 6, 16),
    "Q5_1": PackedFormat(32, 24, 7, 7, 0),
    "Q8_0": PackedFormat(32, 34, 3, 2, 128),
    "Q4_K": PackedFormat(256, 144, 4, 3, 0),
    "Q5_K": PackedFormat(256, 176, 5, 4, 0),
    "Q6_K": PackedFormat(256, 210, 6, 5, 32),
}


@lru_cache
def packed_kernels(native: NativeKernels) -> Mapping[torch.dtype, Kernel]:
    """The native kernels by the dtype of activations, without those that fail a test of their results."""
    kernels = {dtype: kernel for dtype in DTYPE_NAMES if (kernel := native.kernel("packed_linear", dtype)) is not None}
    if not kernels:
        return kernels
    inputs, outputs = 2 * SUPER_GROUPS * GROUP, 2 * native.lanes + 3
    rows = torch.arange(9 * inputs).float().sin_().view(9, inputs)
    for name, kind in PACKED_FORMATS.items():
        size = inputs // kind.block_inputs * kind.block_bytes
        blocks = (torch.arange(outputs * size) * 37 % 61).to(torch.uint8).view(outputs, size)  # small half floats
        stored = StoredBlocks(name, (outputs, inputs), lambda first, last, blocks=blocks: blocks[first:last])
        kernels = _right_kernels(kernels, stored, native, rows)
    return kernels


def _right_kernels(
    kernels: Mapping[torch.dtype, Kernel], blocks: StoredBlocks, native: NativeKernels, rows: Tensor
) -> dict[torch.dtype, Kernel]:
    """Those with results near the exact ones, and with the same bits for a row in every batch."""
    right = dict[torch.dtype, Kernel]()
    linear = PackedLinear((pack(blocks, native),), None, rows.shape[1], kernels)
    expected = rows @ dequantize(blocks).T
    for dtype, kernel in kernels.items():
        typed = rows.to(dtype)
        ours = linear(typed)
        is_invariant = all(torch.equal(linear(typed[:count]), ours[:count]) for count in range(1, 9))
        if is_invariant and (ours.float() - expected).norm() <= TOLERANCE * expected.norm():
            right[dtype] = kernel
    return right


def dequantize(blocks: StoredBlocks) -> Tensor:
    """The numbers of a weight. float32 [out, in]"""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize as gguf_dequantize

    rows = blocks.read_rows(0, blocks.shape[0]).numpy()
    return torch.from_numpy(gguf_dequantize(rows, GGMLQuantizationType[blocks.type_name]))
