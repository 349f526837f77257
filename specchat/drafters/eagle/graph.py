"""The draft tree of an EAGLE head on a GPU: new pairs, all levels and their ranking in one CUDA graph.

The host waits once, for the packed tree, however many levels it has. Samplers with more rules than temperature and
noise rank in the same way without a graph, and wait once, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from specchat.drafters.eagle.dynamic_tree import (
    SHORTLIST,
    DraftedChild,
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

if TYPE_CHECKING:
    from specchat.drafters.eagle.head import EagleHead, HeadOutput

GRAPH_PAIRS = 8  # new pairs of a text that a graph reads; more are computed before
HEADER_NUMBERS = 8


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
        place = (arena.rows, 0, 1, 0, self.config.max_draft_tokens)
        try:
            self._graph(states).capture(self._pack_numbers(place, [0], NoiseInputs()))
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
            numbers = torch.zeros(self._number_count, dtype=torch.long, device=like.device)
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

        return pack_levels(grow_tree(self.config, numbers[4], root, rank, passes.read_level, waits=False))

    def _start(self, numbers: Tensor, rows: Tensor) -> tuple[ArenaPasses, HeadOutput]:
        """The pass over the new pairs, and the passes that follow it."""
        arena = self.head.pool.arena
        assert arena is not None, "a tree on the device needs an arena"
        passes = ArenaPasses(self.head, arena, TextPlace(*numbers[:4]), self.config.width)
        tokens = numbers[HEADER_NUMBERS : HEADER_NUMBERS + GRAPH_PAIRS]
        return passes, passes.read_pairs(self.head.fuse(rows), tokens)

    @property
    def _number_count(self) -> int:
        return HEADER_NUMBERS + GRAPH_PAIRS + 2 * self.config.depth

    def _numbers(self, end: TextEnd, noise: NoiseInputs, budget: int) -> Tensor:
        first_row, count = end.cache.require_slot().first_row, len(end.tokens)
        place = (first_row, end.cache.length, count, end.first_position, budget)
        return self._pack_numbers(place, end.tokens, noise)

    def _pack_numbers(self, place: tuple[int, ...], tokens: Sequence[int], noise: NoiseInputs) -> Tensor:
        header = np.array((*place, *noise_header(noise), *tokens, *[0] * (GRAPH_PAIRS - len(tokens))))
        return torch.from_numpy(np.concatenate((header, noise_keys(noise, self.config.depth))))

    def _noise(self, numbers: Tensor) -> list[DeviceNoise]:
        """The noise of each level: one row of keys for all of its nodes."""
        noise = device_noise(numbers[5:HEADER_NUMBERS], numbers[HEADER_NUMBERS + GRAPH_PAIRS :])
        return [replace(noise, keys=noise.keys[depth : depth + 1]) for depth in range(self.config.depth)]


def _padded(hidden_states: Tensor) -> Tensor:
    return functional.pad(hidden_states, (0, 0, 0, GRAPH_PAIRS - len(hidden_states)))
