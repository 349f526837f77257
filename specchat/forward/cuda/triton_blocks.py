"""The product of activations with the blocks of a GGUF file in Triton: they stay packed until they are in registers.

The codes of a tile become whole numbers in the dtype of the activations, which is exact. Tensor cores multiply them
with up to FEW_ROWS rows, and the sums of each group are scaled. Tiles and splits, and so what holds for the bits of a
row, are those of `triton_linear.py`; the rows of a prefill start more programs. Knows tensors; knows no layer and no
file.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from specchat.forward.cuda.block_assembly import BFLOAT16, FLOAT16, code_assembly, table_assembly
from specchat.forward.cuda.triton_linear import (
    TiledWeight,
    has_assembly,
    load_inside,
    load_rows,
    pair_tile,
    store_tiles,
)
from specchat.forward.linear.block_linear import BLOCK_TYPES, E2M1_SCALE, NF4_CODES, NUMBERS_IN_WORD, BlockWeight

# Without assembly, a code becomes the mantissa of 2**23, which is subtracted: conversions of integers are slower.
_ONE_BITS, _ONE = tl.constexpr(0x4B000000), tl.constexpr(2.0**23)
_E2M1, _NF4 = (tl.constexpr(BLOCK_TYPES[each].form.value) for each in ("MXFP4", "NF4"))
_E2M1_SCALE, _CHUNKS = tl.constexpr(E2M1_SCALE), tl.constexpr(NUMBERS_IN_WORD)
_SCALE_OFFSET = tl.constexpr(float(BLOCK_TYPES["Q6_K"].scale_offset))
_TO_BFLOAT16, _TO_FLOAT16 = tl.constexpr(code_assembly(BFLOAT16)), tl.constexpr(code_assembly(FLOAT16))
_TABLE_TO_BFLOAT16 = tl.constexpr(table_assembly(BFLOAT16))
_TABLE_TO_FLOAT16 = tl.constexpr(table_assembly(FLOAT16))
_TABLE = tl.constexpr(NF4_CODES)
TYPE_NAMES = tuple(BLOCK_TYPES)


@triton.jit
def _codes(
    low, high, PLACE: tl.constexpr, TYPE: tl.constexpr, HIGH_BITS: tl.constexpr, OFFSET: tl.constexpr,
    FORM: tl.constexpr, DTYPE: tl.constexpr, HAS_PTX: tl.constexpr,
):  # fmt: skip
    """Code PLACE of each word, less the offset of its type. int32 low, int8 to int32 high -> DTYPE"""
    if HAS_PTX and DTYPE == tl.bfloat16:
        return tl.inline_asm_elementwise(
            _TO_BFLOAT16[TYPE * _CHUNKS + PLACE], "=r,r,r,r,r", [low, high.to(tl.int32)], tl.bfloat16, True, 2
        )
    elif HAS_PTX and DTYPE == tl.float16:
        return tl.inline_asm_elementwise(
            _TO_FLOAT16[TYPE * _CHUNKS + PLACE], "=r,r,r,r,r", [low, high.to(tl.int32)], tl.float16, True, 2
        )
    else:
        code = (low >> (4 * PLACE)) & 15
        if HIGH_BITS > 0:
            code = code | (((high.to(tl.int32) >> (HIGH_BITS * PLACE)) & ((1 << HIGH_BITS) - 1)) << 4)
        if FORM == _E2M1:  # exponent and mantissa, where a float has their lowest bits, and the sign
            number = (((code & 7) << 22) | ((code & 8) << 28)).to(tl.float32, bitcast=True) * _E2M1_SCALE
        elif FORM == _NF4:
            number = tl.zeros(code.shape, tl.float32)
            for index in tl.static_range(16):
                number = tl.where(code == index, _TABLE[index], number)
        else:
            number = (code | _ONE_BITS).to(tl.float32, bitcast=True) - (_ONE + OFFSET)
        return number.to(DTYPE)


@triton.jit
def _pair_of_codes(
    low, high, PLACE: tl.constexpr, TYPE: tl.constexpr, HIGH_BITS: tl.constexpr, OFFSET: tl.constexpr,
    FORM: tl.constexpr, DTYPE: tl.constexpr, HAS_PTX: tl.constexpr,
):  # fmt: skip
    """Codes PLACE and PLACE + 4."""
    if HAS_PTX and FORM == _NF4 and DTYPE == tl.bfloat16:
        return tl.inline_asm_elementwise(
            _TABLE_TO_BFLOAT16[PLACE], "=r,=r,r,r", [low], (tl.bfloat16, tl.bfloat16), True, 2
        )
    elif HAS_PTX and FORM == _NF4 and DTYPE == tl.float16:
        return tl.inline_asm_elementwise(
            _TABLE_TO_FLOAT16[PLACE], "=r,=r,r,r", [low], (tl.float16, tl.float16), True, 2
        )
    else:
        first = _codes(low, high, PLACE, TYPE, HIGH_BITS, OFFSET, FORM, DTYPE, HAS_PTX)
        return first, _codes(low, high, PLACE + 4, TYPE, HIGH_BITS, OFFSET, FORM, DTYPE, HAS_PTX)


@triton.jit
def _load_factors(place, outputs, is_output, WORDS: tl.constexpr, IS_EVEN: tl.constexpr):
    """All words of a block, so that no chunk waits for its own."""
    word_0 = load_inside(place, is_output, IS_EVEN)
    word_1 = load_inside(place + outputs, is_output, IS_EVEN) if WORDS > 1 else word_0
    word_2 = load_inside(place + 2 * outputs, is_output, IS_EVEN) if WORDS > 2 else word_0
    word_3 = load_inside(place + 3 * outputs, is_output, IS_EVEN) if WORDS > 3 else word_0
    word_4 = load_inside(place + 4 * outputs, is_output, IS_EVEN) if WORDS > 4 else word_0
    word_5 = load_inside(place + 5 * outputs, is_output, IS_EVEN) if WORDS > 5 else word_0
    word_6 = load_inside(place + 6 * outputs, is_output, IS_EVEN) if WORDS > 6 else word_0
    word_7 = load_inside(place + 7 * outputs, is_output, IS_EVEN) if WORDS > 7 else word_0
    return word_0, word_1, word_2, word_3, word_4, word_5, word_6, word_7


@triton.jit
def _half(word, IS_UPPER: tl.constexpr, IS_BFLOAT16: tl.constexpr):
    if IS_BFLOAT16:
        return ((word & -65536) if IS_UPPER else (word << 16)).to(tl.float32, bitcast=True)
    else:
        return ((word >> 16) if IS_UPPER else word).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _factor(
    words, GROUP: tl.constexpr, PLANE: tl.constexpr, PLANES: tl.constexpr, HAS_SCALES: tl.constexpr,
    IS_BFLOAT16: tl.constexpr,
):  # fmt: skip
    """The scale (plane 0) or the minimum of a group of the block, for each output. float32"""
    if HAS_SCALES:
        step, scales = _half(words[0], PLANE, IS_BFLOAT16), words[1 + 2 * PLANE + GROUP // 4]
        scale = (((scales >> (8 * (GROUP % 4))) & 255) | _ONE_BITS).to(tl.float32, bitcast=True)
        if PLANES == 2:  # rounded once, as the product
            return tl.fma(scale, step, -_ONE * step)
        else:
            return (scale - (_ONE + _SCALE_OFFSET)) * step
    elif PLANES == 2:
        return _half(words[GROUP], PLANE, IS_BFLOAT16)
    else:
        return _half(words[GROUP // 2], GROUP % 2, IS_BFLOAT16)


@triton.jit
def _add_chunk(
    rows, row, count, place, inputs, codes, scale, minimum, total, IS_EVEN: tl.constexpr, HAS_MINIMUM: tl.constexpr
):  # fmt: skip
    """The sum of activations by the tensor cores, too, where it is where the scaled sums are."""
    activations = load_rows(rows, row, count, place, inputs, IS_EVEN)
    nothing = tl.zeros(total.shape, tl.float32)
    total = tl.fma(tl.dot(activations, codes, nothing, input_precision="ieee"), scale, total)
    if HAS_MINIMUM:
        ones = tl.full(codes.shape, 1.0, codes.dtype)
        total = tl.fma(tl.dot(activations, ones, nothing, input_precision="ieee"), -minimum, total)
    return total


@triton.jit(do_not_specialize=["count", "blocks", "split_blocks", "choices"])
def _block_kernel(
    rows, low, high, factors, bias, out, parts, ended, count, outputs, inputs, blocks, split_blocks, pairs, choices,
    GROUP_CHUNKS: tl.constexpr, FACTOR_WORDS: tl.constexpr, WORDS: tl.constexpr, TYPE: tl.constexpr,
    HIGH_BITS: tl.constexpr, OFFSET: tl.constexpr, FORM: tl.constexpr, HAS_SCALES: tl.constexpr,
    PLANES: tl.constexpr, BLOCK: tl.constexpr, DOTS: tl.constexpr, IS_EVEN: tl.constexpr, HAS_BIAS: tl.constexpr,
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
        low += expert * blocks * outputs * WORDS
        high += expert * blocks * outputs * WORDS
        factors += expert * blocks * outputs * FACTOR_WORDS
        bias += expert * outputs
        blocks = blocks_of_tile
    word = tl.arange(0, WORDS)
    is_output = output < outputs
    total_0 = tl.zeros([16, BLOCK], tl.float32)
    total_1, total_2, total_3 = total_0, total_0, total_0
    first, end = split * split_blocks, min((split + 1) * split_blocks, blocks)
    of_output = factors + output
    next_words = _load_factors(of_output + first * FACTOR_WORDS * outputs, outputs, is_output, FACTOR_WORDS, IS_EVEN)
    for block in range(first, end):
        words = next_words
        following = of_output + min(block + 1, end - 1) * FACTOR_WORDS * outputs
        next_words = _load_factors(following, outputs, is_output, FACTOR_WORDS, IS_EVEN)
        place_of_words = (block * outputs + output)[None, :] * WORDS + word[:, None]
        low_words = load_inside(low + place_of_words, is_output[None, :], IS_EVEN)
        high_words = load_inside(high + place_of_words, is_output[None, :], IS_EVEN) if HIGH_BITS > 0 else low_words
        for part in tl.static_range(_CHUNKS // 2):
            pair = _pair_of_codes(
                low_words, high_words, part, TYPE, HIGH_BITS, OFFSET, FORM, rows.dtype.element_ty, HAS_PTX
            )
            for half in tl.static_range(2):
                codes, chunk = pair[half], part + 4 * half
                scale = _factor(words, (part + 4 * half) // GROUP_CHUNKS, 0, PLANES, HAS_SCALES, FORM == _E2M1)
                minimum = scale
                if PLANES == 2:
                    minimum = _factor(words, (part + 4 * half) // GROUP_CHUNKS, 1, PLANES, HAS_SCALES, FORM == _E2M1)
                scale, minimum = scale[None, :], minimum[None, :]
                place = (block * _CHUNKS + chunk) * WORDS + word
                total_0 = _add_chunk(
                    rows, row, count, place, inputs, codes, scale, minimum, total_0, IS_EVEN, PLANES == 2
                )
                if DOTS > 1:
                    total_1 = _add_chunk(
                        rows, row + 16, count, place, inputs, codes, scale, minimum, total_1, IS_EVEN, PLANES == 2
                    )
                if DOTS > 2:
                    total_2 = _add_chunk(
                        rows, row + 32, count, place, inputs, codes, scale, minimum, total_2, IS_EVEN, PLANES == 2
                    )
                    total_3 = _add_chunk(
                        rows, row + 48, count, place, inputs, codes, scale, minimum, total_3, IS_EVEN, PLANES == 2
                    )
    store_tiles(
        out, parts, ended, bias, total_0, total_1, total_2, total_3, blocks, to, count, output, outputs, DOTS, HAS_BIAS,
        HAS_SPLITS,
    )  # fmt: skip


def block_product(rows: Tensor, weight: BlockWeight, bias: Tensor | None) -> Tensor:
    """rows @ weight.T + bias, in the dtype of the rows. [N, in] -> [N, out]"""
    return tiled_blocks(weight).product(rows, bias)


def tiled_blocks(weight: BlockWeight) -> TiledWeight:
    kind, low, (blocks, outputs, words) = weight.kind, weight.low, weight.low.shape[-3:]
    constants = {
        "GROUP_CHUNKS": kind.group // words, "FACTOR_WORDS": weight.factors.shape[-2], "WORDS": words,
        "TYPE": TYPE_NAMES.index(weight.type_name), "HIGH_BITS": kind.high_bits, "OFFSET": float(kind.offset),
        "FORM": kind.form.value, "HAS_SCALES": kind.has_scales,
        "PLANES": kind.planes, "HAS_PTX": has_assembly(),
    }  # fmt: skip
    tensors = low, low if weight.high is None else weight.high, weight.factors
    return TiledWeight(
        _block_kernel, tensors, outputs, weight.in_features, blocks, NUMBERS_IN_WORD * words, (), constants
    )
