"""The growth of a draft tree by one level in one launch of Triton: what its children cost, and which are read next.

What `_best_of_last_level` of the dynamic tree does with sorts of torch, by counting: as many children come before one
as are more probable, or as probable and earlier. Numbers of a level stay on the device between launches. One program
computes a level, in float64. Knows scores and places; knows no network.
"""

# The arguments of a kernel have types that only Triton knows.
# pyright: basic
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

OPTIONS = {"enable_fp_fusion": False}  # the default depends on the version of Triton
EARLIER = tl.constexpr(16)  # children of earlier levels that are compared at once


@triton.jit
def _grow_kernel(
    scores, tokens, budget, nodes, every, packed, next_nodes, least, level_least,
    N: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, FIRST: tl.constexpr,
    ROWS: tl.constexpr, COUNTS: tl.constexpr, COLUMNS: tl.constexpr, IS_LAST: tl.constexpr,
):  # fmt: skip
    """N nodes with COUNT best tokens each, of which WIDTH are children; before them there are FIRST children."""
    row, column, place = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, COUNTS)
    is_row, is_child = row < N, (row < N)[:, None] & (column < WIDTH)[None, :]
    is_score = is_row[:, None] & (place < COUNT)[None, :]
    best = tl.load(scores + row[:, None] * COUNT + place[None, :], mask=is_score, other=float("-inf")).to(tl.float64)
    highest = tl.where(is_row, tl.max(best, axis=1), 0.0)
    total = tl.log(tl.sum(tl.exp(best - highest[:, None]), axis=1))
    child, source = row[:, None] * WIDTH + column[None, :], row[:, None] * COUNT + column[None, :]
    log_probability = tl.load(scores + source, mask=is_child, other=float("-inf")).to(tl.float64)
    log_probability = tl.minimum(log_probability - highest[:, None] - total[:, None], 0.0)
    token = tl.load(tokens + source, mask=is_child, other=0)
    parent = tl.zeros([ROWS], tl.int64)
    if DEPTH > 0:
        parent = tl.load(nodes + 3 * WIDTH + row, mask=is_row, other=0)
        above = tl.load(nodes + 4 * WIDTH + row, mask=is_row, other=0).to(tl.float64, bitcast=True)
        log_probability += above[:, None]
    tl.store(packed + child, token, mask=is_child)
    tl.store(packed + N * WIDTH + row, parent, mask=is_row)
    tl.store(packed + N * WIDTH + N + child, log_probability.to(tl.int64, bitcast=True), mask=is_child)
    if not IS_LAST:
        counted = tl.where(is_child & (log_probability > least), log_probability, float("-inf"))
        tl.store(every + FIRST + child, counted, mask=is_child)
        values, index = tl.reshape(counted, [ROWS * COLUMNS]), tl.reshape(child, [ROWS * COLUMNS])
        is_real = tl.reshape(is_child.to(tl.int32), [ROWS * COLUMNS]) == 1
        is_before = (values[None, :] == values[:, None]) & (index[None, :] < index[:, None])
        is_before = ((values[None, :] > values[:, None]) | is_before) & is_real[None, :]
        to = tl.sum(is_before.to(tl.int32), axis=1)
        rank = to
        for start in range(0, FIRST, EARLIER):
            earlier = start + tl.arange(0, EARLIER)
            others = tl.load(every + earlier, mask=earlier < FIRST, other=float("-inf"))
            rank += tl.sum((others[None, :] >= values[:, None]).to(tl.int32), axis=1)
        limit = tl.load(budget)
        values = tl.where(rank < limit, values, float("-inf"))
        is_next = is_real & (to < WIDTH)
        chance = tl.sum(tl.where(is_next, tl.exp(values), 0.0), axis=0)
        is_growing = (chance >= level_least) & (limit > DEPTH + 1)
        bits = tl.full([ROWS * COLUMNS], 1, tl.int64) << (DEPTH * WIDTH + to).to(tl.int64)
        node = index // WIDTH
        if DEPTH > 0:
            is_growing = is_growing & (tl.load(nodes + 5 * WIDTH) == 1)
            bits |= tl.load(nodes + 2 * WIDTH + node, mask=is_real, other=0)
        values = tl.where(is_growing, values, float("-inf"))
        tl.store(next_nodes + to, tl.reshape(token, [ROWS * COLUMNS]), mask=is_next)
        tl.store(next_nodes + WIDTH + to, node.to(tl.int64), mask=is_next)
        tl.store(next_nodes + 2 * WIDTH + to, bits, mask=is_next)
        tl.store(next_nodes + 3 * WIDTH + to, index.to(tl.int64), mask=is_next)
        tl.store(next_nodes + 4 * WIDTH + to, values.to(tl.int64, bitcast=True), mask=is_next)
        tl.store(next_nodes + 5 * WIDTH, is_growing.to(tl.int64))


@dataclass(frozen=True)
class TreeLimits:
    depth: int
    width: int
    least: float  # log-probability of a node
    level_least: float  # sum of the probabilities of the nodes that a level reads


class GrowingTree:
    """A tree whose levels are added one by one. `packed`: tokens, parents and log-probabilities of each level."""

    def __init__(self, limits: TreeLimits, budget: Tensor) -> None:
        self.limits, self.budget, self._depth, self._nodes = limits, budget, 0, budget
        children = limits.width * (1 + (limits.depth - 1) * limits.width)
        rows = children // limits.width
        self.every = torch.empty(children, dtype=torch.float64, device=budget.device)
        self.packed = torch.empty(2 * children + rows, dtype=torch.long, device=budget.device)

    def add_level(self, scores: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add the children of the nodes that were read last, of whose best tokens these are the scores. [N, count]

        Of the nodes to read next: tokens, the rows of their parents, and what they see, as bits. [width] each
        """
        limits, (rows, count), depth = self.limits, scores.shape, self._depth
        before = 0 if depth == 0 else 1 + (depth - 1) * limits.width  # rows
        next_nodes = self.packed.new_empty(5 * limits.width + 1)
        _grow_kernel[(1,)](
            scores, tokens, self.budget, self._nodes, self.every, self.packed[before * (2 * limits.width + 1) :],
            next_nodes, limits.least, limits.level_least,
            N=rows, COUNT=count, WIDTH=limits.width, DEPTH=depth, FIRST=before * limits.width,
            ROWS=triton.next_power_of_2(rows), COUNTS=triton.next_power_of_2(count),
            COLUMNS=triton.next_power_of_2(limits.width), IS_LAST=depth + 1 == limits.depth, **OPTIONS,
        )  # fmt: skip
        self._depth, self._nodes = depth + 1, next_nodes
        read_tokens, read_rows, seen = next_nodes[: 3 * limits.width].view(3, -1).unbind()
        return read_tokens, read_rows, seen
