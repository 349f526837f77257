"""The KV cache: preallocated rows for keys and values, committed with one gather, and the pool that allocates them.

A cache knows rows, not tokens. Rows past `length` are scratch rows: a pass writes its nodes there, `commit` keeps the
accepted nodes and closes the gaps, and the next pass overwrites the others.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.device import copy_to_device
from specchat.errors import CacheError

MIN_BUCKET_ROWS = 1024  # committed rows
SCRATCH_ROWS = 256  # rows past the text that a pass may write: the largest tree or prefill chunk


@dataclass(frozen=True)
class KVLayout:
    shapes: tuple[tuple[int, int, int], ...]  # per layer: key/value heads, key size, value size
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_row(self) -> int:
        return sum(heads * (key + value) for heads, key, value in self.shapes) * self.dtype.itemsize


class Slot:
    """The rows of one cache at a fixed address: one stacked tensor for each shape of keys or values."""

    def __init__(self, layout: KVLayout, rows: int) -> None:
        self.layout, self.rows = layout, rows
        entries = [[(heads, key), (heads, value)] for heads, key, value in layout.shapes]
        self.stacks: dict[tuple[int, int], Tensor] = {
            shape: torch.zeros(
                sum(pair.count(shape) for pair in entries), shape[0], rows, shape[1],
                dtype=layout.dtype, device=layout.device,
            )
            for shape in dict.fromkeys(shape for pair in entries for shape in pair)
        }  # fmt: skip
        unused = {shape: iter(stack) for shape, stack in self.stacks.items()}
        # zeros, not empty: a masked row must not hold NaN
        self.layers: list[tuple[Tensor, Tensor]] = [
            (next(unused[key])[None], next(unused[value])[None]) for key, value in entries
        ]  # per layer: keys and values [1, H, rows, size]

    @property
    def bytes(self) -> int:
        return self.rows * self.layout.bytes_per_row

    def copy_from(self, stacks: Mapping[tuple[int, int], Tensor], length: int) -> None:
        for shape, stack in self.stacks.items():
            stack[:, :, :length] = stacks[shape][:, :, :length]


class KVLocation(NamedTuple):
    """The rows of a layer, for kernels that write them themselves."""

    keys: Tensor  # [1, H, rows, size]
    values: Tensor
    first_new_row: int
    kv_length: int  # the pass attends to the rows before this one


class KVCache:
    """Keys and values of one sequence: the rows of a slot, and the number of committed rows."""

    def __init__(self) -> None:
        self.length = 0  # committed rows
        self.rollback_floor = 0  # a rollback below this clears the cache: for recurrent layers, which cannot roll back
        self.slot: Slot | None = None  # None while offloaded or dropped

    def require_slot(self) -> Slot:
        """The slot to write to. `KVPool.acquire_slot` must be active during a pass."""
        assert self.slot is not None, "a pass over a cache that has no slot"
        return self.slot

    def write(self, layer: int, keys: Tensor, values: Tensor, kv_length: int | None = None) -> tuple[Tensor, Tensor]:
        """Write the rows of a pass behind the committed rows; return the first `kv_length` rows.

        The default is all committed and new rows. keys, values: [1, H, N, size] -> [1, H, kv_length, size]
        """
        end = self.length + keys.shape[2]
        stored_keys, stored_values = self.require_slot().layers[layer]
        stored_keys[:, :, self.length : end] = keys
        stored_values[:, :, self.length : end] = values
        kv_length = kv_length or end
        return stored_keys[:, :, :kv_length], stored_values[:, :, :kv_length]

    def kv_location(self, layer: int, kv_length: int) -> KVLocation:
        """The rows of a layer, for a pass that writes its rows itself and attends to `kv_length` rows."""
        return KVLocation(*self.require_slot().layers[layer], self.length, kv_length)

    def commit(self, path: list[int]) -> None:
        """Keep these nodes of the last pass, root first, and discard the others.

        With length 5 and path [0, 2], rows 5 and 7 become rows 5 and 6, and length becomes 7.
        """
        if path != list(range(len(path))):
            slot = self.require_slot()
            rows = copy_to_device([node + self.length for node in path], slot.layout.device)
            for stack in slot.stacks.values():
                stack[:, :, self.length : self.length + len(path)] = stack.index_select(2, rows)
        self.length += len(path)

    def rollback(self, length: int) -> None:
        self.length = min(self.length, length) if length >= self.rollback_floor else 0


def bucket_of(length: int) -> int:
    """The length bucket of a text: a power of two."""
    return max(MIN_BUCKET_ROWS, 1 << (length - 1).bit_length())


def slot_rows(min_rows: int) -> int:
    """The size of the smallest slot with at least `min_rows` rows: a length bucket and the scratch rows."""
    return bucket_of(max(min_rows - SCRATCH_ROWS, 1)) + SCRATCH_ROWS


@dataclass
class _CacheEntry:
    pins: int = 0  # running turns that use it
    last_used: int = 0  # by the pool's own clock
    offloaded: dict[tuple[int, int], Tensor] | None = None  # rows in host memory


@dataclass
class KVPool:
    """All KV caches of one model: a few slots on the device, and host memory for idle caches.

    Only a cache with a slot can run a pass. When no slot is free, the least recently used cache is offloaded to host
    memory, or dropped when `offload_bytes` is used up and then needs a new prefill. Slots grow between turns only.
    """

    layout: KVLayout
    slots: int = 2
    budget_bytes: int | None = None  # for slots; None: as much as the device has
    offload_bytes: int = 2**30  # for offloaded rows
    _entries: WeakKeyDictionary[KVCache, _CacheEntry] = field(default_factory=WeakKeyDictionary)
    _clock: int = 0

    def open(self) -> KVCache:
        cache = KVCache()
        self._entries[cache] = _CacheEntry()
        return cache

    def close(self, cache: KVCache) -> None:
        self._entries.pop(cache, None)
        cache.slot, cache.length = None, 0

    @contextmanager
    def acquire_slot(self, cache: KVCache, min_rows: int) -> Generator[None]:
        """Give the cache a slot of at least `min_rows` rows while a turn runs; CacheError when there is none."""
        entry = self._entries[cache]
        self._clock += 1
        entry.last_used = self._clock
        self._allocate_slot(cache, entry, slot_rows(min_rows))
        entry.pins += 1
        try:
            yield
        finally:
            entry.pins -= 1

    @property
    def bytes(self) -> int:
        """The bytes of all caches, those in slots and the offloaded ones."""
        return sum(map(self.bytes_of, self._entries))

    def bytes_of(self, cache: KVCache) -> int:
        """The bytes that a cache holds, in its slot or offloaded."""
        if cache.slot is not None:
            return cache.slot.bytes
        offloaded = self._entries[cache].offloaded if cache in self._entries else None
        return sum(stack.nbytes for stack in offloaded.values()) if offloaded else 0

    def _allocate_slot(self, cache: KVCache, entry: _CacheEntry, rows: int) -> None:
        old = cache.slot
        if old is not None and old.rows >= rows:
            return
        if old is None:
            self._evict_idle(rows)
        elif entry.pins:
            raise CacheError("the KV cache cannot grow in the middle of a turn")
        self._fits_or_raise(rows, excluded_slot=old)
        slot = self._try_slot(cache, rows)
        if slot is None and old is not None:  # the old rows wait in host memory while the device has no room for both
            entry.offloaded, cache.slot = _rows_in_host_memory(old, cache.length), None
            old = None
            slot = self._try_slot(cache, rows)
        if slot is None:
            raise CacheError(f"no memory for {rows} rows of KV cache; lower limits.context")
        stacks = old.stacks if old is not None else entry.offloaded
        if stacks is not None:
            slot.copy_from(stacks, cache.length)
        entry.offloaded, cache.slot = None, slot

    def _try_slot(self, cache: KVCache, rows: int) -> Slot | None:
        """A slot, for which idle caches are offloaded until the device has the memory; None if that is not enough."""
        while True:
            try:
                return Slot(self.layout, rows)
            except (torch.OutOfMemoryError, MemoryError, RuntimeError):
                idle = [each for each in self._idle() if each is not cache]
            if not idle:
                return None
            self._offload(idle[0])

    def _idle(self) -> list[KVCache]:
        """The caches with a slot that no turn uses, the least recently used first."""
        idle = (cache for cache, entry in self._entries.items() if cache.slot and not entry.pins)
        return sorted(idle, key=lambda cache: self._entries[cache].last_used)

    def _evict_idle(self, rows: int) -> None:
        """Free one slot if none is free, and more if the byte budget requires it."""
        allocated, idle = sum(cache.slot is not None for cache in self._entries), self._idle()
        while idle and (allocated >= self.slots or not self._fits(rows)):
            self._offload(idle.pop(0))
            allocated -= 1
        if allocated >= self.slots:
            raise CacheError(f"all {self.slots} slots of the KV cache are busy; wait for a turn to end")

    def _offload(self, cache: KVCache) -> None:
        offloaded = sum(other.length for other, entry in self._entries.items() if entry.offloaded is not None)
        if (offloaded + cache.length) * self.layout.bytes_per_row <= self.offload_bytes:
            self._entries[cache].offloaded = _rows_in_host_memory(cache.require_slot(), cache.length)
        else:
            cache.length = 0
        cache.slot = None

    def _fits(self, rows: int, excluded_slot: Slot | None = None) -> bool:
        used = sum(cache.slot.bytes for cache in self._entries if cache.slot)
        used -= excluded_slot.bytes if excluded_slot else 0
        return self.budget_bytes is None or used + rows * self.layout.bytes_per_row <= self.budget_bytes

    def _fits_or_raise(self, rows: int, excluded_slot: Slot | None) -> None:
        if not self._fits(rows, excluded_slot):
            required, budget = rows * self.layout.bytes_per_row / 2**20, (self.budget_bytes or 0) / 2**20
            raise CacheError(
                f"a KV cache of {rows} rows takes {required:.0f} MiB, more than is left of {budget:.0f} MiB; "
                "lower limits.context or close a session"
            )


def _rows_in_host_memory(slot: Slot, length: int) -> dict[tuple[int, int], Tensor]:
    return {shape: stack[:, :, :length].to("cpu", copy=True) for shape, stack in slot.stacks.items()}
