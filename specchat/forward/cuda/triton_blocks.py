"""The product of activations with the blocks of a GGUF file in Triton: they stay packed until they are in registers.

A program decodes a tile of the weight to the dtype of the activations, as it would be dequantized in memory, and
multiplies it with up to FEW_ROWS rows by tensor cores. Tiles and splits, and so what holds for the bits of a row, are
those of `triton_linear.py`; the rows of a prefill start more programs. Knows tensors; knows no layer and no file.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from specchat.forward.cuda.triton_linear import TiledWeight, add_dot, load_inside, store_tiles
from specchat.forward.linear.block_linear import E2M1_SCALE, NUMBERS_IN_WORD, BlockWeight

# A code becomes the mantissa of 2**23, which is subtracted: exact, and faster than the conversion of an integer.
_ONE_BITS, _ONE = tl.constexpr(0x4B000000), tl.constexpr(2.0**23)
_E2M1_SCALE, _CHUNKS = tl.constexpr(E2M1_SCALE), tl.constexpr(NUMBERS_IN_WORD)


@triton.jit
def _numbers(low, high, PLACE: tl.constexpr, HIGH_BITS: tl.constexpr, OFFSET: tl.constexpr, IS_E2M1: tl.constexpr):
    """Number PLACE of each word as a float, before it is scaled. int32 low, int8 to int32 high -> float32"""
    code = (low >> (4 * PLACE)) & 15
    if HIGH_BITS > 0:
        code = code | (((high.to(tl.int32) >> (HIGH_BITS * PLACE)) & ((1 << HIGH_BITS) - 1)) << 4)
    if IS_E2M1:  # exponent and mantissa, where a float has their lowest bits, and the sign
        return (((code & 7) << 22) | ((code & 8) << 28)).to(tl.float32, bitcast=True) * _E2M1_SCALE
    else:
        return (code | _ONE_BITS).to(tl.float32, bitcast=True) - (_ONE + OFFSET)


@triton.jit
def _factor(steps, scales, group, step, output, outputs, is_output, HAS_SCALES: tl.constexpr, IS_EVEN: tl.constexpr):
    """The scale or the minimum of a group, for each output. float32"""
    factor = load_inside(steps + step * outputs + output, is_output, IS_EVEN).to(tl.float32)
    if HAS_SCALES:
        factor *= load_inside(scales + group * outputs + output, is_output, IS_EVEN).to(tl.float32)
    return factor[None, :]


@triton.jit(do_not_specialize=["count", "blocks", "split_blocks"])
def _block_kernel(
    rows, low, high, steps, scales, bias, out, count, outputs, inputs, blocks, split_blocks, step_count, group_count,
    GROUP_CHUNKS: tl.constexpr, STEP_CHUNKS: tl.constexpr, WORDS: tl.constexpr, HIGH_BITS: tl.constexpr,
    OFFSET: tl.constexpr, IS_E2M1: tl.constexpr, HAS_SCALES: tl.constexpr, HAS_MINIMUM: tl.constexpr,
    BLOCK: tl.constexpr, DOTS: tl.constexpr, IS_EVEN: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """A chunk is the inputs of one number of each of WORDS words; a group has GROUP_CHUNKS chunks, a step STEP_CHUNKS.

    `out` gets what each split computes, in its dtype. Where all sizes are multiples of the tile's, no load is masked.
    """
    output = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    split = tl.program_id(1)
    row = tl.program_id(2) * (16 * DOTS) + tl.arange(0, 16)
    word = tl.arange(0, WORDS)
    is_output = output < outputs
    total_0 = tl.zeros([16, BLOCK], tl.float32)
    total_1, total_2, total_3 = total_0, total_0, total_0
    for block in range(split * split_blocks, min((split + 1) * split_blocks, blocks)):
        place_of_words = (block * outputs + output)[None, :] * WORDS + word[:, None]
        low_words = load_inside(low + place_of_words, is_output[None, :], IS_EVEN)
        high_words = load_inside(high + place_of_words, is_output[None, :], IS_EVEN) if HIGH_BITS > 0 else low_words
        for chunk in tl.static_range(_CHUNKS):
            if chunk % GROUP_CHUNKS == 0:
                group = (block * _CHUNKS + chunk) // GROUP_CHUNKS
                step = (block * _CHUNKS + chunk) // STEP_CHUNKS
                scale = _factor(steps, scales, group, step, output, outputs, is_output, HAS_SCALES, IS_EVEN)
                if HAS_MINIMUM:
                    group, step = group + group_count, step + step_count
                    minimum = _factor(steps, scales, group, step, output, outputs, is_output, HAS_SCALES, IS_EVEN)
            numbers = _numbers(low_words, high_words, chunk, HIGH_BITS, OFFSET, IS_E2M1) * scale
            if HAS_MINIMUM:
                numbers = numbers - minimum
            numbers = numbers.to(rows.dtype.element_ty)
            place = (block * _CHUNKS + chunk) * WORDS + word
            total_0 = add_dot(rows, row, count, place, inputs, numbers, total_0, IS_EVEN)
            if DOTS > 1:
                total_1 = add_dot(rows, row + 16, count, place, inputs, numbers, total_1, IS_EVEN)
            if DOTS > 2:
                total_2 = add_dot(rows, row + 32, count, place, inputs, numbers, total_2, IS_EVEN)
                total_3 = add_dot(rows, row + 48, count, place, inputs, numbers, total_3, IS_EVEN)
    store_tiles(out, bias, total_0, total_1, total_2, total_3, split, row, count, output, outputs, DOTS, HAS_BIAS)


def block_product(rows: Tensor, weight: BlockWeight, bias: Tensor | None) -> Tensor:
    """rows @ weight.T + bias, in the dtype of the rows. [N, in] -> [N, out]"""
    return tiled_blocks(weight).product(rows, bias)


def tiled_blocks(weight: BlockWeight) -> TiledWeight:
    kind, low, scales, (blocks, outputs, words) = weight.kind, weight.low, weight.scales, weight.low.shape
    constants = {
        "GROUP_CHUNKS": kind.group // words, "STEP_CHUNKS": kind.step // words, "WORDS": words,
        "HIGH_BITS": kind.high_bits, "OFFSET": float(kind.offset), "IS_E2M1": kind.is_e2m1,
        "HAS_SCALES": scales is not None, "HAS_MINIMUM": kind.has_minimum,
    }  # fmt: skip
    tensors = low, low if weight.high is None else weight.high, weight.steps, low if scales is None else scales
    counts = weight.steps.shape[1], 0 if scales is None else scales.shape[1]
    block_inputs = NUMBERS_IN_WORD * words
    return TiledWeight(_block_kernel, tensors, outputs, weight.in_features, blocks, block_inputs, counts, constants)
