"""The draft tree of an EAGLE head on a GPU: new pairs, all levels and their ranking in one CUDA graph.

The host waits once, for the packed tree, however many levels it has. Samplers with more rules than temperature and
noise rank in the same way without a graph, and wait once, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from specchat.drafters.eagle.dynamic_tree import (
    MIN_LOG_PROBABILITY,
    SHORTLIST,
    DraftedChild,
    Rank,
    ReadLevel,
    TreeConfig,
    draft_children,
    grow_tree,
    pack_levels,
    unpack_children,
)
from specchat.drafters.eagle.pair_passes import ArenaPasses, TextEnd, TextPlace
from specchat.engine.cache_sizes import SPARE_ROWS
from specchat.engine.drafter import DraftContext
from specchat.engine.model import Model
from specchat.engine.sampling import NO_NOISE, DeviceNoise, LogitRows, NoiseInputs, Ranking
from specchat.forward.cuda.cuda_graphs import (
    CapturedFunction,
    device_noise,
    noise_header,
    noise_keys,
    warn_without_graphs,
)
from specchat.forward.cuda.kernel_trial import passes, triton_module

if TYPE_CHECKING:
    from specchat.drafters.eagle.head import EagleHead, HeadOutput

GRAPH_PAIRS = 8  # new pairs of a text that a graph reads; more are computed before
HEADER_NUMBERS = 9


class GraphTrees:
    """Drafts trees with one head, for all texts."""

    max_pairs = GRAPH_PAIRS

    def __init__(self, head: EagleHead, config: TreeConfig) -> None:
        self.head, self.config = head, config

    @staticmethod
    def is_possible(head: EagleHead, config: TreeConfig) -> bool:
        """Whether the head has an arena, and the tree fits behind its slots while it is captured."""
        return head.pool.arena is not None and GRAPH_PAIRS + config.depth * config.width <= SPARE_ROWS

    @torch.inference_mode()
    def draft(self, end: TextEnd, context: DraftContext, budget: int) -> list[DraftedChild]:
        """All children of the tree."""
        sampler = context.sampler
        positions = [len(context.tokens) - 1 + depth for depth in range(self.config.depth)]
        noise = sampler.noise_inputs(LogitRows(positions))
        if noise is None or sampler.has_penalties:
            children = self._without_graph(end, context, budget)
        else:
            packed = self._run(self._numbers(end, noise, budget), end.hidden_states)
            children = unpack_children(self.config, packed.tolist())  # the only wait
        end.cache.commit(list(range(len(end.tokens))))
        return children

    def _without_graph(self, end: TextEnd, context: DraftContext, budget: int) -> list[DraftedChild]:
        """With the rules of any sampler. Only penalties wait for the host at each level, for the tokens of a path."""
        numbers = self._numbers(end, NO_NOISE, budget).to(end.hidden_states.device, non_blocking=True)
        passes, root = self._start(numbers, _padded(end.hidden_states))
        ids = self.head.draft_to_target_ids
        return draft_children(self.config, context, budget, root, ids, passes.read_level, waits=False)

    @torch.inference_mode()
    def capture(self, target: Model) -> None:
        """Capture the graph, over rows of no text."""
        arena = self.head.pool.arena
        if arena is None:
            return
        layout, layers = target.pool.layout, len(self.head.hidden_state_layers)
        width = target.embed(torch.zeros(1, dtype=torch.long, device=layout.device)).shape[-1]
        states = torch.zeros(1, layers * width, dtype=layout.dtype, device=layout.device)
        try:
            numbers = self._pack_numbers(arena.rows, 0, 0, self.config.max_draft_tokens, [0], NoiseInputs())
            self._graph(states).capture(numbers)
        except RuntimeError as error:
            self._disable(error)

    def _run(self, numbers: Tensor, hidden_states: Tensor) -> Tensor:
        """The result of a graph, or without one of its kernels one by one."""
        if self.head.capture is not None:
            try:
                return self._graph(hidden_states).replay(numbers, hidden_states)
            except RuntimeError as error:
                self._disable(error)
        return self._tree_with_noise(numbers.to(hidden_states.device, non_blocking=True), _padded(hidden_states))

    def _graph(self, like: Tensor) -> CapturedFunction[Tensor]:
        """The graph of this head for this config; sessions share it."""
        if self.config not in self.head.graphs:
            assert self.head.capture is not None, "a graph on a device without graphs"
            numbers = torch.zeros(HEADER_NUMBERS + sum(self._part_sizes), dtype=torch.long, device=like.device)
            rows = like.new_zeros(GRAPH_PAIRS, like.shape[-1])
            graph = CapturedFunction(self.head.capture, numbers, rows, self._tree_with_noise)
            self.head.graphs[self.config] = graph
        return self.head.graphs[self.config]

    def _disable(self, error: RuntimeError) -> None:
        self.head.capture = None
        self.head.graphs.clear()
        warn_without_graphs(error)

    def _tree_with_noise(self, numbers: Tensor, rows: Tensor) -> Tensor:
        noise, ids = self._noise(numbers), self.head.draft_to_target_ids
        passes, root = self._start(numbers, rows)

        def rank(logits: Tensor, depth: int, _paths: Tensor) -> Ranking:
            return noise[depth].rank(logits, SHORTLIST, ids)

        if (kernels := tree_kernels(self.config, numbers.device)) is not None:
            return grow_by_kernels(kernels, self.config, numbers[4], root, rank, passes.read_level)
        return pack_levels(grow_tree(self.config, numbers[4], root, rank, passes.read_level, waits=False))

    def _start(self, numbers: Tensor, rows: Tensor) -> tuple[ArenaPasses, HeadOutput]:
        """The pass over the new pairs, and the passes that follow it."""
        arena = self.head.pool.arena
        assert arena is not None, "a tree on the device needs an arena"
        tokens, _keys, seen, positions = self._parts(numbers)
        first_row, length, pairs, first_position = numbers[:4].unbind()
        place = TextPlace(first_row, length, pairs, numbers[8:9], first_position, positions, seen)
        passes = ArenaPasses(self.head, arena, place, self.config.width)
        return passes, passes.read_pairs(self.head.fuse(rows), tokens)

    def _parts(self, numbers: Tensor) -> tuple[Tensor, ...]:
        """Tokens of the new pairs, keys of the noise, pairs that each new one sees, positions of all rows."""
        return numbers[HEADER_NUMBERS:].split(self._part_sizes)

    @property
    def _part_sizes(self) -> list[int]:
        nodes = (self.config.depth - 1) * self.config.width
        return [GRAPH_PAIRS, 2 * self.config.depth, GRAPH_PAIRS, GRAPH_PAIRS + nodes]

    def _numbers(self, end: TextEnd, noise: NoiseInputs, budget: int) -> Tensor:
        first_row, length = end.cache.require_slot().first_row, end.cache.length
        return self._pack_numbers(first_row, length, end.first_position, budget, end.tokens, noise)

    def _pack_numbers(
        self, first_row: int, length: int, first_position: int, budget: int, tokens: Sequence[int], noise: NoiseInputs
    ) -> Tensor:
        count, new = len(tokens), np.arange(GRAPH_PAIRS)
        pairs = length + count
        header = [first_row, length, pairs, first_position, budget, *noise_header(noise), count - 1]
        header += [*tokens, *[0] * (GRAPH_PAIRS - count)]
        levels = np.repeat(np.arange(self.config.depth - 1), self.config.width)
        positions = first_position + length + new, first_position + pairs + levels
        keys = noise_keys(noise, self.config.depth)
        return torch.from_numpy(np.concatenate((np.array(header), keys, (2 << new) - 1, *positions)))

    def _noise(self, numbers: Tensor) -> list[DeviceNoise]:
        """The noise of each level: one row of keys for all of its nodes."""
        noise = device_noise(numbers[5:8], self._parts(numbers)[1])
        return [replace(noise, keys=noise.keys[depth : depth + 1]) for depth in range(self.config.depth)]


def _padded(hidden_states: Tensor) -> Tensor:
    return functional.pad(hidden_states, (0, 0, 0, GRAPH_PAIRS - len(hidden_states)))


def grow_by_kernels(
    kernels: Any, config: TreeConfig, budget: Tensor, root: HeadOutput, rank: Rank, read: ReadLevel
) -> Tensor:
    """As `grow_tree` without waits, packed: a level is one launch between the passes of the head."""
    limits = kernels.TreeLimits(config.depth, config.width, MIN_LOG_PROBABILITY, config.min_level_probability)
    tree, output = kernels.GrowingTree(limits, budget), root
    for depth in range(config.depth):
        best = rank(output.logits, depth, budget)  # penalties, which need paths, have no kernel
        tokens, rows, seen = tree.add_level(best.scores, best.token_ids)
        if depth + 1 < config.depth:
            output = read(depth + 1, output.hidden_states.index_select(0, rows), tokens, seen)
    return tree.packed


@lru_cache
def tree_kernels(config: TreeConfig, device: torch.device) -> Any:
    """The module of the kernel that grows trees; None where it grows others than torch."""
    kernels = triton_module("triton_tree", device)

    def is_right() -> bool:
        """Logits of each level follow from the nodes that were chosen for it."""
        from specchat.drafters.eagle.head import HeadOutput

        columns = torch.arange(SHORTLIST, device=device) / -3.0
        budget = torch.tensor(config.max_draft_tokens).to(device)

        def read(depth: int, states: Tensor, tokens: Tensor, _seen: Tensor) -> HeadOutput:
            states = states + (tokens[:, None] + depth).float().sin()
            return HeadOutput(columns * (2 + states), states)

        def rank(logits: Tensor, _depth: int, _paths: Tensor) -> Ranking:
            return Ranking(torch.arange(SHORTLIST, device=device).repeat(len(logits), 1), logits)

        states = torch.zeros(1, 1, device=device)
        root = HeadOutput(2 * columns[None], states)
        ours = grow_by_kernels(kernels, config, budget, root, rank, read)
        expected = pack_levels(grow_tree(config, budget, root, rank, read, waits=False))
        one, other = (unpack_children(config, packed.tolist()) for packed in (ours, expected))
        return [(each.token, each.parent) for each in one] == [(each.token, each.parent) for each in other]

    return kernels if kernels and config.width <= SHORTLIST and passes(is_right, "kernel for draft trees") else None
