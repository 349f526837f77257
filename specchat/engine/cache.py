"""The KV cache: preallocated rows for keys and values, committed with one gather, and the pool that allocates them.

A cache knows rows, not tokens. Rows past `length` are scratch rows: a pass writes its nodes there, `commit` keeps the
accepted nodes and closes the gaps, and the next pass overwrites the others.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.cache_sizes import SCALE_BYTES, slot_rows
from specchat.engine.device import copy_to_device
from specchat.engine.int8_rows import dequantize_rows, quantize_rows
from specchat.errors import CacheError, ModelError

if TYPE_CHECKING:
    from specchat.engine.kv_arena import KVArena

NO_KV_ROWS = (0, 0, 0)  # the shape of a layer that has none
StackShape = tuple[int, ...]  # heads and size of keys or values; behind them the number of another place, from 1
Places = tuple[tuple[torch.device, int], ...]  # where the first layers are, and how many each device has


@dataclass(frozen=True)
class KVLayout:
    shapes: tuple[tuple[int, int, int], ...]  # per layer: key/value heads, key size, value size
    dtype: torch.dtype  # of the passes
    device: torch.device
    is_int8: bool = False  # rows are stored as `int8_rows`
    places: Places = ()  # of the first layers, whose rows are not on `device`

    @property
    def stored_dtype(self) -> torch.dtype:
        return torch.int8 if self.is_int8 else self.dtype

    @property
    def entries(self) -> list[list[StackShape]]:
        """Heads and stored size of the keys and of the values of each layer."""
        extra = SCALE_BYTES if self.is_int8 else 0
        places = [(number,) for number, (_, count) in enumerate(self.places, 1) for _ in range(count)]
        places += [()] * (len(self.shapes) - len(places))
        return [
            [(heads, key + extra, *place), (heads, value + extra, *place)]
            for (heads, key, value), place in zip(self.shapes, places, strict=True)
        ]

    def device_of(self, shape: StackShape) -> torch.device:
        """Where the rows of layers with this shape are."""
        return self.places[shape[2] - 1][0] if shape[2:] else self.device

    @property
    def placed_layers(self) -> int:
        """The first layers, whose rows are elsewhere."""
        return sum(count for _device, count in self.places)

    def on(self, device: torch.device) -> KVLayout:
        """The same stacks, all on one device."""
        return replace(self, device=device, places=tuple((device, count) for _device, count in self.places))

    @property
    def has_all_layers(self) -> bool:
        """Whether its rows are all that a network keeps of a text: a recurrent layer keeps a state and no rows."""
        return bool(self.shapes) and NO_KV_ROWS not in self.shapes

    @property
    def bytes_per_row(self) -> int:
        return sum(heads * size for pair in self.entries for heads, size, *_ in pair) * self.stored_dtype.itemsize


Stacks = Mapping[StackShape, Tensor]  # for each shape of keys or values: [layers, H, rows, size]
LayerRows = tuple[Tensor, Tensor]  # keys and values of a layer [1, H, rows, size]


def allocate_stacks(layout: KVLayout, rows: int) -> dict[StackShape, Tensor]:
    """One stacked tensor for each shape of keys or values. Zeros, not empty: a masked row must not hold NaN."""
    entries = layout.entries
    return {
        shape: torch.zeros(
            sum(pair.count(shape) for pair in entries), shape[0], rows, shape[1],
            dtype=layout.stored_dtype, device=layout.device_of(shape),
        )
        for shape in dict.fromkeys(shape for pair in entries for shape in pair)
    }  # fmt: skip


def forms_of(tensors: Mapping[Any, Tensor]) -> frozenset[tuple[Any, ...]]:
    """Names, shapes and dtypes."""
    return frozenset((name, tensor.shape, tensor.dtype) for name, tensor in tensors.items())


def layers_of(layout: KVLayout, stacks: Stacks) -> list[LayerRows]:
    """The rows of each layer in these stacks."""
    unused = {shape: iter(stack) for shape, stack in stacks.items()}
    return [(next(unused[key])[None], next(unused[value])[None]) for key, value in layout.entries]


class Slot:
    """The rows of one cache at a fixed address: tensors of its own, or a range of an arena's."""

    def __init__(self, layout: KVLayout, rows: int, stacks: Stacks | None = None, first_row: int = 0) -> None:
        self.layout, self.rows, self.first_row = layout, rows, first_row
        self.stacks: Stacks = allocate_stacks(layout, rows) if stacks is None else stacks
        self.layers = layers_of(layout, self.stacks)

    @property
    def bytes(self) -> int:
        return self.rows * self.layout.bytes_per_row

    def clear(self) -> None:
        """Write zeros: masked rows count zero times their value, which must be a finite number."""
        for stack in self.stacks.values():
            stack.zero_()

    def copy_from(self, stacks: Stacks, length: int) -> None:
        for shape, stack in self.stacks.items():
            stack[:, :, :length] = stacks[shape][:, :, :length]


class KVLocation(NamedTuple):
    """The rows of a layer as they are stored, for kernels that write them themselves."""

    keys: Tensor  # [1, H, rows, stored size]
    values: Tensor
    first_new_row: int
    kv_length: int  # the pass attends to the first rows, so many


class KVCache:
    """Keys and values of one sequence: the rows of a slot, and the number of committed rows."""

    def __init__(self) -> None:
        self.length = 0  # committed rows
        self.rollback_floor = 0  # a rollback below this goes to a checkpoint: recurrent layers have no rollback
        self.rollback_rows: int | None = None  # one over more rows goes to a checkpoint, too; None: any number
        self.checkpoints: tuple[int, ...] = ()  # the lengths that such a rollback can go to, beside 0
        self.last_path: list[int] = []  # the nodes that were committed last
        self.network_bytes = 0  # of keys, values and states that a network keeps in its own cache
        self.slot: Slot | None = None  # None while offloaded or dropped

    def require_slot(self) -> Slot:
        """The slot to write to. `KVPool.acquire_slot` must be active during a pass."""
        assert self.slot is not None, "a pass over a cache that has no slot"
        return self.slot

    def write(self, layer: int, keys: Tensor, values: Tensor, kv_length: int | None = None) -> tuple[Tensor, Tensor]:
        """Write the rows of a pass behind the committed rows; return the first `kv_length` ones.

        The default is all committed and new rows. keys, values: [1, H, N, size] -> [1, H, kv_length, size]
        """
        end, slot = self.length + keys.shape[2], self.require_slot()
        stored_keys, stored_values = slot.layers[layer]
        is_int8, kv_length = slot.layout.is_int8, kv_length or end
        stored_keys[:, :, self.length : end] = quantize_rows(keys) if is_int8 else keys
        stored_values[:, :, self.length : end] = quantize_rows(values) if is_int8 else values
        return self.read(layer, kv_length)

    def read(self, layer: int, kv_length: int) -> tuple[Tensor, Tensor]:
        """The first `kv_length` rows, new ones included, in the dtype of the passes.

        [1, H, kv_length, size]
        """
        layout, stored = self.require_slot().layout, self.require_slot().layers[layer]
        keys, values = (each[:, :, :kv_length] for each in stored)
        if layout.is_int8:
            return dequantize_rows(keys, layout.dtype), dequantize_rows(values, layout.dtype)
        return keys, values

    def kv_location(self, layer: int, kv_length: int) -> KVLocation:
        """The rows of a layer, for a pass that writes its rows itself and attends to `kv_length` rows."""
        return KVLocation(*self.require_slot().layers[layer], self.length, kv_length)

    def commit(self, path: list[int]) -> None:
        """Keep these nodes of the last pass, root first, and discard the others.

        With length 5 and path [0, 2], rows 5 and 7 become rows 5 and 6, and length becomes 7.
        """
        if path != list(range(len(path))):
            rows = torch.tensor([node + self.length for node in path])
            for stack in self.require_slot().stacks.values():
                kept = stack.index_select(2, copy_to_device(rows, stack.device))
                stack[:, :, self.length : self.length + len(path)] = kept
        self.length += len(path)
        self.last_path = path

    def rollback(self, length: int) -> None:
        self.length = self.length_after_rollback(length)

    def length_after_rollback(self, length: int) -> int:
        """How many rows a rollback to so many keeps: fewer where it goes to a checkpoint."""
        floor = self.rollback_floor
        if self.rollback_rows is not None:
            floor = max(floor, self.length - self.rollback_rows)
        if length < floor:
            length = max((each for each in self.checkpoints if each <= length), default=0)
        return min(self.length, length)


@dataclass
class _CacheEntry:
    pins: int = 0  # running turns that use it
    last_used: int = 0  # by the pool's own clock
    offloaded: Stacks | None = None  # rows in host memory


@dataclass
class KVPool:
    """All KV caches of one model: slots on the device for running turns, and host memory for most idle caches.

    Only a cache with a slot can run a pass. As many turns run as the memory has slots for, and others wait for room.
    Idle caches beyond `slots` are offloaded to host memory, the least recently used one first, or dropped when
    `offload_bytes` is used up and then need a new prefill. Slots grow between turns only.

    With an arena, slots are ranges of its rows and no other memory is allocated.
    """

    layout: KVLayout
    slots: int = 2  # in all, when an idle cache keeps its own
    budget_bytes: int | None = None  # for slots; None: as much as the device has
    offload_bytes: int = 2**30  # for offloaded rows
    arena: KVArena | None = None
    target_pool: KVPool | None = None  # of a drafter's model, which runs between the passes of the turns there
    _entries: WeakKeyDictionary[KVCache, _CacheEntry] = field(default_factory=WeakKeyDictionary)
    _clock: int = 0
    _line: list[KVCache] = field(default_factory=list[KVCache])  # that wait for room, in the order of arrival

    def open(self) -> KVCache:
        cache = KVCache()
        self._entries[cache] = _CacheEntry()
        return cache

    def close(self, cache: KVCache) -> None:
        self._entries.pop(cache, None)
        self._drop(cache)

    def wait_for_room(self, cache: KVCache, min_rows: int, *, is_urgent: bool = False) -> Iterator[None]:
        """Yield while running turns leave no room for a slot of so many rows; urgent ones first, then in order.

        Without a running turn there is nothing to wait for: `acquire_slot` then says what is missing.
        """
        rows = max(self._slot_rows(min_rows), cache.slot.rows if cache.slot else 0)
        self._line.insert(0 if is_urgent else len(self._line), cache)
        try:
            while self._line[0] is not cache or (
                self.running_turns and not self._fits(rows, [cache, *self._idle(cache)])
            ):
                yield
        finally:
            self._line.remove(cache)

    @contextmanager
    def acquire_slot(self, cache: KVCache, min_rows: int) -> Generator[None]:
        """Give the cache a slot of at least `min_rows` rows while a turn runs; CacheError when there is none."""
        entry = self._entries[cache]
        self._clock += 1
        entry.last_used = self._clock
        self._allocate_slot(cache, entry, self._slot_rows(min_rows))
        entry.pins += 1
        try:
            yield
        except ModelError:  # numbers that are not finite would spread to the other texts of the arena
            if self.arena is not None:
                self._drop(cache)
            raise
        finally:
            entry.pins -= 1
            self._offload_idle()

    def copy_rows(self, cache: KVCache, length: int) -> Stacks:
        """The first committed rows of a cache, in host memory, to read only."""
        offloaded = self._entries[cache].offloaded
        if offloaded is None:
            return _rows_in_host_memory(cache.slot, length) if cache.slot else {}
        return {shape: stack[:, :, :length] for shape, stack in offloaded.items()}

    def restore_rows(self, cache: KVCache, stacks: Stacks, length: int) -> None:
        """Give an empty cache these rows of the same layout; they wait in host memory for a slot."""
        assert cache.length == 0
        self._entries[cache].offloaded, cache.slot, cache.length = stacks, None, length

    @property
    def bytes(self) -> int:
        """The bytes of all caches, those in slots and the offloaded ones; an arena counts as a whole."""
        if self.arena is None:
            return sum(map(self.bytes_of, self._entries))
        return self.arena.bytes + sum(self.bytes_of(cache) for cache in self._entries if cache.slot is None)

    def bytes_of(self, cache: KVCache) -> int:
        """The bytes that a cache holds, in its slot or offloaded."""
        if cache.slot is not None:
            return cache.slot.bytes + cache.network_bytes
        offloaded = self._entries[cache].offloaded if cache in self._entries else None
        return cache.network_bytes + (sum(stack.nbytes for stack in offloaded.values()) if offloaded else 0)

    @property
    def running_turns(self) -> int:
        return sum(entry.pins > 0 for entry in self._entries.values())

    def _slot_rows(self, min_rows: int) -> int:
        return slot_rows(min_rows) if self.arena is None else self.arena.slot_rows(min_rows)

    def _allocate_slot(self, cache: KVCache, entry: _CacheEntry, rows: int) -> None:
        old = cache.slot
        if old is not None and old.rows >= rows:
            return
        if entry.pins:
            raise CacheError("the KV cache cannot grow in the middle of a turn")
        self._offload_idle(cache)
        idle = self._idle(cache)
        while idle and not self._fits(rows, [cache]):
            self._offload(idle.pop(0))
        if not self._fits(rows, [cache]):
            raise _no_room(rows, self.layout, self._budget_bytes() or 0)
        slot = self._try_slot(cache, rows)
        if slot is None and old is not None:  # the old rows wait in host memory while the device has no room for both
            entry.offloaded, cache.slot = _rows_in_host_memory(old, cache.length), None
            old = None
            slot = self._try_slot(cache, rows)
        if slot is None:
            raise CacheError(f"no memory for {rows} rows of KV cache; lower limits.context")
        stacks = old.stacks if old is not None else entry.offloaded
        if stacks is not None and (old is None or self.arena is None):  # in an arena, a slot grows where it is
            slot.copy_from(stacks, cache.length)
        entry.offloaded, cache.slot = None, slot

    def _try_slot(self, cache: KVCache, rows: int) -> Slot | None:
        """A slot, for which idle caches are offloaded until the device has the memory; None if that is not enough."""
        if self.arena is not None:
            return self._arena_slot(self.arena, cache, rows)
        while True:
            try:
                return Slot(self.layout, rows)
            except (torch.OutOfMemoryError, MemoryError, RuntimeError):
                idle = self._idle(cache)
            if not idle:
                return None
            self._offload(idle[0])

    def _arena_slot(self, arena: KVArena, cache: KVCache, rows: int) -> Slot | None:
        """Rows of the arena. A slot that cannot grow where it is has to wait elsewhere first: None."""
        others = sorted(
            ((each.slot, each) for each in self._entries if each.slot is not None and each is not cache),
            key=lambda pair: pair[0].first_row,
        )
        if cache.slot is not None:
            can_extend = arena.can_extend(cache.slot, rows, [slot for slot, _cache in others])
            return arena.slot(cache.slot.first_row, rows) if can_extend else None
        end = max((slot.first_row + slot.rows for slot, _cache in others), default=0)
        if end + rows > arena.rows:
            end = 0
            for slot, other in others:
                other.slot = arena.moved(slot, end, other.length)
                end += slot.rows
        return arena.slot(end, rows) if end + rows <= arena.rows else None

    def _idle(self, cache: KVCache | None) -> list[KVCache]:
        """The other caches with a slot that no turn uses, the least recently used first."""
        idle = (each for each, entry in self._entries.items() if each.slot and not entry.pins and each is not cache)
        return sorted(idle, key=lambda each: self._entries[each].last_used)

    def _offload_idle(self, cache: KVCache | None = None) -> None:
        """Offload the idle caches beyond the slots, of which one is for this cache."""
        idle = self._idle(cache)
        slots = max(self.slots, self.target_pool.running_turns if self.target_pool else 0)
        allocated = sum(each.slot is not None for each in self._entries if each is not cache) + (cache is not None)
        for each in idle[: max(allocated - slots, 0)]:
            self._offload(each)

    def _offload(self, cache: KVCache) -> None:
        offloaded = sum(other.length for other, entry in self._entries.items() if entry.offloaded is not None)
        if (offloaded + cache.length) * self.layout.bytes_per_row <= self.offload_bytes:
            self._entries[cache].offloaded = _rows_in_host_memory(cache.require_slot(), cache.length)
        else:
            cache.length = 0
        cache.slot = None

    def _drop(self, cache: KVCache) -> None:
        """Forget the rows of a cache; those of an arena become zeros for the others, which mask them."""
        if cache.slot is not None and self.arena is not None:
            cache.slot.clear()
        cache.slot, cache.length = None, 0

    def _budget_bytes(self) -> int | None:
        return self.budget_bytes if self.arena is None else self.arena.rows * self.layout.bytes_per_row

    def _fits(self, rows: int, freed: Collection[KVCache]) -> bool:
        """Whether so many rows fit beside the slots of all caches but these."""
        held = [each for each in self._entries if each.slot and each not in freed]
        used = sum(each.slot.bytes if self.arena and each.slot else self.bytes_of(each) for each in held)
        budget = self._budget_bytes()
        return budget is None or used + rows * self.layout.bytes_per_row <= budget


def _no_room(rows: int, layout: KVLayout, budget_bytes: int) -> CacheError:
    required, budget = rows * layout.bytes_per_row / 2**20, budget_bytes / 2**20
    return CacheError(
        f"a KV cache of {rows} rows takes {required:.0f} MiB, more than is left of {budget:.0f} MiB; "
        "lower limits.context or close a session"
    )


def _rows_in_host_memory(slot: Slot, length: int) -> Stacks:
    return {shape: stack[:, :, :length].to("cpu", copy=True) for shape, stack in slot.stacks.items()}
