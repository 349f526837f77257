"""Where top-k, top-p and min-p cut rows of logits: the rank of the last column that each row keeps.

No row is sorted. Programs for parts of rows add up, for each octave of probability, the units that its columns have, or
for top-k the columns; then they list the columns of the octave in which the cut must be, and a program for each row
bisects this list. Sums are whole numbers, as in `engine/truncation.py`, so that their order does not matter, and equal
logits are cut by their column, as on CPUs. Knows no temperature but through its rules, no noise and no tokens.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
from __future__ import annotations

from math import log

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.sampling import Sampler
from specchat.engine.truncation import (
    COEFFICIENTS,
    EXPONENT_BITS,
    EXPONENT_STEPS,
    MOST_STEPS,
    TOP_P_BITS,
    top_p_share,
)

BLOCK = 1024  # columns of a program, and of a list that are read at once
SUMS = tl.constexpr(64)  # of a row: one for each octave of probability, the last one for the length of its list
WHOLE_SHARE = tl.constexpr(1 << TOP_P_BITS)  # top-p keeps all
_EXPONENT_BITS, _TOP_P_BITS, _MOST_STEPS = map(tl.constexpr, (EXPONENT_BITS, TOP_P_BITS, MOST_STEPS))
_FRACTION, _SHARE_FRACTION = (tl.constexpr((1 << bits) - 1) for bits in (EXPONENT_BITS, TOP_P_BITS))
_C0, _C1, _C2, _C3, _C4, _C5, _C6 = map(tl.constexpr, COEFFICIENTS)
OPTIONS = {"enable_fp_fusion": False}  # the default depends on the version of Triton


@triton.jit
def order_of(scores: tl.tensor) -> tl.tensor:
    """Integers that order as scores do. NaN is above all, and -0.0 equals 0.0."""
    bits = tl.where(scores == 0.0, 0.0, scores).to(tl.int32, bitcast=True)
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))


@triton.jit
def rank_of(scores: tl.tensor, column: tl.tensor) -> tl.tensor:
    """Numbers that order as scores do, and of equal ones the first column above the others."""
    return (order_of(scores).to(tl.int64) << 32) | (0x7FFFFFFF - column).to(tl.int64)


@triton.jit
def _units_of(numbers, highest, steps_of_one):
    """`probability_units`, and the octave of each column: 0 for those above half of the best, 32 without a unit."""
    steps = tl.minimum((highest - numbers) * steps_of_one, _MOST_STEPS).to(tl.int32)
    fraction, octave = (steps & _FRACTION).to(tl.int64), steps >> _EXPONENT_BITS
    units = _C5 - (fraction * _C6 >> _EXPONENT_BITS)
    units = _C4 - (units * fraction >> _EXPONENT_BITS)
    units = _C3 - (units * fraction >> _EXPONENT_BITS)
    units = _C2 - (units * fraction >> _EXPONENT_BITS)
    units = _C1 - (units * fraction >> _EXPONENT_BITS)
    units = _C0 - (units * fraction >> _EXPONENT_BITS)
    return units >> octave.to(tl.int64), octave


@triton.jit
def _units_to_keep(total, share):
    return (total >> _TOP_P_BITS) * share + ((total & _SHARE_FRACTION) * share >> _TOP_P_BITS)


@triton.jit
def _open_octaves(sums, row, top_k, share):
    """The first and the last octave whose columns may be kept or not, and what these must have together.

    For top-k the first is that of the best column: top-p needs the probability of all that top-k keeps.
    """
    octave = tl.arange(0, SUMS)
    amounts = tl.load(sums + row * SUMS + octave, mask=octave <= 32, other=0)
    total = tl.sum(amounts, axis=0)
    goal = tl.where(top_k > 0, tl.minimum(total, top_k), _units_to_keep(total, share))
    last = tl.sum((tl.cumsum(amounts, axis=0) < goal).to(tl.int32), axis=0)
    first = tl.where(top_k > 0, 0, last)
    return first, last, goal - tl.sum(tl.where(octave < first, amounts, 0), axis=0)


@triton.jit(do_not_specialize=["top_k", "share"])
def _octaves_kernel(
    logits, maxima, sums, listed, steps_of_one, top_k, share, columns, stride, BLOCK: tl.constexpr, LISTS: tl.constexpr
):
    """Adds to the sums of octaves, in any order; then, in a second launch, lists the columns of the open octaves."""
    row, column = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    highest = tl.load(maxima + row).to(tl.float32)
    if tl.abs(highest) < float("inf"):
        numbers = tl.load(logits + row * stride + column, mask=column < columns, other=float("-inf")).to(tl.float32)
        units, octave = _units_of(numbers, highest, steps_of_one)
        if LISTS:
            first, last, _goal = _open_octaves(sums, row, top_k, share)
            is_open = ((octave >= first) & (octave <= last) & (column < columns)).to(tl.int32)
            count = tl.sum(is_open, axis=0)
            if count > 0:
                place = tl.atomic_add(sums + row * SUMS + (SUMS - 1), count.to(tl.int64))
                tl.store(listed + row * columns + place + tl.cumsum(is_open, axis=0) - 1, column, mask=is_open > 0)
        else:
            amount = tl.where(top_k > 0, (column < columns).to(tl.int64), units)
            for one in range(tl.min(octave, axis=0), tl.max(octave, axis=0) + 1):
                tl.atomic_add(sums + row * SUMS + one, tl.sum(tl.where(octave == one, amount, 0), axis=0))


@triton.jit
def _amount_from(cut, line, listed, count, highest, steps_of_one, IS_COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """What the listed columns from a rank on have, in units or columns, and the nearest ranks on both sides."""
    found = tl.zeros((BLOCK,), tl.int64)
    above, below = found + 0x7FFFFFFFFFFFFFFF, found - 0x7FFFFFFFFFFFFFFF
    for start in range(0, count, BLOCK):
        is_there = start + tl.arange(0, BLOCK) < count
        column = tl.load(listed + start + tl.arange(0, BLOCK), mask=is_there, other=0)
        numbers = tl.load(line + column, mask=is_there, other=float("-inf")).to(tl.float32)
        amount, _octave = _units_of(numbers, highest, steps_of_one)
        if IS_COUNT:
            amount = is_there.to(tl.int64)
        rank = rank_of(numbers, column)
        found += tl.where(is_there & (rank >= cut), amount, 0)
        above = tl.where(is_there & (rank >= cut), tl.minimum(above, rank), above)
        below = tl.where(is_there & (rank < cut), tl.maximum(below, rank), below)
    return tl.sum(found, axis=0), tl.min(above, axis=0), tl.max(below, axis=0)


@triton.jit
def _cut_for(goal, low, line, listed, count, highest, steps_of_one, IS_COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """The rank of the last listed column that the goal needs. Those from `low` on reach it."""
    high = (order_of(highest).to(tl.int64) + 1) << 32
    while low + 1 < high:
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        amount, above, below = _amount_from(middle, line, listed, count, highest, steps_of_one, IS_COUNT, BLOCK)
        low, high = tl.where(amount >= goal, above, low), tl.where(amount >= goal, high, below + 1)
    return low


@triton.jit(do_not_specialize=["top_k", "share"])
def _cut_kernel(
    logits, maxima, sums, listed, cuts, steps_of_one, top_k, share, least, columns, stride, BLOCK: tl.constexpr
):
    """The last rank that each row keeps; all where its highest logit is no number, which is reported."""
    row = tl.program_id(0).to(tl.int64)
    highest, cut = tl.load(maxima + row).to(tl.float32), tl.full((), -0x7FFFFFFFFFFFFFFF, tl.int64)
    if tl.abs(highest) < float("inf"):
        if (top_k > 0) | (share < WHOLE_SHARE):
            _first, _last, goal = _open_octaves(sums, row, top_k, share)
            line, listed = logits + row * stride, listed + row * columns
            count = tl.load(sums + row * SUMS + (SUMS - 1)).to(tl.int32)
            if top_k > 0:
                cut = _cut_for(goal, cut, line, listed, count, highest, steps_of_one, True, BLOCK)
                total, _above, _below = _amount_from(cut, line, listed, count, highest, steps_of_one, False, BLOCK)
                goal = _units_to_keep(total, share)
            if share < WHOLE_SHARE:
                cut = _cut_for(goal, cut, line, listed, count, highest, steps_of_one, False, BLOCK)
        cut = tl.maximum(cut, order_of(highest + least).to(tl.int64) << 32)
    tl.store(cuts + row, cut)


def cut_rows(logits: Tensor, sampler: Sampler) -> Tensor:
    """The lowest `rank_of` that each row keeps, int64. [N, V] -> [N]"""
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    (rows, columns), stride, device = logits.shape, logits.stride(0), logits.device
    share = top_p_share(sampler.top_p) if sampler.top_p < 1 else WHOLE_SHARE.value
    least = sampler.temperature * log(sampler.min_p) if sampler.min_p > 0 else float("-inf")
    rules = EXPONENT_STEPS / sampler.temperature, sampler.top_k, share
    maxima, sums = logits.amax(-1), torch.zeros(rows, SUMS.value, dtype=torch.int64, device=device)
    listed = torch.empty(rows, columns, dtype=torch.int32, device=device)
    options = {"BLOCK": BLOCK, **OPTIONS}
    if sampler.top_k or sampler.top_p < 1:
        for lists in (False, True):
            _octaves_kernel[(triton.cdiv(columns, BLOCK), rows)](
                logits, maxima, sums, listed, *rules, columns, stride, LISTS=lists, **options
            )
    cuts = torch.empty(rows, dtype=torch.int64, device=device)
    _cut_kernel[(rows,)](logits, maxima, sums, listed, cuts, *rules, least, columns, stride, **options)
    return cuts
