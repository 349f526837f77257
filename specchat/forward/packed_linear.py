"""Linear layers on the blocks of GGUF files, as they are stored: 4 to 8 bits a weight, never dequantized.

`native_packed.cpp` multiplies them with activations of 8 bits, as llama.cpp does: integer sums within a group of 32
inputs, which are scaled and added in order. A number of more than three times the next largest of its group stays a
float, as in LLM.int8() (Dettmers et al., 2022), so the others keep their bits. A row has the same bits in every batch.
The blocks are packed once, for groups of outputs that the kernel computes together; no number of the file is rounded.
Formats with 5 and 6 bits take 8.

| format | bits in the file | in memory | a weight is |
|---|---|---|---|
| `Q4_0`, `Q4_1` | 4.5, 5 | 4.5, 5 | scale * (code - 8), scale * code + minimum |
| `Q5_0`, `Q8_0` | 5.5, 8.5 | 8.5 | scale * (code - 16), scale * code |
| `Q4_K`, `Q5_K` | 4.5, 5.5 | 4.6, 8.6 | d * scale * code - dmin * minimum |
| `Q6_K` | 6.6 | 8.6 | d * scale * (code - 32), a scale for 16 inputs |

Knows tensors and blocks; knows no file and no network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor

from specchat.forward.linear import QuantLinear, WeightSource, tensor_bytes
from specchat.forward.native_ops import Kernel, NativeBorderError, NativeKernels, data_pointer, native_kernels

GROUP, SUPER_GROUPS = 32, 8  # inputs of a group, groups of a super-block
PACKED_OUTPUTS = 512  # that are in memory as bytes while they are packed
INT8_MAX, SMALLEST_SCALE = 127, 2.0**-24  # of half floats
TOLERANCE = 0.05  # of a layer with 8-bit activations against one with floats


@dataclass(frozen=True)
class BlockCodes:
    """The codes of some outputs, and their scales: half floats, and with super-blocks bytes for each group.

    A group has one scale, or two for halves of it.
    """

    codes: Tensor  # uint8 [outputs, groups, 32]
    scales: Tensor  # float16 [outputs, groups or super-blocks]
    minimums: Tensor | None  # the same
    group_scales: Tensor | None = None  # int8 [outputs, groups, 1 or 2]
    group_minimums: Tensor | None = None  # int8 [outputs, groups, 1]


@dataclass(frozen=True)
class PackedFormat:
    """A type of blocks, and the kernel that multiplies them."""

    block_inputs: int
    block_bytes: int
    bits: int  # of a code in memory
    kernel_number: int  # in native_packed.cpp
    offset: int  # of the codes; 0 where there are minimums
    decode: Callable[[Tensor], BlockCodes]  # uint8 [outputs, blocks, bytes of a block]


@dataclass(frozen=True)
class StoredBlocks:
    """A weight as it is in a file. `read_rows(first, last)` returns uint8 [last - first, bytes of a row]."""

    type_name: str
    shape: tuple[int, int]  # out, in
    read_rows: Callable[[int, int], Tensor]


@dataclass(frozen=True)
class PackedPart:
    """Outputs of a layer that have one format."""

    weight: Tensor  # uint8 [blocks of outputs, bytes]
    format: PackedFormat
    outputs: int


@dataclass(frozen=True)
class PackedLinear(QuantLinear):
    """One or more weights with the same inputs, as in a GGUF file."""

    is_batch_invariant = True

    parts: tuple[PackedPart, ...]
    bias: Tensor | None
    in_features: int
    kernel: Kernel

    @property
    def out_features(self) -> int:
        return sum(part.outputs for part in self.parts)

    @property
    def bytes(self) -> int:
        return tensor_bytes(*(part.weight for part in self.parts), *([] if self.bias is None else [self.bias]))

    def __call__(self, rows: Tensor, /) -> Tensor:
        if rows.shape[-1] != self.in_features or (self.bias is not None and self.bias.dtype != rows.dtype):
            raise NativeBorderError(f"linear: rows of {rows.shape[-1]} {rows.dtype}, not {self.in_features}")
        rows = rows.contiguous()
        out = rows.new_empty(*rows.shape[:-1], self.out_features)
        first, size = 0, out.element_size()
        for part in self.parts:
            bias = None if self.bias is None else self.bias[first:]
            self.kernel(
                rows.data_ptr(), part.weight.data_ptr(), data_pointer(bias), out.data_ptr() + first * size,
                rows.numel() // self.in_features, self.in_features, part.outputs, self.out_features,
                part.format.kernel_number, part.format.offset, torch.get_num_threads(),
            )  # fmt: skip
            first += part.outputs
        return out


def packed_linear(
    weights: Sequence[StoredBlocks], dtype: torch.dtype, bias: Tensor | None = None
) -> QuantLinear | None:
    """The layer of these weights, one above the other; None where a format or this CPU has no kernel."""
    native = native_kernels()
    kernel = packed_kernel(native, dtype)
    if kernel is None or any(each.type_name not in PACKED_FORMATS for each in weights):
        return None
    parts = tuple(pack(each, native.lanes) for each in weights)
    return PackedLinear(parts, bias, weights[0].shape[1], kernel)


def blocks_of_8_bits(weight: WeightSource) -> StoredBlocks:
    """A float weight, rounded to blocks of Q8_0: a relative error of about 0.4 % of the largest number of each."""

    def read_rows(first: int, last: int) -> Tensor:
        groups = weight.read_rows(first, last).float().view(last - first, -1, GROUP)
        scales = (groups.abs().amax(dim=2, keepdim=True) / INT8_MAX).half()
        codes = (groups / scales.float().clamp(min=SMALLEST_SCALE)).round().clamp(-INT8_MAX, INT8_MAX).to(torch.int8)
        return torch.cat((scales.view(torch.uint8), codes.view(torch.uint8)), dim=2).flatten(1)

    return StoredBlocks("Q8_0", weight.shape, read_rows)


def pack(blocks: StoredBlocks, lanes: int) -> PackedPart:
    """The blocks in the order in which the kernel reads them; outputs are padded to whole lanes."""
    kind, (outputs, inputs) = PACKED_FORMATS[blocks.type_name], blocks.shape
    packed = list[Tensor]()
    for first, last in pairwise([*range(0, outputs, PACKED_OUTPUTS), outputs]):
        rows = blocks.read_rows(first, last).view(last - first, inputs // kind.block_inputs, kind.block_bytes)
        if padding := -len(rows) % lanes:
            rows = torch.cat((rows, rows.new_zeros(padding, *rows.shape[1:])))
        packed.append(_interleave(kind.decode(rows), kind.bits, lanes))
    return PackedPart(torch.cat(packed), kind, outputs)


def _interleave(codes: BlockCodes, bits: int, lanes: int) -> Tensor:
    """uint8 [outputs / lanes, bytes]: for each group the scales of all lanes, their minimums, words of 4 codes."""
    outputs, groups, _inputs = codes.codes.shape

    def by_lane(numbers: Tensor) -> Tensor:
        """[outputs, n, …] -> bytes [outputs / lanes, n, bytes of all lanes]"""
        lane_last = numbers.view(outputs // lanes, lanes, numbers.shape[1], -1).permute(0, 2, 3, 1).contiguous()
        return lane_last.view(torch.uint8).flatten(2)

    words = codes.codes
    if bits == 4:  # word i, and in the upper half of the bytes word i + 4
        words = words[..., : GROUP // 2] | words[..., GROUP // 2 :] << 4
    words = words.view(outputs // lanes, lanes, groups, -1, 4).permute(0, 2, 3, 1, 4).flatten(2)
    halves = [by_lane(each) for each in (codes.scales, codes.minimums) if each is not None]
    if codes.group_scales is None:
        return torch.cat((*halves, words), dim=2).flatten(1)
    bytes_of_groups = [by_lane(each) for each in (codes.group_scales, codes.group_minimums) if each is not None]
    in_supers = torch.cat((*bytes_of_groups, words), dim=2).view(outputs // lanes, groups // SUPER_GROUPS, -1)
    return torch.cat((*halves, in_supers), dim=2).flatten(1)


def _halves(blocks: Tensor, first: int) -> Tensor:
    """The half floats at a byte of each block. [outputs, blocks]"""
    return blocks[..., first : first + 2].contiguous().view(torch.float16).squeeze(-1)


def _nibbles(packed: Tensor) -> Tensor:
    """The lower halves of the bytes, then the upper halves. [..., n] -> [..., 2 * n]"""
    return torch.cat((packed & 15, packed >> 4), dim=-1)


def _bits(packed: Tensor, width: int) -> Tensor:
    """The parts of each byte, `width` bits each, the lowest first. [..., n] -> [..., 8 / width, n]"""
    shifts = torch.arange(0, 8, width, dtype=torch.uint8)[:, None]
    return packed[..., None, :] >> shifts & (1 << width) - 1


def _q4_0(blocks: Tensor) -> BlockCodes:
    return BlockCodes(_nibbles(blocks[..., 2:18]), _halves(blocks, 0), None)


def _q4_1(blocks: Tensor) -> BlockCodes:
    return BlockCodes(_nibbles(blocks[..., 4:20]), _halves(blocks, 0), _halves(blocks, 2))


def _q5_0(blocks: Tensor) -> BlockCodes:
    fifth = _bits(blocks[..., 2:6], 1).transpose(-1, -2).flatten(-2)
    return BlockCodes(_nibbles(blocks[..., 6:22]) | fifth << 4, _halves(blocks, 0), None)


def _q8_0(blocks: Tensor) -> BlockCodes:
    return BlockCodes(blocks[..., 2:34] ^ 128, _halves(blocks, 0), None)


def _k_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """8 scales and 8 minimums of 6 bits in 12 bytes. [..., 12] -> int8 [..., 8] each; minimums are subtracted"""
    low, middle, high = packed.split(4, dim=-1)
    scales = torch.cat((low & 63, high & 15 | low >> 6 << 4), dim=-1)
    minimums = torch.cat((middle & 63, high >> 4 | middle >> 6 << 4), dim=-1)
    return scales.to(torch.int8), -minimums.to(torch.int8)


def _with_k_scales(blocks: Tensor, codes: Tensor) -> BlockCodes:
    scales, minimums = _k_scales(blocks[..., 4:16])
    return BlockCodes(
        codes.reshape(len(blocks), -1, GROUP), _halves(blocks, 0), _halves(blocks, 2),
        scales.view(len(blocks), -1, 1), minimums.view(len(blocks), -1, 1),
    )  # fmt: skip


def _q4_k(blocks: Tensor) -> BlockCodes:
    return _with_k_scales(blocks, _bits(blocks[..., 16:144].unflatten(-1, (4, 32)), 4))


def _q5_k(blocks: Tensor) -> BlockCodes:
    low = _bits(blocks[..., 48:176].unflatten(-1, (4, 32)), 4).flatten(-3, -2)
    return _with_k_scales(blocks, low | _bits(blocks[..., 16:48], 1) << 4)


def _q6_k(blocks: Tensor) -> BlockCodes:
    low = _bits(blocks[..., :128].unflatten(-1, (2, 64)), 4).reshape(*blocks.shape[:2], 2, 4, 32)
    codes = low | _bits(blocks[..., 128:192].unflatten(-1, (2, 32)), 2) << 4
    scales = blocks[..., 192:208].contiguous().view(torch.int8).reshape(len(blocks), -1, 2)
    return BlockCodes(codes.reshape(len(blocks), -1, GROUP), _halves(blocks, 208), None, scales)


PACKED_FORMATS: Mapping[str, PackedFormat] = {
    "Q4_0": PackedFormat(32, 18, 4, 0, 8, _q4_0),
    "Q4_1": PackedFormat(32, 20, 4, 1, 0, _q4_1),
    "Q5_0": PackedFormat(32, 22, 8, 2, 16, _q5_0),
    "Q8_0": PackedFormat(32, 34, 8, 2, 128, _q8_0),
    "Q4_K": PackedFormat(256, 144, 4, 3, 0, _q4_k),
    "Q5_K": PackedFormat(256, 176, 8, 4, 0, _q5_k),
    "Q6_K": PackedFormat(256, 210, 8, 5, 32, _q6_k),
}


@lru_cache
def packed_kernel(native: NativeKernels, dtype: torch.dtype) -> Kernel | None:
    """The native kernel for this dtype of activations; None when there is none, or when a test gives other results."""
    kernel = native.kernel("packed_linear", dtype)
    if kernel is None:
        return None
    inputs, outputs = 2 * SUPER_GROUPS * GROUP, 2 * native.lanes + 3
    rows = torch.arange(9 * inputs).float().sin_().view(9, inputs).to(dtype)
    for name, kind in PACKED_FORMATS.items():
        size = inputs // kind.block_inputs * kind.block_bytes
        blocks = (torch.arange(outputs * size) * 37 % 61).to(torch.uint8).view(outputs, size)  # small half floats
        stored = StoredBlocks(name, (outputs, inputs), lambda first, last, blocks=blocks: blocks[first:last])
        linear = PackedLinear((pack(stored, native.lanes),), None, inputs, kernel)
        ours, expected = linear(rows).float(), rows.float() @ dequantize(stored).T
        is_invariant = all(torch.equal(linear(rows[:count]).float(), ours[:count]) for count in (1, 2, 4, 8))
        if not is_invariant or (ours - expected).norm() > TOLERANCE * expected.norm():
            return None
    return kernel


def dequantize(blocks: StoredBlocks) -> Tensor:
    """The numbers of a weight. float32 [out, in]"""
    kind, (outputs, inputs) = PACKED_FORMATS[blocks.type_name], blocks.shape
    parts = kind.decode(blocks.read_rows(0, outputs).view(outputs, -1, kind.block_bytes))
    scales, minimums = parts.scales.float()[..., None], parts.minimums
    if parts.group_scales is not None:
        scales = (scales * parts.group_scales.float().view(*scales.shape[:2], -1)).flatten(1)
    numbers = parts.codes.float().view(outputs, scales.numel() // outputs, -1)
    if minimums is None:
        return ((numbers - kind.offset) * scales.view(outputs, -1, 1)).view(outputs, inputs)
    added = minimums.float()[..., None]
    if parts.group_minimums is not None:
        added = added * parts.group_minimums.float().view(*added.shape[:2], -1)
    return (numbers * scales.view(outputs, -1, 1) + added.view(outputs, -1, 1)).view(outputs, inputs)
