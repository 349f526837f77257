"""A dynamic draft tree that grows on the device: no level waits for the host.

The nodes and their order are those of `eagle.py` on a CPU: each level computes the best nodes of the level before that
are in the tree so far, and the tree ends where their acceptance is too improbable. A level that no longer counts is
computed all the same, with probability 0, so that all shapes are fixed and a CUDA graph can hold the whole tree. Knows
probabilities and indices; the head's passes and the sampling rules are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from specchat.engine.sampling import DrawnToken, Ranking

if TYPE_CHECKING:
    from specchat.drafters.eagle.head import HeadOutput

NEVER = float("-inf")  # log-probability of what is not in the tree

Rank = Callable[[Tensor, int], Ranking]  # logits of a level [n, V], its depth -> the best tokens of each row
Draw = Callable[[Tensor, int], DrawnToken]  # logits of a node [1, V], its depth
ReadLevel = Callable[[int, Tensor, Tensor, Tensor], "HeadOutput"]  # depth, hidden states, tokens, ancestors


@dataclass(frozen=True)
class TreeConfig:
    """The limits of a dynamic tree: passes of the head, nodes in each pass, nodes of the whole tree."""

    depth: int = 5
    width: int = 4
    max_draft_tokens: int = 16
    min_level_probability: float = 0.4  # sum over the nodes of a level; below it the tree ends


@dataclass(frozen=True)
class Level:
    """The children of the nodes that a pass computed. On the device."""

    tokens: Tensor  # [n, width]
    parents: Tensor  # of each row: index of a child of the level before [n]
    log_probabilities: Tensor  # of the whole path, float64 [n, width]

    @property
    def packed(self) -> tuple[Tensor, Tensor, Tensor]:
        """All numbers, floats as their bits."""
        return self.tokens.flatten(), self.parents, self.log_probabilities.flatten().view(torch.long)


@dataclass(frozen=True)
class DraftedChild:
    token: int
    parent: int | None  # index in the same list; None: the root
    log_probability: float


def grow_tree(
    config: TreeConfig, budget: Tensor, min_log_probability: float, root: HeadOutput, rank: Rank, read: ReadLevel
) -> Tensor:
    """All levels below the root, packed into one tensor. `budget`: the largest number of draft tokens []"""
    output, levels, device = root, list[Level](), budget.device
    parents = torch.zeros(1, dtype=torch.long, device=device)
    is_growing = torch.ones((), dtype=torch.bool, device=device)
    above = torch.zeros(1, dtype=torch.float64, device=device)
    ancestors = torch.zeros(1, 0, dtype=torch.bool, device=device)
    for depth in range(config.depth):
        best = rank(output.logits, depth)
        log_probabilities = best.scores.log_softmax(-1).clamp(max=0.0)[:, : config.width].double() + above[:, None]
        levels.append(Level(best.token_ids[:, : config.width], parents, log_probabilities))
        if depth + 1 == config.depth:
            break
        parents, above = _best_of_last_level(levels, budget, min_log_probability, config.width)
        is_probable = above.exp().sum() >= config.min_level_probability
        is_growing = is_growing & is_probable & (depth + 1 < budget)
        above = above.masked_fill(~is_growing, NEVER)
        rows = parents // config.width
        ancestors = torch.cat((ancestors[rows], torch.eye(config.width, dtype=torch.bool, device=device)), dim=1)
        output = read(depth + 1, output.hidden_states[rows], levels[-1].tokens.flatten()[parents], ancestors)
    return torch.cat([part for level in levels for part in level.packed])


def _best_of_last_level(
    levels: Sequence[Level], budget: Tensor, min_log_probability: float, width: int
) -> tuple[Tensor, Tensor]:
    """The best children of the last level that are among the `budget` best of all, and their log-probabilities."""
    every = torch.cat([level.log_probabilities.flatten() for level in levels])
    every = every.masked_fill(~(every > min_log_probability), NEVER)
    order = every.argsort(descending=True, stable=True)  # of equal ones the first comes first
    rank = torch.zeros_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
    last = every.masked_fill(rank >= budget, NEVER)[-levels[-1].tokens.numel() :]
    best = last.sort(descending=True, stable=True)
    return best.indices[:width], best.values[:width]


def unpack_tree(config: TreeConfig, packed: list[int]) -> list[DraftedChild]:
    """The children of all levels, parents before children, without those of probability 0."""
    ends = np.cumsum(list(_part_sizes(config)))
    children, numbers = list[DraftedChild](), iter(np.split(np.array(packed), ends[:-1]))
    before = dict[int, int]()  # place in the level before -> index in the list
    for depth in range(config.depth):
        tokens, parents, bits = (next(numbers) for _ in range(3))
        here = dict[int, int]()
        for place, (token, probability) in enumerate(zip(tokens.tolist(), bits.view(np.float64).tolist(), strict=True)):
            parent = before.get(int(parents[place // config.width]))
            if probability > NEVER and (parent is not None or depth == 0):
                here[place] = len(children)
                children.append(DraftedChild(token, parent, probability))
        before = here
    return children


def _part_sizes(config: TreeConfig) -> Iterator[int]:
    for depth in range(config.depth):
        rows = config.width if depth else 1
        yield from (rows * config.width, rows, rows * config.width)


def grow_chain(depth: int, root: HeadOutput, draw: Draw, read: ReadLevel) -> list[DrawnToken]:
    """A chain of samples, each drawn after the one before."""
    drawn, output = list[DrawnToken](), root
    for index in range(depth):
        drawn.append(draw(output.logits, index))
        if index + 1 < depth:
            ancestors = torch.ones(1, index + 1, dtype=torch.bool, device=output.logits.device)
            output = read(index + 1, output.hidden_states, drawn[-1].token, ancestors)
    return drawn
