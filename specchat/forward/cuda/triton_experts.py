"""The products of a mixture of experts in Triton, without a wait of the host: only the device knows who was chosen.

A pair is a row and one of its experts. The tensors of all experts lie one after the other, and the kernels of
`triton_linear.py` and `triton_blocks.py` take up to 16 pairs of one expert at a time, so the weights of each chosen
expert are read about once for a pass. Splits depend on the shape of the weight and on the experts of a row alone, so a
row has the same bits in every pass of up to FEW_ROWS rows. Knows tensors and linear layers; knows no router.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.forward.cuda.triton_blocks import tiled_blocks
from specchat.forward.cuda.triton_linear import DOT_ROWS, OPTIONS, TiledWeight, tiled, tiled_floats
from specchat.forward.linear.block_linear import BlockLinear
from specchat.forward.linear.byte_linear import ByteLinear
from specchat.forward.linear.expert_linear import ExpertLinear, RowsByExpert
from specchat.forward.linear.int4_linear import Int4Linear
from specchat.forward.linear.linear import TOLERANCE, FloatLinear, QuantLinear, sample_tensor

SUMMED_COLUMNS = 512  # of a program that adds up what the experts of a row computed
SAMPLE_ROWS, CHECKED_ROWS = 20, (0, 3, 18)  # of a trial: more than a tile has
LAYERS = (BlockLinear, Int4Linear, ByteLinear, FloatLinear)  # that can be multiplied so


@triton.jit
def _tile_kernel(experts, tiles, count, BLOCK: tl.constexpr):
    """Each 16th pair of an expert has a tile, with itself and those that follow; the tiles of others are empty."""
    pair = tl.program_id(0)
    place, slot = tl.arange(0, BLOCK), tl.arange(0, 16)
    expert = tl.load(experts + pair).to(tl.int32)
    others = tl.load(experts + place, mask=place < count, other=-1).to(tl.int32)
    is_same = (others == expert).to(tl.int32)
    rank = tl.cumsum(is_same, 0) - 1
    own = tl.sum(tl.where(place < pair, is_same, 0), 0)
    left = tl.where(own % 16 == 0, tl.sum(is_same, 0) - own, 0)
    to = tiles + pair * 17
    tl.store(to, tl.where(left > 0, expert, -1))
    tl.store(to + 1 + slot, count, mask=slot >= left)
    tl.store(to + 1 + rank - own, place, mask=(is_same > 0) & (rank >= own) & (rank < own + tl.minimum(left, 16)))


@triton.jit
def _sum_kernel(parts, weights, out, size, choices, BLOCK: tl.constexpr):
    """The weighted sum of what the experts of a row computed, in the order of its choices."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < size
    total = tl.zeros([BLOCK], tl.float32)
    for choice in range(choices):
        pair = row * choices + choice
        part = tl.load(parts + pair * size + column, mask=is_column, other=0.0).to(tl.float32)
        total += part * tl.load(weights + pair)
    tl.store(out + row * size + column, total.to(out.dtype.element_ty), mask=is_column)


@dataclass(frozen=True)
class ExpertPairs:
    """The chosen experts of each row, on the device: what `RowsByExpert` is on the host."""

    tiles: Tensor  # of pairs of one expert each, as `grouped_product` reads them
    choices: int  # of a row

    @classmethod
    def sort(cls, chosen: Tensor) -> ExpertPairs:
        """chosen: int64 [N, choices]"""
        experts, count = chosen.contiguous().view(-1), chosen.numel()
        tiles = torch.empty(count, 1 + DOT_ROWS, dtype=torch.int32, device=chosen.device)
        _tile_kernel[(count,)](experts, tiles, count, BLOCK=triton.next_power_of_2(count), **OPTIONS)
        return cls(tiles, chosen.shape[1])

    def gather(self, rows: Tensor) -> Tensor:
        return rows

    def scatter(self, outputs: Tensor) -> Tensor:
        return outputs.view(-1, self.choices, outputs.shape[1])

    def product(self, stack: QuantLinear, rows: Tensor) -> Tensor:
        """Each row times the weights of its experts, or each pair times that of its own. -> [N * choices, out]"""
        parts = [each.grouped_product(rows, bias, self.tiles, self.choices) for each, bias in tiled_parts(stack)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def weighted_sum(self, outputs: Tensor, weights: Tensor) -> Tensor:
        rows, size = len(weights), outputs.shape[1]
        out = outputs.new_empty(rows, size)
        grid = rows, triton.cdiv(size, SUMMED_COLUMNS)
        _sum_kernel[grid](outputs, weights.contiguous(), out, size, self.choices, BLOCK=SUMMED_COLUMNS, **OPTIONS)
        return out


def tiled_parts(stack: QuantLinear) -> list[tuple[TiledWeight, Tensor | None]]:
    """The weights of a stack, one above the other, with their biases."""
    if isinstance(stack, FloatLinear):
        return [(tiled_floats(stack.weight), stack.bias)]
    if isinstance(stack, Int4Linear | ByteLinear):
        return [(tiled(stack.weight), stack.bias)]
    assert isinstance(stack, BlockLinear), "no other layer is stacked"
    weights, bias = [tiled_blocks(part) for part in stack.parts], stack.bias
    biases = [None] * len(weights) if bias is None else bias.split([each.outputs for each in weights], dim=1)
    return [(weight, each if each is None else each.contiguous()) for weight, each in zip(weights, biases, strict=True)]


@torch.inference_mode()
def are_right(linear: ExpertLinear, dtype: torch.dtype) -> bool:
    """Whether results are those of the layers alone, and a row is the same alone. All rows share their first expert."""
    assert linear.stack is not None, "experts without one are not tried"
    count, (weight, _bias) = len(linear.experts), tiled_parts(linear.stack)[0]
    others = torch.arange(SAMPLE_ROWS) % max(count - 1, 1) + 1
    chosen = torch.stack((torch.zeros_like(others), others), dim=1)[:, :count].to(weight.tensors[0].device)
    rows = sample_tensor(dtype, SAMPLE_ROWS, weight.inputs).to(chosen.device)
    weights = sample_tensor(torch.float32, *chosen.shape).to(chosen.device)

    def results(kind: type[ExpertPairs | RowsByExpert], first: int, last: int) -> Tensor:
        by_expert = kind.sort(chosen[first:last])
        outputs = linear(by_expert.gather(rows[first:last]), by_expert)
        total = by_expert.weighted_sum(outputs, weights[first:last])
        return torch.cat((by_expert.scatter(outputs).flatten(1), total), dim=1)

    ours, expected = (results(kind, 0, SAMPLE_ROWS) for kind in (ExpertPairs, RowsByExpert))
    is_invariant = all(torch.equal(results(ExpertPairs, row, row + 1)[0], ours[row]) for row in CHECKED_ROWS)
    tolerance, size = TOLERANCE[dtype], float(expected.float().std())
    return is_invariant and torch.allclose(ours.float(), expected.float(), tolerance, tolerance * size)
