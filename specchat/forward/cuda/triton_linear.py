"""The product of activations with 4-bit weights in Triton (W4A16): the weights stay packed until they are in registers.

A program computes some outputs of a tile of rows over all inputs, in their order, so a row has the same bits in every
pass of up to FEW_ROWS rows, and up to TILE_ROWS rows cost what one costs: the weights are read once. Knows tensors;
knows no layer.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from specchat.forward.linear.int4_linear import BLOCK_WORDS, NUMBERS_IN_WORD, Int4Weight

FEW_ROWS = 64
TILE_ROWS, PREFILL_TILE_ROWS = 16, 64
BLOCK_OUTPUTS = 32
OPTIONS = {"enable_fp_fusion": False}  # the default depends on the version of Triton


@triton.jit(do_not_specialize=["count"])
def _int4_kernel(
    rows, words, zeros, scales, bias, out, count, outputs, inputs, blocks, groups,
    GROUP_CHUNKS: tl.constexpr, CHUNKS: tl.constexpr, WORDS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """A chunk is the inputs of one number of each of WORDS words; a group has GROUP_CHUNKS chunks."""
    output = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1) * TILE + tl.arange(0, TILE)
    word = tl.arange(0, WORDS)
    is_output, is_row = output < outputs, row < count
    total = tl.zeros([TILE, BLOCK], tl.float32)
    for block in range(blocks):
        offsets = (output * blocks + block)[:, None] * WORDS + word[None, :]
        packed = tl.load(words + offsets, mask=is_output[:, None], other=0)
        for chunk in tl.static_range(CHUNKS):
            if chunk % GROUP_CHUNKS == 0:
                group = (block * CHUNKS + chunk) // GROUP_CHUNKS
                place_of_group = group * outputs + output
                is_group = is_output & (place_of_group < groups * outputs)  # the inputs may end before the last block
                zero = tl.load(zeros + place_of_group, mask=is_group, other=0).to(tl.int32)
                scale = tl.load(scales + place_of_group, mask=is_group, other=0.0).to(tl.float32)
                partial = tl.zeros([TILE, BLOCK], tl.float32)
            place = (block * CHUNKS + chunk) * WORDS + word
            is_number = is_row[:, None] & (place < inputs)[None, :]
            activations = tl.load(rows + row[:, None] * inputs + place[None, :], mask=is_number, other=0.0)
            numbers = (((packed >> (4 * chunk)) & 15) - zero[:, None]).to(tl.float32)  # exact in every dtype
            partial = tl.dot(activations, tl.trans(numbers.to(activations.dtype)), partial, input_precision="ieee")
            if chunk % GROUP_CHUNKS == GROUP_CHUNKS - 1 or chunk == CHUNKS - 1:
                total += partial * scale[None, :]
    if HAS_BIAS:
        total += tl.load(bias + output, mask=is_output, other=0.0).to(tl.float32)[None, :]
    to = out + row[:, None] * outputs + output[None, :]
    tl.store(to, total.to(out.dtype.element_ty), mask=is_row[:, None] & is_output[None, :])


def int4_product(rows: Tensor, weight: Int4Weight, bias: Tensor | None) -> Tensor:
    """rows @ weight.T + bias, in the dtype of the rows. [N, in] -> [N, out]"""
    rows, (outputs, width) = rows.contiguous(), weight.words.shape
    count, tile = len(rows), TILE_ROWS if len(rows) <= FEW_ROWS else PREFILL_TILE_ROWS
    out = rows.new_empty(count, outputs)
    _int4_kernel[(triton.cdiv(outputs, BLOCK_OUTPUTS), triton.cdiv(count, tile))](
        rows, weight.words, weight.zeros, weight.scales, weight.scales if bias is None else bias, out,
        count, outputs, weight.in_features, width // BLOCK_WORDS, len(weight.scales),
        GROUP_CHUNKS=triton.cdiv(weight.group_size, BLOCK_WORDS), CHUNKS=NUMBERS_IN_WORD, WORDS=BLOCK_WORDS, TILE=tile,
        BLOCK=BLOCK_OUTPUTS, HAS_BIAS=bias is not None, **OPTIONS,
    )  # fmt: skip
    return out
