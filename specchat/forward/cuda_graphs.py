"""Passes over few nodes, recorded once and replayed: at batch one a card waits for Python, not for memory.

A chain of guesses, each of which is read where it was picked, is one recording, too.

A recording works at fixed addresses, so it belongs to one slot, one width and one bucket of keys. Narrower passes are
padded with idle nodes up to the next width, and the rows of keys and values are looked at up to the next bucket; what
nobody may see is masked. Everything that changes from step to step (tokens, positions, the text's length, who sees
whom) is one small tensor that is sent before a replay, and masks are made of it on the device. (gpt-fast's static
caches; vLLM's and SGLang's graphs keyed by width.)

Knows addresses and shapes. What is recorded, and by what, is given.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, Slot
from specchat.forward.batch import ForwardBatch, ForwardDepth, HiddenStates, Nodes

CAPTURE_SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
MIN_KV_BUCKET = 256  # rows of keys
MAX_GRAPHS_PER_SLOT = 48  # of one slot; the one replayed longest ago makes way

Capture = Callable[[Callable[[], None]], Callable[[], None]]  # runs something once, and returns what runs it again
ForwardFunction = Callable[[ForwardBatch, ForwardDepth], HiddenStates]
LayerKV = list[tuple[Tensor, Tensor]]  # keys and values of a slot [1, H, rows, size]
ChainStep = Callable[[ForwardBatch], Tensor]  # a pass over one token -> the token that follows it [1]
Result = TypeVar("Result")

log = logging.getLogger(__name__)


class CudaGraphs:
    """The recordings of a model. `mask` makes what is added to scores out of who sees whom."""

    def __init__(
        self, capture: Capture, windows: frozenset[int | None], additive_mask: Callable[[Tensor], Tensor]
    ) -> None:
        self.capture, self.windows, self.additive_mask = capture, windows, additive_mask
        self.is_disabled = False
        self._graphs_by_slot: WeakKeyDictionary[Slot, OrderedDict[Hashable, _CapturedGraph[Any]]] = WeakKeyDictionary()

    def run(
        self, nodes: Nodes, cache: KVCache, depth: ForwardDepth, compute: ForwardFunction, exact: bool = False
    ) -> HiddenStates | None:
        """The states of these nodes; None when they are too many for a recording, or the device has no room for one."""
        count, slot = len(nodes.depths), cache.require_slot()
        width = next((width for width in CAPTURE_SIZES if width >= count), None)
        if self.is_disabled or width is None or cache.length + width > slot.rows:
            return None
        rows, layers = slot.rows if exact else min(kv_bucket(cache.length + width), slot.rows), slot.layers

        def passed(given: Tensor) -> HiddenStates:
            tokens, positions = given[1 : 1 + 2 * width].view(2, width)
            among = given[1 + 2 * width :].view(width, width).bool()
            return compute(self._forward_batch(layers, rows, given[0], tokens, positions, among), depth)

        numbers = _graph_inputs(nodes.padded(width), cache.length)
        states = self._replay(slot, (width, rows, depth), numbers, nodes.tokens, passed)
        if states is None:
            return None
        tapped = (
            states.selected[:count].clone() if states.selected is not None else None
        )  # the next replay writes there
        return HiddenStates(states.final[:count], tapped)

    def run_chain(
        self, token: Tensor, steps: int, cache: KVCache, step: ChainStep, graph_key: Hashable
    ) -> Tensor | None:
        """Tokens that follow one another: each is what `step` makes of a pass over the one before it. [1] -> [links]

        One recording, so that nobody is waited for between two of them; None as in `run`. Their rows stay
        uncommitted. `kind` tells apart what `step` does.
        """
        slot = cache.require_slot()
        if self.is_disabled or cache.length + steps > slot.rows:
            return None
        rows, layers = min(kv_bucket(cache.length + steps), slot.rows), slot.layers

        def walked(given: Tensor) -> Tensor:
            tokens, alone = [given[1:]], torch.ones(1, 1, dtype=torch.bool, device=given.device)
            for link in range(steps):
                length = given[0] + link
                tokens.append(step(self._forward_batch(layers, rows, length, tokens[-1], length[None], alone)))
            return torch.cat(tokens[1:])

        tokens = self._replay(slot, (steps, rows, graph_key), torch.tensor([cache.length, 0]), token, walked)
        return tokens.clone() if tokens is not None else None

    def __len__(self) -> int:
        return sum(len(recordings) for recordings in self._graphs_by_slot.values())

    def _replay(
        self, slot: Slot, key: Hashable, inputs: Tensor, tokens: list[int] | Tensor, compute: Callable[[Tensor], Result]
    ) -> Result | None:
        """What is made of these numbers, of which the second and those behind it are `tokens`; None without room."""
        try:
            return self._graph(slot, key, len(inputs), compute).replay(inputs, tokens)
        except torch.OutOfMemoryError:
            self.is_disabled = True
            self._graphs_by_slot.clear()
            log.warning("no memory left on the card to record passes: they are launched one kernel at a time, slower")
            return None

    def _graph(
        self, slot: Slot, key: Hashable, size: int, compute: Callable[[Tensor], Result]
    ) -> _CapturedGraph[Result]:
        recordings = self._graphs_by_slot.setdefault(slot, OrderedDict())
        if key not in recordings:
            given = torch.zeros(size, dtype=torch.long, device=slot.layout.device)
            recordings[key] = _CapturedGraph(self.capture, given, compute)
            if len(recordings) > MAX_GRAPHS_PER_SLOT:
                recordings.popitem(last=False)
        recordings.move_to_end(key)
        return recordings[key]

    def _forward_batch(
        self, layers: LayerKV, kv_length: int, length: Tensor, tokens: Tensor, positions: Tensor, node_mask: Tensor
    ) -> ForwardBatch:
        """A pass as the device sees it. Only operations of fixed shapes: this is recorded, too.

        length [], tokens, positions [N], among bool [N, N]: which of one another they see
        """
        width, row = len(tokens), torch.arange(kv_length, device=length.device)
        node = (row - length).clamp(0, width - 1)
        is_node = (row >= length) & (row < length + width)
        sees = torch.where(is_node, node_mask[:, node], row < length)
        place = torch.where(is_node, positions[node], row)
        masks = {
            window: self.additive_mask(sees if window is None else sees & (place > positions[:, None] - window))
            for window in self.windows
        }
        new = length + torch.arange(width, device=length.device)

        def write(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            stored_keys, stored_values = layers[layer]
            stored_keys.index_copy_(2, new, keys)
            stored_values.index_copy_(2, new, values)
            return stored_keys[:, :, :kv_length], stored_values[:, :, :kv_length]

        return ForwardBatch(tokens, positions, masks, write)


class _CapturedGraph(Generic[Result]):
    """What is made of a few numbers at a fixed address; recorded when it is first played."""

    def __init__(self, capture: Capture, inputs: Tensor, compute: Callable[[Tensor], Result]) -> None:
        self.inputs, self._capture, self._compute = inputs, capture, compute
        self._replay: Callable[[], None] | None = None
        self._outputs: list[Result] = []

    def replay(self, inputs: Tensor, tokens: list[int] | Tensor) -> Result:
        """What is made of these numbers; good until it is played again. Tokens on the device are put among them."""
        self.inputs.copy_(inputs, non_blocking=True)
        if isinstance(tokens, Tensor):
            self.inputs[1 : 1 + len(tokens)] = tokens
        if self._replay is None:
            self._replay = self._capture(self._run)
        else:
            self._replay()
        return self._outputs[-1]

    def _run(self) -> None:
        self._outputs[:] = [self._compute(self.inputs)]


def _graph_inputs(nodes: Nodes, length: int) -> Tensor:
    """All that changes from pass to pass: the text's length, tokens, positions, and who sees whom."""
    tokens = nodes.tokens if isinstance(nodes.tokens, list) else [0] * len(nodes.depths)
    positions = [depth + length for depth in nodes.depths]
    return torch.cat((torch.tensor([length, *tokens, *positions]), nodes.attention_mask.flatten().long()))


def kv_bucket(rows: int) -> int:
    """How many rows of keys a pass looks at: 256, 384, 512, 768, 1024, … so that at most a third are masked.

    >>> [bucket_of(rows) for rows in (1, 257, 400, 1025)]
    [256, 384, 512, 1536]
    """
    power = max(MIN_KV_BUCKET, 1 << (rows - 1).bit_length())
    between = power // 4 * 3
    return between if MIN_KV_BUCKET < between and rows <= between else power


def cuda_graph_capture(device: torch.device) -> Capture:
    """Records CUDA graphs that share one pool of memory, for they never run at the same time."""
    pool = torch.cuda.graph_pool_handle()

    def record(run: Callable[[], None]) -> Callable[[], None]:
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):  # libraries choose their kernels and take their workspaces before it counts
            run()
        torch.cuda.current_stream(device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            run()
        graph.replay()
        return graph.replay

    return record
