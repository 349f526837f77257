"""The product of activations with weights of 4 or 8 bits in Triton (W4A16, W8A16): they stay packed until in registers.

A program takes some outputs, a part of the inputs (a split) and up to FEW_ROWS rows, so weights are read once for all
of them. Tensor cores multiply 16 rows at a time whatever the number of rows; the splits depend on the shape of the
weight and on the GPU alone, and the program that ends last adds them in their order, in the same launch. So a row has
the same bits in every pass of up to FEW_ROWS rows, and with 8 bits in every pass. Knows tensors; knows no layer.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.devices import compute_capability, multiprocessors
from specchat.forward.cuda.kernel_trial import TENSOR_CORES
from specchat.forward.linear.byte_linear import BYTES_IN_WORD, ByteWeight
from specchat.forward.linear.int4_linear import NUMBERS_IN_WORD, Int4Weight

FEW_ROWS, DOT_ROWS = 64, 16
LEAST_TILES = 1024  # that are counted in one tensor
OPTIONS = {"enable_fp_fusion": False}  # the default depends on the version of Triton

# Two neighbouring words at once: four bits become the mantissa of 128 (bfloat16) or 1024 (float16), of which 128 or
# 1024 and the zero point are subtracted. That is exact, and integers are converted at a quarter of its speed.
_BFLOAT16_ONE, _FLOAT16_ONE = tl.constexpr(0x4300), tl.constexpr(0x6400)
_ASM = """{{
.reg .b32 t, minus_one;
mov.b32 minus_one, {minus_one};
shr.b32 t, $1, {shift};
lop3.b32 t, t, 0x000f000f, {one}, 0xea;
fma.rn.{kind}x2 $0, $2, minus_one, t;
}}"""
_SHIFTS = range(0, 16, 4)
_TO_BFLOAT16 = tl.constexpr(
    tuple(_ASM.format(shift=each, one="0x43004300", kind="bf16", minus_one="0xbf80bf80") for each in _SHIFTS)
)
_TO_FLOAT16 = tl.constexpr(
    tuple(_ASM.format(shift=each, one="0x64006400", kind="f16", minus_one="0xbc00bc00") for each in _SHIFTS)
)

_UINT4, _INT8, _E4M3, _FLOAT = (tl.constexpr(each) for each in range(4))


@triton.jit
def _numbers(packed, zero, PLACE: tl.constexpr, KIND: tl.constexpr, DTYPE: tl.constexpr, HAS_PTX: tl.constexpr):
    """Number PLACE of each word, less the zero point of its output. int16 [words, outputs], int32 [outputs]"""
    if KIND == _FLOAT:
        return packed.to(DTYPE)
    elif KIND == _INT8:  # the last bits of the mantissa of 2^23: conversions have a quarter of the speed
        bits = (((packed >> (8 * PLACE)) & 0xFF) ^ 0x80).to(tl.int32) | 0x4B000000
        return (bits.to(tl.float32, bitcast=True) - 8388736.0).to(DTYPE)
    elif KIND == _E4M3:  # as a float32 whose exponent lacks 120
        bits = packed.to(tl.int32) >> (8 * PLACE)
        bits = ((bits & 0x80) << 24) | ((bits & 0x7F) << 20)
        return (bits.to(tl.float32, bitcast=True) * 1.329227995784916e36).to(DTYPE)
    elif HAS_PTX and DTYPE == tl.bfloat16:
        zero = (zero | _BFLOAT16_ONE).to(tl.int16).to(tl.bfloat16, bitcast=True)
        zero = tl.broadcast_to(zero[None, :], packed.shape)
        return tl.inline_asm_elementwise(_TO_BFLOAT16[PLACE], "=r,r,r", [packed, zero], tl.bfloat16, True, 2)
    elif HAS_PTX and DTYPE == tl.float16:
        zero = (zero | _FLOAT16_ONE).to(tl.int16).to(tl.float16, bitcast=True)
        zero = tl.broadcast_to(zero[None, :], packed.shape)
        return tl.inline_asm_elementwise(_TO_FLOAT16[PLACE], "=r,r,r", [packed, zero], tl.float16, True, 2)
    else:
        return (((packed >> (4 * PLACE)) & 15).to(tl.int32) - zero[None, :]).to(tl.float32).to(DTYPE)


@triton.jit
def load_inside(place, mask, IS_EVEN: tl.constexpr):  # noqa: ANN201
    """Where all sizes are multiples of the tile's, no load is masked."""
    if IS_EVEN:
        return tl.load(place)
    else:
        return tl.load(place, mask=mask, other=0)


@triton.jit
def load_rows(rows, row, count, place, inputs, IS_EVEN: tl.constexpr):  # noqa: ANN201
    is_number = (row < count)[:, None] if IS_EVEN else (row < count)[:, None] & (place < inputs)[None, :]
    return tl.load(rows + row[:, None] * inputs + place[None, :], mask=is_number, other=0.0)


@triton.jit
def _add_dot(rows, row, count, place, inputs, numbers, total, IS_EVEN: tl.constexpr):
    activations = load_rows(rows, row, count, place, inputs, IS_EVEN)
    return tl.dot(activations, numbers, total, input_precision="ieee")


@triton.jit
def pair_tile(pairs, count, choices, blocks):  # noqa: ANN201
    """The expert of this program, the rows that it reads and those that it writes, and how many blocks it multiplies.

    `count` stands for no row. An empty tile has no blocks.
    """
    tile = pairs + tl.program_id(2) * 17
    pair = tl.load(tile + 1 + tl.arange(0, 16))
    expert = tl.load(tile)
    row = tl.where(pair < count, pair // choices, count)
    return tl.maximum(expert, 0).to(tl.int64), row, pair, tl.where(expert < 0, 0, blocks)


@triton.jit(do_not_specialize=["count", "blocks", "split_blocks", "choices"])
def _packed_kernel(
    rows, words, groups, bias, out, parts, ended, count, outputs, inputs, blocks, split_blocks, pairs, choices,
    group_numbers, KIND: tl.constexpr, GROUP_CHUNKS: tl.constexpr, CHUNKS: tl.constexpr, WORDS: tl.constexpr,
    BLOCK: tl.constexpr, DOTS: tl.constexpr, IS_EVEN: tl.constexpr, HALF_SCALES: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_SPLITS: tl.constexpr, HAS_PTX: tl.constexpr, IS_GROUPED: tl.constexpr,
):  # fmt: skip
    """A chunk is the inputs of one number of each of WORDS words; a group has GROUP_CHUNKS chunks.

    `parts` gets what each split computes, and `ended` counts those of a tile that have ended. Where all sizes are
    multiples of the tile's, no load is masked. With IS_GROUPED, the weights of experts lie one after the other, and a
    program takes 16 rows of one of them.
    """
    output = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    split = tl.program_id(1)
    row = tl.program_id(2) * (16 * DOTS) + tl.arange(0, 16)
    to = row
    if IS_GROUPED:
        expert, row, to, blocks_of_tile = pair_tile(pairs, count, choices, blocks)
        words += expert * outputs * (inputs if KIND == _FLOAT else blocks * WORDS)
        groups += expert * group_numbers
        bias += expert * outputs
        blocks = blocks_of_tile
    word = tl.arange(0, WORDS)
    is_output = output < outputs
    total_0 = tl.zeros([16, BLOCK], tl.float32)
    total_1, total_2, total_3 = total_0, total_0, total_0
    for block in range(split * split_blocks, min((split + 1) * split_blocks, blocks)):
        if KIND == _FLOAT:
            place = block * WORDS + word
            is_number = is_output[None, :] & (place < inputs)[:, None]
            packed = load_inside(words + output[None, :] * inputs + place[:, None], is_number, IS_EVEN)
        else:
            place_of_words = words + (block * outputs + output)[None, :] * WORDS + word[:, None]
            packed = load_inside(place_of_words, is_output[None, :], IS_EVEN)
        for chunk in tl.static_range(CHUNKS):
            if chunk % GROUP_CHUNKS == 0:
                group_place = ((block * CHUNKS + chunk) // GROUP_CHUNKS) * outputs + output
                is_group = is_output & (group_place < group_numbers)  # the inputs may end before the last block
                group = load_inside(groups + group_place, is_group, IS_EVEN) if KIND != _FLOAT else group_place
                zero = group & 255
                if KIND == _FLOAT:
                    scale = 1.0
                elif KIND != _UINT4:
                    scale = group.to(tl.float32, bitcast=True)[None, :]
                elif HALF_SCALES:
                    scale = (group >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)[None, :]
                else:
                    scale = (group & -65536).to(tl.float32, bitcast=True)[None, :]
                partial_0 = tl.zeros([16, BLOCK], tl.float32)
                partial_1, partial_2, partial_3 = partial_0, partial_0, partial_0
            place = (block * CHUNKS + chunk) * WORDS + word
            numbers = _numbers(packed, zero, chunk, KIND, rows.dtype.element_ty, HAS_PTX)
            partial_0 = _add_dot(rows, row, count, place, inputs, numbers, partial_0, IS_EVEN)
            if DOTS > 1:
                partial_1 = _add_dot(rows, row + 16, count, place, inputs, numbers, partial_1, IS_EVEN)
            if DOTS > 2:
                partial_2 = _add_dot(rows, row + 32, count, place, inputs, numbers, partial_2, IS_EVEN)
                partial_3 = _add_dot(rows, row + 48, count, place, inputs, numbers, partial_3, IS_EVEN)
            if chunk % GROUP_CHUNKS == GROUP_CHUNKS - 1 or chunk == CHUNKS - 1:
                total_0 += partial_0 * scale
                if DOTS > 1:
                    total_1 += partial_1 * scale
                if DOTS > 2:
                    total_2 += partial_2 * scale
                    total_3 += partial_3 * scale
    store_tiles(
        out, parts, ended, bias, total_0, total_1, total_2, total_3, blocks, to, count, output, outputs, DOTS, HAS_BIAS,
        HAS_SPLITS,
    )  # fmt: skip


@triton.jit
def store_tiles(  # noqa: ANN201
    out, parts, ended, bias, total_0, total_1, total_2, total_3, blocks, row, count, output, outputs,
    DOTS: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_SPLITS: tl.constexpr,
):  # fmt: skip
    """What a program has computed, 16 rows in each total; where it is a part, the last one to end adds all parts."""
    if not HAS_SPLITS:
        _store_tiles(out, bias, total_0, total_1, total_2, total_3, row, count, output, outputs, DOTS, HAS_BIAS)
    else:
        size = count.to(tl.int64) * outputs
        part = parts + tl.program_id(1) * size
        _store_tiles(part, bias, total_0, total_1, total_2, total_3, row, count, output, outputs, DOTS, False)
        tl.debug_barrier()  # a part is counted after all threads have stored theirs
        if blocks > 0:
            _add_parts(out, parts, ended, bias, size, row, count, output, outputs, DOTS, HAS_BIAS)


@triton.jit
def _add_parts(
    out, parts, ended, bias, size, row, count, output, outputs, DOTS: tl.constexpr, HAS_BIAS: tl.constexpr
):  # fmt: skip
    """In their order, where the part of this program is the last one of its tile."""
    counter = ended + tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    if tl.atomic_add(counter, 1, sem="acq_rel") == tl.num_programs(1) - 1:
        tl.store(counter, 0)  # for the next launch
        for dot in range(DOTS):
            row_of_dot = row + 16 * dot
            place = parts + row_of_dot.to(tl.int64)[:, None] * outputs + output[None, :]
            is_number = (row_of_dot < count)[:, None] & (output < outputs)[None, :]
            # first-level caches do not see what other multiprocessors wrote; some parts are on their way together
            total = tl.load(place, mask=is_number, other=0.0, cache_modifier=".cg")
            for split in tl.range(1, tl.num_programs(1), loop_unroll_factor=4):
                total += tl.load(place + split * size, mask=is_number, other=0.0, cache_modifier=".cg")
            _store(out, bias, total, row_of_dot, count, output, outputs, HAS_BIAS)


@triton.jit
def _store_tiles(
    out, bias, total_0, total_1, total_2, total_3, row, count, output, outputs,
    DOTS: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    _store(out, bias, total_0, row, count, output, outputs, HAS_BIAS)
    if DOTS > 1:
        _store(out, bias, total_1, row + 16, count, output, outputs, HAS_BIAS)
    if DOTS > 2:
        _store(out, bias, total_2, row + 32, count, output, outputs, HAS_BIAS)
        _store(out, bias, total_3, row + 48, count, output, outputs, HAS_BIAS)


@triton.jit
def _store(out, bias, total, row, count, output, outputs, HAS_BIAS: tl.constexpr):
    is_output = output < outputs
    if HAS_BIAS:
        total += tl.load(bias + output, mask=is_output, other=0.0).to(tl.float32)[None, :]
    to = out + row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(to, total.to(out.dtype.element_ty), mask=(row < count)[:, None] & is_output[None, :])


KINDS = {None: _UINT4.value, torch.int8: _INT8.value, torch.float8_e4m3fn: _E4M3.value}  # by the dtype of the numbers
FLOAT_WORDS = 64  # floats of an output that a program reads at once


@dataclass(frozen=True)
class Tile:
    """What a program computes at once, and how. No bit depends on it."""

    dots: int  # of 16 rows: 1, 2 or 4
    outputs: int
    warps: int
    stages: int
    registers: int | None = None  # the most of a thread


TILES = (Tile(1, 128, 4, 3), Tile(2, 128, 4, 3), Tile(4, 128, 4, 2))  # the fastest on an H200
SMALL_TILE = Tile(1, 32, 4, 1)  # without tensor cores
PROGRAMS, LEAST_BLOCKS = 2, 2  # of a multiprocessor, and of a split


def split_count(outputs: int, blocks: int, multiprocessors: int) -> int:
    """Into how many parts the inputs are cut, so that every multiprocessor has work; 1 where the outputs suffice."""
    programs = -(-outputs // TILES[0].outputs)
    wanted = max(1, min(multiprocessors * PROGRAMS // programs, blocks // LEAST_BLOCKS))
    return -(-blocks // -(-blocks // wanted))


def tile_for(count: int, dtype: torch.dtype, has_tensor_cores: bool) -> Tile:
    """The smallest that takes all rows at once, if one does, so that weights are read once."""
    if dtype == torch.float32 or not has_tensor_cores:
        return SMALL_TILE
    return next((tile for tile in TILES if count <= DOT_ROWS * tile.dots), TILES[-1])


def _is_compiled() -> bool:
    return isinstance(_packed_kernel, triton.JITFunction)


def has_assembly() -> bool:
    """Whether kernels may contain NVIDIA's."""
    return _is_compiled() and not torch.version.hip


@lru_cache
def hardware(device: torch.device) -> tuple[bool, int]:
    """Whether a device has tensor cores, and its multiprocessors."""
    return (compute_capability(device) >= TENSOR_CORES, multiprocessors(device)) if _is_compiled() else (True, 16)


@cache
def ended_splits(device: torch.device, tiles: int) -> Tensor:
    """Zeros, as every launch leaves them. Launches that share them run one after the other, as in one stream."""
    return torch.zeros(tiles, dtype=torch.int32, device=device)


@dataclass(frozen=True)
class TiledWeight:
    """A weight, and the kernel that multiplies it in tiles: its arguments beside those that all such kernels have."""

    kernel: Any
    tensors: tuple[Tensor, ...]
    outputs: int
    inputs: int
    blocks: int
    block_inputs: int
    numbers: tuple[int, ...]
    constants: Mapping[str, object]
    always_splits: bool = False  # the inputs, also where there are more than FEW_ROWS rows

    def product(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        """rows @ weight.T + bias, in the dtype of the rows. [N, in] -> [N, out]"""
        has_tensor_cores, processors = hardware(rows.device)
        splits = (
            split_count(self.outputs, self.blocks, processors) if self.always_splits or len(rows) <= FEW_ROWS else 1
        )
        return self.product_of(rows, bias, tile_for(len(rows), rows.dtype, has_tensor_cores), splits)

    def grouped_product(self, rows: Tensor, bias: Tensor | None, pairs: Tensor, choices: int) -> Tensor:
        """Each pair's row times the weight of its expert. [N, in], or of all pairs -> [N * choices, out]

        pairs: int32 [pairs, 1 + DOT_ROWS]: the expert of a tile, -1 in an empty one; its pairs, then their number
        """
        has_tensor_cores, processors = hardware(rows.device)
        splits = split_count(self.outputs * choices, self.blocks, processors)
        return self.product_of(rows, bias, tile_for(1, rows.dtype, has_tensor_cores), splits, pairs)

    def product_of(
        self, rows: Tensor, bias: Tensor | None, tile: Tile, splits: int, pairs: Tensor | None = None
    ) -> Tensor:
        """The product as a chosen number of splits, each not empty, computes it."""
        rows, outputs, is_grouped, has_splits = rows.contiguous(), self.outputs, pairs is not None, splits > 1
        tiles = rows if pairs is None else pairs
        count, some_bias = len(tiles), self.tensors[0] if bias is None else bias
        has_limit = tile.registers and has_assembly()
        limit = {"maxnreg": tile.registers} if has_limit else {}
        out = rows.new_empty(count, outputs)
        height = count if is_grouped else triton.cdiv(count, DOT_ROWS * tile.dots)
        width, parts, ended = triton.cdiv(outputs, tile.outputs), out, out
        if has_splits:
            parts = rows.new_empty(splits, count, outputs, dtype=torch.float32)
            ended = ended_splits(rows.device, max(triton.next_power_of_2(width * height), LEAST_TILES))
        self.kernel[(width, splits, height)](
            rows, *self.tensors, some_bias, out, parts, ended, count, outputs, self.inputs, self.blocks,
            triton.cdiv(self.blocks, splits), tiles, count // max(len(rows), 1), *self.numbers, IS_GROUPED=is_grouped,
            BLOCK=tile.outputs, DOTS=tile.dots, HAS_BIAS=bias is not None, HAS_SPLITS=has_splits,
            IS_EVEN=outputs % tile.outputs == 0 and self.inputs == self.blocks * self.block_inputs, **self.constants,
            num_warps=tile.warps, num_stages=tile.stages, **limit, **OPTIONS,
        )  # fmt: skip
        return out


def packed_product(rows: Tensor, weight: Int4Weight | ByteWeight, bias: Tensor | None) -> Tensor:
    """rows @ weight.T + bias, in the dtype of the rows. [N, in] -> [N, out]"""
    return tiled(weight).product(rows, bias)


def tiled(weight: Int4Weight | ByteWeight) -> TiledWeight:
    (blocks, outputs, words), is_int4 = weight.words.shape[-3:], isinstance(weight, Int4Weight)
    chunks = NUMBERS_IN_WORD if is_int4 else BYTES_IN_WORD
    constants = {
        "KIND": KINDS[weight.numbers_dtype], "GROUP_CHUNKS": weight.group_chunks, "CHUNKS": chunks, "WORDS": words,
        "HALF_SCALES": isinstance(weight, Int4Weight) and weight.scale_dtype == torch.float16,
        "HAS_PTX": has_assembly(),
    }  # fmt: skip
    return TiledWeight(
        _packed_kernel, (weight.words, weight.groups), outputs, weight.in_features, blocks, chunks * words,
        (weight.groups.shape[-2] * outputs,), constants,
        always_splits=not is_int4,  # models of 8 bits have such output matrices
    )  # fmt: skip


def float_product(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """rows @ weight.T + bias. [N, in] -> [N, out]"""
    return tiled_floats(weight).product(rows, bias)


def tiled_floats(weight: Tensor) -> TiledWeight:
    """weight [out, in], or [experts, out, in]"""
    outputs, inputs = weight.shape[-2:]
    blocks, constants = triton.cdiv(inputs, FLOAT_WORDS), {"KIND": _FLOAT.value, "GROUP_CHUNKS": 1, "CHUNKS": 1}
    constants |= {"WORDS": FLOAT_WORDS, "HALF_SCALES": False, "HAS_PTX": False}
    return TiledWeight(_packed_kernel, (weight, weight), outputs, inputs, blocks, FLOAT_WORDS, (0,), constants, True)
