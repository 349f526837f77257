"""The dynamic draft tree of EAGLE-2 (arXiv 2406.16858): the one algorithm for all kinds of passes.

Each level computes the best nodes of the level before that are in the tree so far, and the tree ends where their
acceptance is too improbable. In a CUDA graph nothing waits for the device and all shapes are fixed, so a level that no
longer counts is computed all the same, with probability 0; elsewhere a level `waits` for the host, which stops there.
`forward/native/native_draft.cpp` does the same in one call, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from specchat.engine.device import copy_to_device
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import LogitRows, Ranking
from specchat.engine.tree import ROOT, DraftTree
from specchat.forward.native.native_sampling import rank_rows

if TYPE_CHECKING:
    from specchat.drafters.eagle.head import HeadOutput

MIN_LOG_PROBABILITY = log(0.02)  # of a node: less probable draft tokens are not worth a row of the target's pass
NEVER = float("-inf")  # log-probability of what is not in the tree
SHORTLIST = 16  # best tokens of a node that get a probability

# Logits of a level [n, V], its depth, and the draft tokens before each row [n, depth] -> the best tokens of each row
Rank = Callable[[Tensor, int, Tensor], Ranking]
ReadLevel = Callable[[int, Tensor, Tensor, Tensor], "HeadOutput"]  # depth, hidden states, tokens, ancestors


@dataclass(frozen=True)
class TreeConfig:
    """The limits of a dynamic tree: passes of the head, nodes in each pass, nodes of the whole tree."""

    depth: int = 5
    width: int = 4
    max_draft_tokens: int = 16
    min_level_probability: float = 0.4  # sum over the nodes of a level; below it the tree ends


CHAIN_CONFIG = TreeConfig(depth=4, width=1, max_draft_tokens=4)


class Level(NamedTuple):
    """The children of the nodes that a pass computed. On the device."""

    tokens: Tensor  # [n, width]
    parents: Tensor  # of each row: index of a child of the level before [n]
    log_probabilities: Tensor  # of the whole path, float64 [n, width]


class DraftedChild(NamedTuple):
    token: int
    parent: int | None  # index in the same list; None: the root
    log_probability: float  # of the whole path


def grow_tree(
    config: TreeConfig, budget: Tensor, root: HeadOutput, rank: Rank, read: ReadLevel, *, waits: bool
) -> list[Level]:
    """All levels below the root. `budget`: the largest number of draft tokens []"""
    output, levels, device = root, list[Level](), budget.device
    parents = torch.zeros(1, dtype=torch.long, device=device)
    above = torch.zeros(1, dtype=torch.float64, device=device)
    is_growing = torch.ones((), dtype=torch.bool, device=device)
    ancestors = torch.zeros(1, 0, dtype=torch.bool, device=device)
    paths = torch.zeros(1, 0, dtype=torch.long, device=device)
    for depth in range(config.depth):
        best = rank(output.logits, depth, paths)
        log_probabilities = best.scores.double().log_softmax(-1).clamp(max=0.0)[:, : config.width] + above[:, None]
        levels.append(Level(best.token_ids[:, : config.width], parents, log_probabilities))
        if depth + 1 == config.depth:
            break
        parents, above = _best_of_last_level(levels, budget, config.width)
        is_growing = is_growing & (above.exp().sum() >= config.min_level_probability) & (depth + 1 < budget)
        above = above.masked_fill(~is_growing, NEVER)
        if waits:
            parents, above = parents[above > NEVER], above[above > NEVER]
            if not len(parents):
                break
        rows, tokens = parents // log_probabilities.shape[1], levels[-1].tokens.flatten()[parents]
        own = torch.eye(len(parents), dtype=torch.bool, device=device)
        ancestors, paths = torch.cat((ancestors[rows], own), dim=1), torch.cat((paths[rows], tokens[:, None]), dim=1)
        states = output.hidden_states
        output = read(depth + 1, states[rows.to(states.device)], tokens, ancestors)
    return levels


def _best_of_last_level(levels: Sequence[Level], budget: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The best children of the last level that are among the `budget` best of all, and their log-probabilities."""
    every = torch.cat([level.log_probabilities.flatten() for level in levels])
    every = every.masked_fill(~(every > MIN_LOG_PROBABILITY), NEVER)
    order = every.argsort(descending=True, stable=True)  # of equal ones the first comes first
    rank = torch.zeros_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
    last = every.masked_fill(rank >= budget, NEVER)[-levels[-1].tokens.numel() :]
    best = last.sort(descending=True, stable=True)
    return best.indices[:width], best.values[:width]


def draft_children(
    config: TreeConfig, context: DraftContext, budget: int, root: HeadOutput, ids: Tensor | None, read: ReadLevel,
    *, waits: bool = True,
) -> list[DraftedChild]:  # fmt: skip
    """The tree under the rules of the sampler. `ids`: of the columns of the logits [Vd]"""
    sampler, seen, last = context.sampler, context.seen_tokens, len(context.tokens) - 1

    def rows(count: int, depth: int, paths: Tensor) -> LogitRows:
        return LogitRows([last + depth] * count, paths.tolist() if sampler.has_penalties else None, ids)

    def rank(logits: Tensor, depth: int, paths: Tensor) -> Ranking:
        best = rank_rows(logits, sampler, rows(len(logits), depth, paths), seen, count=SHORTLIST)
        return Ranking(best.token_ids.cpu(), best.scores.cpu()) if waits else best  # some devices have no float64

    limit = torch.tensor(budget) if waits else copy_to_device([budget], root.logits.device)[0]
    levels = grow_tree(config, limit, root, rank, read, waits=waits)
    if not waits:
        return unpack_children(config, pack_levels(levels).tolist())
    return children_of([(each.flatten().tolist() for each in level) for level in levels])


def children_of(levels: Sequence[Iterator[list[int]] | Sequence[list[int]]]) -> list[DraftedChild]:
    """The children of all levels, parents before children, without those of probability 0."""
    children, before = list[DraftedChild](), dict[int, int]()  # place in the level before -> index in the list
    for depth, level in enumerate(levels):
        tokens, parents, log_probabilities = level
        here, width = dict[int, int](), len(tokens) // len(parents)
        for place, (token, probability) in enumerate(zip(tokens, log_probabilities, strict=True)):
            parent = before.get(parents[place // width]) if depth else None
            if probability > NEVER and (parent is not None or depth == 0):
                here[place] = len(children)
                children.append(DraftedChild(token, parent, probability))
        before = here
    return children


def pack_levels(levels: Sequence[Level]) -> Tensor:
    """All numbers in one tensor, floats as their bits."""
    return torch.cat(
        [
            part
            for tokens, parents, log_probabilities in levels
            for part in (tokens.flatten(), parents, log_probabilities.flatten().view(torch.long))
        ]
    )


def unpack_children(config: TreeConfig, packed: list[int]) -> list[DraftedChild]:
    sizes = [1, *[config.width] * (config.depth - 1)]  # rows of each level
    ends = np.cumsum([size for rows in sizes for size in (rows * config.width, rows, rows * config.width)])
    parts = iter(np.split(np.array(packed), ends[:-1]))
    return children_of(
        [(next(parts).tolist(), next(parts).tolist(), next(parts).view(np.float64).tolist()) for _level in sizes]
    )


def build_draft_tree(root: int, children: Sequence[DraftedChild], budget: int, source: str) -> DraftTree:
    """The best nodes, most probable first: the first n of them are the tree of a budget of n.

    A parent is never less probable than its child, and precedes it.
    """
    probable = [index for index, child in enumerate(children) if child.log_probability > MIN_LOG_PROBABILITY]
    best = sorted(probable, key=lambda index: (-children[index].log_probability, index))[:budget]
    tree, nodes = DraftTree(root), dict[int | None, int]({None: ROOT})
    for index in best:
        child = children[index]
        parent = nodes[child.parent]
        nodes[index] = tree.add(child.token, parent, source)
    return tree
