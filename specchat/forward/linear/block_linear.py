"""Linear layers on the blocks of GGUF files on a GPU: the 4 to 8 bits a weight that the file has, until a kernel reads.

One layout for all types, in the order in which a kernel reads; no number of the file is rounded. A block of eight
chunks of inputs is W words of every output, one output after the other: number c of word w belongs to input W c + w of
the block. Four bits of each number are in one tensor, the others in a second one.

| type | bits in the file | here | a weight is |
|---|---|---|---|
| `Q4_0`, `Q5_0`, `Q8_0` | 4.5, 5.5, 8.5 | as many | step * (code - offset) |
| `Q4_1`, `Q5_1` | 5, 6 | as many | step * code - minimum |
| `Q4_K`, `Q5_K` | 4.5, 5.5 | 4.6, 5.6 | step * scale * code - step of minimums * minimum |
| `Q6_K` | 6.6 | 6.75 | step * scale * (code - 32), a scale for 16 inputs |
| `MXFP4` | 4.25 | 4.5 | step * number, which has 4 bits (e2m1) |
| `NF4`, of no GGUF file | | 4.25 | step of 64 inputs * number of bitsandbytes' table |

`packed_linear.py` has them for CPUs. Knows tensors and blocks; knows no file and no network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from specchat.forward.linear.linear import QuantLinear, sample_tensor, tried_product
from specchat.forward.linear.packed_linear import ReorderedLinear, StoredBlocks

NUMBERS_IN_WORD, LOW_BITS = 8, 4
WORD_DTYPES = {1: torch.int8, 2: torch.int16, 4: torch.int32}  # by the bits of a number
MXFP4, NF4 = "MXFP4", "NF4"
NF4_CODES = (  # the quantiles of a normal distribution (QLoRA, arXiv 2305.14314)
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
E2M1_SCALE = 2.0**127  # of twice a number of e2m1 whose bits are the lowest of exponent and mantissa of a float
PACKED_NUMBERS = 2**21  # that are taken apart at once
SAMPLE_SHAPE = (128, 5 * 256)  # whole tiles and several splits, as in a model


class CodeForm(Enum):
    """What a code is; the kernel has the numbers."""

    INTEGER, E2M1, NF4 = range(3)  # the others: a float of 4 bits, a place in NF4_CODES


@dataclass(frozen=True)
class UnpackedBlocks:
    """What blocks consist of. n rows of b blocks each; 2 where there are minimums, else 1."""

    codes: Tensor  # uint8 [n, b, inputs]
    steps: Tensor  # [n, b, 1 or 2]
    scales: Tensor | None = None  # int8 [n, b, 1 or 2, groups]: whole factors of the steps


@dataclass(frozen=True)
class BlockType:
    bytes: int  # of a block in a file
    unpack: Callable[[Tensor], UnpackedBlocks]  # uint8 [n, b, bytes]
    high_bits: int = 0  # of a code, beside LOW_BITS
    offset: int = 0  # of the codes
    has_minimum: bool = False
    group: int = 32  # inputs that share a scale
    step: int = 32  # inputs of a block, which share a step
    form: CodeForm = CodeForm.INTEGER

    @property
    def planes(self) -> int:
        """Factors of a group: a scale, and a minimum where there is one."""
        return 2 if self.has_minimum else 1

    @property
    def has_scales(self) -> bool:
        """Beside the steps."""
        return self.step > self.group

    @property
    def scale_offset(self) -> int:
        """What is added to a scale, so that it has no sign."""
        return 0 if self.has_minimum else 128

    @property
    def step_dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.form is CodeForm.E2M1 else torch.float16

    def factor_words(self, words: int) -> int:
        """Of an output, for a block of so many words."""
        groups = NUMBERS_IN_WORD * words // self.group
        return 1 + self.planes * groups // 4 if self.has_scales else self.planes * groups // 2


@dataclass(frozen=True)
class BlockWeight:
    type_name: str
    low: Tensor  # int32 [blocks of inputs, out, words of a block]
    high: Tensor | None  # as `low`, in the dtype of as many bits
    factors: Tensor  # int32 [blocks of inputs, words, out]: two steps, or four scales, in a word
    in_features: int

    @classmethod
    def zeros(cls, type_name: str, outputs: int, inputs: int, device: torch.device) -> BlockWeight:
        kind, zeros = BLOCK_TYPES[type_name], partial(torch.zeros, device=device)
        # many words where they need no more memory; a chunk is never more than a group
        words = 32 if kind.group >= 32 and inputs % (32 * NUMBERS_IN_WORD) == 0 else 16
        shape = -(-inputs // (NUMBERS_IN_WORD * words)), outputs, words
        high = zeros(shape, dtype=WORD_DTYPES[kind.high_bits]) if kind.high_bits else None
        factors = zeros(shape[0], kind.factor_words(words), outputs, dtype=torch.int32)
        return cls(type_name, zeros(shape, dtype=torch.int32), high, factors, inputs)

    @classmethod
    def pack(cls, weights: Sequence[StoredBlocks], device: torch.device) -> BlockWeight:
        """Weights of one type with the same inputs, one above the other, some rows at a time."""
        kind, inputs = BLOCK_TYPES[weights[0].type_name], weights[0].shape[1]
        packed = cls.zeros(weights[0].type_name, sum(each.shape[0] for each in weights), inputs, device)
        height, output = max(PACKED_NUMBERS // inputs, 1), 0
        for weight in weights:
            for first in range(0, weight.shape[0], height):
                rows = weight.read_rows(first, min(first + height, weight.shape[0])).to(device)
                packed.write(output, kind.unpack(rows.view(len(rows), -1, kind.bytes)))
                output += len(rows)
        return packed

    def write(self, first: int, unpacked: UnpackedBlocks) -> None:
        """The outputs from `first` on."""
        codes, to = unpacked.codes.flatten(1), slice(first, first + len(unpacked.codes))
        blocks, _outputs, words = self.low.shape
        codes = functional.pad(codes, (0, blocks * NUMBERS_IN_WORD * words - codes.shape[1]))
        codes = codes.view(len(codes), blocks, NUMBERS_IN_WORD, words).transpose(0, 1)
        self.low[:, to] = _words(codes & 15, LOW_BITS)
        if self.high is not None:
            self.high[:, to] = _words(codes >> LOW_BITS, self.kind.high_bits)
        steps, scales = unpacked.steps.view(torch.int16), unpacked.scales
        if scales is None:
            groups = blocks * NUMBERS_IN_WORD * words // self.kind.group
            steps = functional.pad(steps, (0, 0, 0, groups - steps.shape[1]))
            factors = steps.reshape(len(steps), blocks, -1).view(torch.int32)
        else:  # a block of the file may be two of these
            steps = functional.pad(steps, (0, 2 - steps.shape[2])).view(torch.int32)
            steps = steps.repeat_interleave(blocks // steps.shape[1], dim=1)
            scales = (scales.to(torch.int16) + self.kind.scale_offset).to(torch.uint8).transpose(1, 2)
            scales = scales.flatten(2).unflatten(2, (blocks, -1)).transpose(1, 2)
            factors = torch.cat((steps, scales.flatten(2).contiguous().view(torch.int32)), dim=2)
        self.factors[:, :, to] = factors.permute(1, 2, 0)

    @property
    def kind(self) -> BlockType:
        return BLOCK_TYPES[self.type_name]

    @property
    def out_features(self) -> int:
        return self.low.shape[1]

    def dequantized(self, dtype: torch.dtype, rows: Tensor | None = None) -> Tensor:
        """All rows or some, each number rounded once. [rows, in]"""

        def taken(part: Tensor, axis: int) -> Tensor:
            return part if rows is None else part.index_select(axis, rows)

        codes, kind = _numbers(taken(self.low, 1), LOW_BITS), self.kind
        if self.high is not None:
            codes = codes | _numbers(taken(self.high, 1), kind.high_bits) << LOW_BITS
        codes = codes.transpose(0, 1).flatten(1)
        if kind.form is CodeForm.E2M1:
            numbers = ((codes & 7) << 22 | (codes & 8) << 28).view(torch.float32) * E2M1_SCALE
        elif kind.form is CodeForm.NF4:
            numbers = torch.tensor(NF4_CODES, device=codes.device)[codes]
        else:
            numbers = (codes - kind.offset).float()
        factors = taken(self.factors, 2).permute(2, 0, 1).contiguous()
        steps = factors[..., :1].contiguous() if kind.has_scales else factors
        halves = steps.view(kind.step_dtype).float().unflatten(2, (-1, kind.planes if not kind.has_scales else 2)).mT
        if kind.has_scales:
            scales = factors[..., 1:].contiguous().view(torch.uint8).unflatten(2, (kind.planes, -1))
            halves = halves[:, :, : kind.planes] * (scales.float() - kind.scale_offset)
        scale, *minimum = halves.transpose(1, 2).flatten(2).repeat_interleave(kind.group, dim=2).unbind(1)
        numbers = numbers * scale
        return (numbers - minimum[0] if minimum else numbers)[:, : self.in_features].to(dtype)


def _words(numbers: Tensor, bits: int) -> Tensor:
    """Eight numbers in a word, the first in the lowest bits. uint8 [..., 8, W] -> [..., W]"""
    places = torch.arange(0, NUMBERS_IN_WORD * bits, bits, device=numbers.device)
    return (numbers.long() << places[:, None]).sum(-2).to(WORD_DTYPES[bits])


def _numbers(words: Tensor, bits: int) -> Tensor:
    """[..., W] -> int32 [..., 8, W]"""
    places = torch.arange(0, NUMBERS_IN_WORD * bits, bits, dtype=torch.int32, device=words.device)
    return (words.int().unsqueeze(-2) >> places[:, None]) & ((1 << bits) - 1)


BlockMatmul = Callable[[Tensor, BlockWeight, Tensor | None], Tensor]  # [N, in], weight, bias -> [N, out]


@dataclass(frozen=True)
class BlockLinear(QuantLinear):
    """One or more weights with the same inputs, as in a GGUF file."""

    is_batch_invariant = True

    parts: tuple[BlockWeight, ...]
    bias: Tensor | None
    multiply: BlockMatmul

    def __call__(self, rows: Tensor, /) -> Tensor:
        heights = [part.out_features for part in self.parts]
        biases = [None] * len(heights) if self.bias is None else self.bias.split(heights)
        outputs = [self.multiply(rows, part, bias) for part, bias in zip(self.parts, biases, strict=True)]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)


def block_linear(
    weights: Sequence[StoredBlocks], dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
) -> BlockLinear | ReorderedLinear | None:
    """The layer of these weights, one above the other; None where a type or this GPU has no kernel."""
    matmuls = [block_matmul(device, dtype, each.type_name) for each in weights]
    if (multiply := matmuls[0]) is None or None in matmuls:
        return None
    runs = [tuple(run) for _name, run in groupby(weights, lambda each: each.type_name)]
    linear = BlockLinear(tuple(BlockWeight.pack(run, device) for run in runs), bias, multiply)
    inputs = weights[0].inputs
    return linear if inputs is None else ReorderedLinear(linear, inputs.to(device))


@lru_cache
def block_matmul(device: torch.device, dtype: torch.dtype, type_name: str) -> BlockMatmul | None:
    """The kernel of this device; None without one, or when a test gives other results than dequantized weights."""
    if type_name not in BLOCK_TYPES:
        return None
    sample = lambda: [sample_weight(type_name, device)]
    return tried_product("triton_blocks.block_product", device, dtype, sample, f"blocks of {type_name}")


def sample_weight(type_name: str, device: torch.device) -> BlockWeight:
    """The same weight in every process, with all codes."""
    weight = BlockWeight.zeros(type_name, *SAMPLE_SHAPE, device)
    for part in (weight.low, weight.high):
        if part is not None:
            part.copy_((torch.arange(part.numel()) * 2654435761).to(part.dtype).view(part.shape))
    kind, (blocks, words, outputs) = weight.kind, weight.factors.shape
    step_words = 1 if kind.has_scales else words
    steps = sample_tensor(kind.step_dtype, blocks, step_words, outputs, 2) / weight.in_features
    weight.factors[:, :step_words] = steps.view(torch.int32)[..., 0].to(device)
    if kind.has_scales:
        scales = torch.arange(4 * blocks * (words - 1) * outputs).remainder_(7).to(torch.int8)
        weight.factors[:, 1:] = scales.view(torch.int32).view(blocks, words - 1, outputs).to(device)
    return weight


def _halves(blocks: Tensor, first: int, count: int = 1) -> Tensor:
    parts = blocks[..., first : first + 2 * count].to(torch.int16)
    return (parts[..., ::2] | parts[..., 1::2] << 8).view(torch.float16)


def _halves_of_bytes(quants: Tensor) -> Tensor:
    """The lower half of each byte, then the upper one."""
    return torch.cat((quants & 15, quants >> 4), dim=-1)


def _bits(quants: Tensor, bits: int = 1) -> Tensor:
    """The lowest bits of all bytes, then the next ones. [..., n] -> [..., n * 8 / bits]"""
    places = torch.arange(0, 8, bits, dtype=torch.uint8, device=quants.device)
    return ((quants.unsqueeze(-2) >> places[:, None]) & ((1 << bits) - 1)).flatten(-2)


def _unpack_plain(blocks: Tensor, *, has_minimum: bool = False, has_fifth_bit: bool = False) -> UnpackedBlocks:
    steps, quants = _halves(blocks, 0, 1 + has_minimum), 2 + 2 * has_minimum
    codes = _halves_of_bytes(blocks[..., quants + 4 * has_fifth_bit :])
    if has_fifth_bit:  # bit i of the four bytes is that of input i
        fifth = blocks[..., quants : quants + 4]
        codes = codes | _bits(fifth).unflatten(-1, (8, 4)).mT.flatten(-2) << 4
    if has_minimum:  # is added in the file
        steps[..., 1].neg_()
    return UnpackedBlocks(codes, steps)


def _unpack_mxfp4(blocks: Tensor) -> UnpackedBlocks:
    exponents = blocks[..., :1].to(torch.int16)  # of twice a step; numbers are doubled
    bits = torch.where(exponents < 2, 32 << exponents, (exponents - 1) << 7)
    return UnpackedBlocks(_halves_of_bytes(blocks[..., 1:]), bits.view(torch.bfloat16))


def _unpack_nf4(blocks: Tensor) -> UnpackedBlocks:
    """As bitsandbytes packs codes, behind their largest number."""
    quants = blocks[..., 2:]
    return UnpackedBlocks(torch.stack((quants >> 4, quants & 15), dim=-1).flatten(-2), _halves(blocks, 0))


def _unpack_k(blocks: Tensor, *, has_fifth_bit: bool = False) -> UnpackedBlocks:
    lower, minimums, upper = blocks[..., 4:16].unflatten(-1, (3, 4)).unbind(-2)
    scales = torch.cat((lower & 63, upper & 15 | (lower >> 2) & 48), dim=-1)
    minimums = torch.cat((minimums & 63, upper >> 4 | (minimums >> 2) & 48), dim=-1)
    codes = _halves_of_bytes(blocks[..., -128:].unflatten(-1, (4, 32))).flatten(-2)
    if has_fifth_bit:
        codes = codes | _bits(blocks[..., 16:48]) << 4
    return UnpackedBlocks(codes, _halves(blocks, 0, 2), torch.stack((scales, minimums), dim=-2).to(torch.int8))


def _unpack_q6_k(blocks: Tensor) -> UnpackedBlocks:
    low = _halves_of_bytes(blocks[..., :128].unflatten(-1, (2, 64)))
    codes = (low | _bits(blocks[..., 128:192].unflatten(-1, (2, 32)), 2) << 4).flatten(-2)
    scales = blocks[..., 192:208].view(torch.int8).unsqueeze(-2)
    return UnpackedBlocks(codes, _halves(blocks, 208), scales)


BLOCK_TYPES: Mapping[str, BlockType] = {
    "Q4_0": BlockType(18, _unpack_plain, offset=8),
    "Q4_1": BlockType(20, partial(_unpack_plain, has_minimum=True), has_minimum=True),
    "Q5_0": BlockType(22, partial(_unpack_plain, has_fifth_bit=True), 1, offset=16),
    "Q5_1": BlockType(24, partial(_unpack_plain, has_minimum=True, has_fifth_bit=True), 1, has_minimum=True),
    "Q8_0": BlockType(34, lambda blocks: UnpackedBlocks(blocks[..., 2:] ^ 128, _halves(blocks, 0)), 4, offset=128),
    "Q4_K": BlockType(144, _unpack_k, has_minimum=True, step=256),
    "Q5_K": BlockType(176, partial(_unpack_k, has_fifth_bit=True), 1, has_minimum=True, step=256),
    "Q6_K": BlockType(210, _unpack_q6_k, 2, offset=32, group=16, step=256),
    MXFP4: BlockType(17, _unpack_mxfp4, form=CodeForm.E2M1),
    NF4: BlockType(34, _unpack_nf4, group=64, step=64, form=CodeForm.NF4),
}
