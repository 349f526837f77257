"""Passes over few nodes, recorded once and replayed: at batch one a card waits for Python, not for memory.

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
from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, Slot
from specchat.engine.passes import Depth, Laid, Nodes, States

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
SMALLEST_BUCKET = 256  # rows of keys
MOST_RECORDINGS = 48  # of one slot; the one replayed longest ago makes way

Record = Callable[[Callable[[], None]], Callable[[], None]]  # runs a pass once, and returns what runs it again
Compute = Callable[[Laid, Depth], States]

log = logging.getLogger(__name__)


class Graphs:
    """The recordings of a model. `mask` makes what is added to scores out of who sees whom."""

    def __init__(self, record: Record, windows: frozenset[int | None], mask: Callable[[Tensor], Tensor]) -> None:
        self.record, self.windows, self.mask = record, windows, mask
        self.is_off = False
        self._of_slot: WeakKeyDictionary[Slot, OrderedDict[tuple[int, int, Depth], _Recording]] = WeakKeyDictionary()

    def run(self, nodes: Nodes, cache: KVCache, depth: Depth, compute: Compute, exact: bool = False) -> States | None:
        """The states of these nodes; None when they are too many for a recording, or the device has no room for one."""
        count, slot = len(nodes.depths), cache.rows()
        width = next((width for width in WIDTHS if width >= count), None)
        if self.is_off or width is None or cache.length + width > slot.rows:
            return None
        rows = slot.rows if exact else min(bucket_of(cache.length + width), slot.rows)
        try:
            states = self._recording(slot, width, rows, depth).run(nodes.padded(width), cache.length, compute)
        except torch.OutOfMemoryError:
            self.is_off = True
            self._of_slot.clear()
            log.warning("no memory left on the card to record passes: they are launched one kernel at a time, slower")
            return None
        tapped = states.tapped[:count].clone() if states.tapped is not None else None  # the next replay writes there
        return States(states.final[:count], tapped)

    def __len__(self) -> int:
        return sum(len(recordings) for recordings in self._of_slot.values())

    def _recording(self, slot: Slot, width: int, rows: int, depth: Depth) -> _Recording:
        recordings = self._of_slot.setdefault(slot, OrderedDict())
        key = width, rows, depth
        if key not in recordings:
            recordings[key] = _Recording(self, slot, width, rows, depth)
            if len(recordings) > MOST_RECORDINGS:
                recordings.popitem(last=False)
        recordings.move_to_end(key)
        return recordings[key]


class _Recording:
    """One pass of a width over so many rows of a slot; recorded when it is first run."""

    def __init__(self, graphs: Graphs, slot: Slot, width: int, rows: int, depth: Depth) -> None:
        self.graphs, self.layers, self.width, self.rows, self.depth = graphs, slot.layers, width, rows, depth
        self.given = torch.zeros(1 + 2 * width + width * width, dtype=torch.long, device=slot.layout.device)
        self._replay: Callable[[], None] | None = None
        self._states: States | None = None

    def run(self, nodes: Nodes, length: int, compute: Compute) -> States:
        """States of exactly `width` nodes behind `length` sure rows; good until the next run."""
        self._give(nodes, length)
        if self._replay is None:

            def run() -> None:
                self._states = compute(self._laid(), self.depth)

            self._replay = self.graphs.record(run)
        else:
            self._replay()
        assert self._states is not None, "a recording that recorded nothing"
        return self._states

    def _give(self, nodes: Nodes, length: int) -> None:
        tokens = nodes.tokens
        numbers = [length, *(tokens if isinstance(tokens, list) else [0] * self.width)]
        numbers += [depth + length for depth in nodes.depths]
        self.given.copy_(torch.cat((torch.tensor(numbers), nodes.sees.flatten().long())), non_blocking=True)
        if isinstance(tokens, Tensor):
            self.given[1 : 1 + self.width] = tokens

    def _laid(self) -> Laid:
        """The pass as the device sees it. Only operations of fixed shapes: this is recorded, too."""
        width, device = self.width, self.given.device
        length, tokens, positions = self.given[0], self.given[1 : 1 + width], self.given[1 + width : 1 + 2 * width]
        among = self.given[1 + 2 * width :].view(width, width).bool()
        row = torch.arange(self.rows, device=device)
        node = (row - length).clamp(0, width - 1)
        is_node = (row >= length) & (row < length + width)
        sees = torch.where(is_node, among[:, node], row < length)
        place = torch.where(is_node, positions[node], row)
        masks = {
            window: self.graphs.mask(sees if window is None else sees & (place > positions[:, None] - window))
            for window in self.graphs.windows
        }
        new = length + torch.arange(width, device=device)
        return Laid(tokens, positions, masks, lambda layer, keys, values: self._write(layer, keys, values, new))

    def _write(self, layer: int, keys: Tensor, values: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        stored_keys, stored_values = self.layers[layer]
        stored_keys.index_copy_(2, new, keys)
        stored_values.index_copy_(2, new, values)
        return stored_keys[:, :, : self.rows], stored_values[:, :, : self.rows]


def bucket_of(rows: int) -> int:
    """How many rows of keys a pass looks at: 256, 384, 512, 768, 1024, … so that at most a third are masked.

    >>> [bucket_of(rows) for rows in (1, 257, 400, 1025)]
    [256, 384, 512, 1536]
    """
    power = max(SMALLEST_BUCKET, 1 << (rows - 1).bit_length())
    between = power // 4 * 3
    return between if SMALLEST_BUCKET < between and rows <= between else power


def cuda_recorder(device: torch.device) -> Record:
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
