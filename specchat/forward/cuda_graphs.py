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
from specchat.forward.batch import Depth, Laid, Nodes, States

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
SMALLEST_BUCKET = 256  # rows of keys
MOST_RECORDINGS = 48  # of one slot; the one replayed longest ago makes way

Record = Callable[[Callable[[], None]], Callable[[], None]]  # runs something once, and returns what runs it again
Compute = Callable[[Laid, Depth], States]
Layers = list[tuple[Tensor, Tensor]]  # keys and values of a slot [1, H, rows, size]
Step = Callable[[Laid], Tensor]  # a pass over one token -> the token that follows it [1]
Made = TypeVar("Made")

log = logging.getLogger(__name__)


class Graphs:
    """The recordings of a model. `mask` makes what is added to scores out of who sees whom."""

    def __init__(self, record: Record, windows: frozenset[int | None], mask: Callable[[Tensor], Tensor]) -> None:
        self.record, self.windows, self.mask = record, windows, mask
        self.is_off = False
        self._of_slot: WeakKeyDictionary[Slot, OrderedDict[Hashable, _Recording[Any]]] = WeakKeyDictionary()

    def run(self, nodes: Nodes, cache: KVCache, depth: Depth, compute: Compute, exact: bool = False) -> States | None:
        """The states of these nodes; None when they are too many for a recording, or the device has no room for one."""
        count, slot = len(nodes.depths), cache.rows()
        width = next((width for width in WIDTHS if width >= count), None)
        if self.is_off or width is None or cache.length + width > slot.rows:
            return None
        rows, layers = slot.rows if exact else min(bucket_of(cache.length + width), slot.rows), slot.layers

        def passed(given: Tensor) -> States:
            tokens, positions = given[1 : 1 + 2 * width].view(2, width)
            among = given[1 + 2 * width :].view(width, width).bool()
            return compute(self._laid(layers, rows, given[0], tokens, positions, among), depth)

        numbers = _numbers(nodes.padded(width), cache.length)
        states = self._played(slot, (width, rows, depth), numbers, nodes.tokens, passed)
        if states is None:
            return None
        tapped = states.tapped[:count].clone() if states.tapped is not None else None  # the next replay writes there
        return States(states.final[:count], tapped)

    def walk(self, token: Tensor, links: int, cache: KVCache, step: Step, kind: Hashable) -> Tensor | None:
        """Tokens that follow one another: each is what `step` makes of a pass over the one before it. [1] -> [links]

        One recording, so that nobody is waited for between two of them; None as in `run`. Their rows stay
        uncommitted. `kind` tells apart what `step` does.
        """
        slot = cache.rows()
        if self.is_off or cache.length + links > slot.rows:
            return None
        rows, layers = min(bucket_of(cache.length + links), slot.rows), slot.layers

        def walked(given: Tensor) -> Tensor:
            tokens, alone = [given[1:]], torch.ones(1, 1, dtype=torch.bool, device=given.device)
            for link in range(links):
                length = given[0] + link
                tokens.append(step(self._laid(layers, rows, length, tokens[-1], length[None], alone)))
            return torch.cat(tokens[1:])

        tokens = self._played(slot, (links, rows, kind), torch.tensor([cache.length, 0]), token, walked)
        return tokens.clone() if tokens is not None else None

    def __len__(self) -> int:
        return sum(len(recordings) for recordings in self._of_slot.values())

    def _played(
        self, slot: Slot, key: Hashable, numbers: Tensor, tokens: list[int] | Tensor, make: Callable[[Tensor], Made]
    ) -> Made | None:
        """What is made of these numbers, of which the second and those behind it are `tokens`; None without room."""
        try:
            return self._recording(slot, key, len(numbers), make).play(numbers, tokens)
        except torch.OutOfMemoryError:
            self.is_off = True
            self._of_slot.clear()
            log.warning("no memory left on the card to record passes: they are launched one kernel at a time, slower")
            return None

    def _recording(self, slot: Slot, key: Hashable, size: int, make: Callable[[Tensor], Made]) -> _Recording[Made]:
        recordings = self._of_slot.setdefault(slot, OrderedDict())
        if key not in recordings:
            given = torch.zeros(size, dtype=torch.long, device=slot.layout.device)
            recordings[key] = _Recording(self.record, given, make)
            if len(recordings) > MOST_RECORDINGS:
                recordings.popitem(last=False)
        recordings.move_to_end(key)
        return recordings[key]

    def _laid(
        self, layers: Layers, rows: int, length: Tensor, tokens: Tensor, positions: Tensor, among: Tensor
    ) -> Laid:
        """A pass as the device sees it. Only operations of fixed shapes: this is recorded, too.

        length [], tokens, positions [N], among bool [N, N]: which of one another they see
        """
        width, row = len(tokens), torch.arange(rows, device=length.device)
        node = (row - length).clamp(0, width - 1)
        is_node = (row >= length) & (row < length + width)
        sees = torch.where(is_node, among[:, node], row < length)
        place = torch.where(is_node, positions[node], row)
        masks = {
            window: self.mask(sees if window is None else sees & (place > positions[:, None] - window))
            for window in self.windows
        }
        new = length + torch.arange(width, device=length.device)

        def write(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            stored_keys, stored_values = layers[layer]
            stored_keys.index_copy_(2, new, keys)
            stored_values.index_copy_(2, new, values)
            return stored_keys[:, :, :rows], stored_values[:, :, :rows]

        return Laid(tokens, positions, masks, write)


class _Recording(Generic[Made]):
    """What is made of a few numbers at a fixed address; recorded when it is first played."""

    def __init__(self, record: Record, given: Tensor, make: Callable[[Tensor], Made]) -> None:
        self.given, self._record, self._make = given, record, make
        self._replay: Callable[[], None] | None = None
        self._made: list[Made] = []

    def play(self, numbers: Tensor, tokens: list[int] | Tensor) -> Made:
        """What is made of these numbers; good until it is played again. Tokens on the device are put among them."""
        self.given.copy_(numbers, non_blocking=True)
        if isinstance(tokens, Tensor):
            self.given[1 : 1 + len(tokens)] = tokens
        if self._replay is None:
            self._replay = self._record(self._run)
        else:
            self._replay()
        return self._made[-1]

    def _run(self) -> None:
        self._made[:] = [self._make(self.given)]


def _numbers(nodes: Nodes, length: int) -> Tensor:
    """All that changes from pass to pass: the text's length, tokens, positions, and who sees whom."""
    tokens = nodes.tokens if isinstance(nodes.tokens, list) else [0] * len(nodes.depths)
    positions = [depth + length for depth in nodes.depths]
    return torch.cat((torch.tensor([length, *tokens, *positions]), nodes.sees.flatten().long()))


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
