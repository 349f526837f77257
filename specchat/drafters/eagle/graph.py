"""The draft tree of an EAGLE head on a GPU: new pairs, all levels and their ranking in one CUDA graph.

The host waits once, for the packed tree, however many levels it has. Samplers with more rules than temperature and
noise rank in the same way without a graph, and wait once, too. A sampled chain of rejection sampling is a second graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from specchat.drafters.eagle.dynamic_tree import (
    DraftedChild,
    Rank,
    TreeConfig,
    grow_chain,
    grow_tree,
    unpack_tree,
)
from specchat.engine.kv_arena import SPARE_ROWS
from specchat.engine.model import Model
from specchat.engine.sampling import NO_NOISE, DeviceNoise, DrawnToken, LogitRows, NoiseInputs, Ranking, Sampler
from specchat.engine.tree import DraftSample
from specchat.forward.cuda_graphs import CapturedFunction, device_noise, noise_header, noise_keys, warn_without_graphs

if TYPE_CHECKING:
    from specchat.drafters.eagle.arena_passes import ArenaPasses
    from specchat.drafters.eagle.head import HeadOutput
    from specchat.drafters.heads.networks import EagleHead

GRAPH_PAIRS = 8  # new pairs of a text that a graph reads; more are computed before
SHORTLIST = 16  # best tokens of a node that get a probability
HEADER_NUMBERS = 8

Result = TypeVar("Result")


@dataclass(frozen=True)
class TextEnd:
    """The new pairs of a text, and where they belong."""

    first_row: int  # of the text in the arena
    length: int  # committed pairs
    first_position: int  # of the pair in the first row
    tokens: Sequence[int]  # of the new pairs, at most GRAPH_PAIRS
    text_length: int
    max_draft_tokens: int


class GraphDrafter:
    """Drafts trees and sampled chains with one head, for all texts."""

    def __init__(self, head: EagleHead, config: TreeConfig, min_log_probability: float) -> None:
        self.head, self.config, self.min_log_probability = head, config, min_log_probability

    @property
    def is_possible(self) -> bool:
        """Whether the head has an arena, and the tree fits behind its slots while it is captured."""
        rows = GRAPH_PAIRS + self.config.depth * self.config.width
        return self.head.pool.arena is not None and rows <= SPARE_ROWS

    @torch.inference_mode()
    def draft_tree(self, end: TextEnd, hidden_states: Tensor, sampler: Sampler) -> list[DraftedChild]:
        """The children of all nodes that the head computed. hidden_states: the target's, of the new pairs [n, …]"""
        positions = self._positions(end)
        noise, ids = sampler.noise_inputs(LogitRows(positions)), self.head.draft_to_target_ids
        if noise is not None:
            packed = self._run(self._tree_with_noise, end, noise, hidden_states)
        else:

            def rank(logits: Tensor, depth: int) -> Ranking:
                rows = LogitRows([positions[depth]] * len(logits), None, ids)
                return sampler.rank(logits, rows, count=SHORTLIST)

            numbers = self._numbers(end, NO_NOISE).to(hidden_states.device, non_blocking=True)
            passes, root = self._start(numbers, _padded(hidden_states), self.config.width)
            packed = self._tree(passes, root, numbers[4], rank)
        return unpack_tree(self.config, packed.tolist())  # the only wait

    @torch.inference_mode()
    def draft_samples(self, end: TextEnd, hidden_states: Tensor, sampler: Sampler) -> list[DraftSample]:
        """A chain of samples with the drafter's own noise."""
        positions = self._positions(end)
        noise, ids = sampler.draft_noise_inputs(positions), self.head.draft_to_target_ids
        if noise is not None:
            drawn = self._run(self._chain_with_noise, end, noise, hidden_states)
        else:

            def draw(logits: Tensor, depth: int) -> DrawnToken:
                return sampler.draw_draft(logits, LogitRows([positions[depth]], None, ids))

            numbers = self._numbers(end, NO_NOISE).to(hidden_states.device, non_blocking=True)
            passes, root = self._start(numbers, _padded(hidden_states), 1)
            drawn = grow_chain(self.config.depth, root, draw, passes.read_level)
        tokens = torch.cat([each.token for each in drawn]).tolist()
        return [
            DraftSample(token, each.token_ids, each.probabilities.clone())  # the next replay overwrites them
            for token, each in zip(tokens, drawn, strict=True)
        ]

    @torch.inference_mode()
    def capture(self, target: Model) -> None:
        """Capture both graphs, over rows of no text."""
        arena = self.head.pool.arena
        if arena is None or not self.is_possible:
            return
        layout, layers = target.pool.layout, len(self.head.hidden_state_layers)
        width = target.embed(torch.zeros(1, dtype=torch.long, device=layout.device)).shape[-1]
        states = torch.zeros(1, layers * width, dtype=layout.dtype, device=layout.device)
        end = TextEnd(arena.rows, 0, 0, [0], 1, self.config.max_draft_tokens)
        for compute in (self._tree_with_noise, self._chain_with_noise):
            try:
                self._graph(compute, states).capture(self._numbers(end, NO_NOISE))
            except RuntimeError as error:
                self._disable(error)
                return

    def _run(
        self, compute: Callable[[Tensor, Tensor], Result], end: TextEnd, noise: NoiseInputs, hidden_states: Tensor
    ) -> Result:
        """The result of a graph, or without one of its kernels one by one."""
        numbers = self._numbers(end, noise)
        if self.head.capture is not None:
            try:
                return self._graph(compute, hidden_states).replay(numbers, hidden_states)
            except RuntimeError as error:
                self._disable(error)
        return compute(numbers.to(hidden_states.device, non_blocking=True), _padded(hidden_states))

    def _graph(self, compute: Callable[[Tensor, Tensor], Result], like: Tensor) -> CapturedFunction[Result]:
        """The graph of this head for this config; sessions share it."""
        key = compute.__name__, self.config
        if key not in self.head.graphs:
            assert self.head.capture is not None, "a graph on a device without graphs"
            numbers = torch.zeros(self._number_count, dtype=torch.long, device=like.device)
            rows = like.new_zeros(GRAPH_PAIRS, like.shape[-1])
            self.head.graphs[key] = CapturedFunction(self.head.capture, numbers, rows, compute)
        return self.head.graphs[key]

    def _disable(self, error: RuntimeError) -> None:
        self.head.capture = None
        self.head.graphs.clear()
        warn_without_graphs(error)

    def _tree_with_noise(self, numbers: Tensor, rows: Tensor) -> Tensor:
        noise, ids = self._noise(numbers), self.head.draft_to_target_ids
        passes, root = self._start(numbers, rows, self.config.width)
        return self._tree(passes, root, numbers[4], lambda logits, depth: noise[depth].rank(logits, SHORTLIST, ids))

    def _chain_with_noise(self, numbers: Tensor, rows: Tensor) -> list[DrawnToken]:
        noise, ids = self._noise(numbers), self.head.draft_to_target_ids

        def draw(logits: Tensor, depth: int) -> DrawnToken:
            token = noise[depth].rank(logits, 1, ids).token_ids[0]
            every = torch.arange(logits.shape[-1], device=logits.device) if ids is None else ids
            return DrawnToken(token, every, noise[depth].scaled_logits(logits, ids)[0].softmax(-1))

        passes, root = self._start(numbers, rows, 1)
        return grow_chain(self.config.depth, root, draw, passes.read_level)

    def _tree(self, passes: ArenaPasses, root: HeadOutput, budget: Tensor, rank: Rank) -> Tensor:
        return grow_tree(self.config, budget, self.min_log_probability, root, rank, passes.read_level)

    def _start(self, numbers: Tensor, rows: Tensor, width: int) -> tuple[ArenaPasses, HeadOutput]:
        """The pass over the new pairs, and the passes that follow it."""
        from specchat.drafters.eagle.arena_passes import ArenaPasses, TextPlace

        arena = self.head.pool.arena
        assert arena is not None, "a tree on the device needs an arena"
        passes = ArenaPasses(self.head, arena, TextPlace(numbers[0], numbers[1], numbers[2], numbers[3]), width)
        tokens = numbers[HEADER_NUMBERS : HEADER_NUMBERS + GRAPH_PAIRS]
        return passes, passes.read_pairs(self.head.fuse(rows), tokens)

    def _positions(self, end: TextEnd) -> list[int]:
        """The position of the token before the draft tokens of each level."""
        return [end.text_length - 1 + depth for depth in range(self.config.depth)]

    @property
    def _number_count(self) -> int:
        return HEADER_NUMBERS + GRAPH_PAIRS + 2 * self.config.depth

    def _numbers(self, end: TextEnd, noise: NoiseInputs) -> Tensor:
        count = len(end.tokens)
        place = (end.first_row, end.length, count, end.first_position, end.max_draft_tokens)
        padding = [0] * (GRAPH_PAIRS - count)
        header = np.array((*place, *noise_header(noise), *end.tokens, *padding))
        return torch.from_numpy(np.concatenate((header, noise_keys(noise, self.config.depth))))

    def _noise(self, numbers: Tensor) -> list[DeviceNoise]:
        """The noise of each level: one row of keys for all of its nodes."""
        noise = device_noise(numbers[5:HEADER_NUMBERS], numbers[HEADER_NUMBERS + GRAPH_PAIRS :])
        return [replace(noise, keys=noise.keys[depth : depth + 1]) for depth in range(self.config.depth)]


def _padded(hidden_states: Tensor) -> Tensor:
    return functional.pad(hidden_states, (0, 0, 0, GRAPH_PAIRS - len(hidden_states)))
