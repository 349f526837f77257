"""Where keys and values live: preallocated rows, committed by one gather, and the pool that hands them out.

A cache knows rows, not tokens. Rows past `length` are scratch paper: a pass writes its nodes there, `commit` keeps
the accepted ones and closes the gaps, and everything else is forgotten by not being counted.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.device import copy_to_device
from specchat.errors import CacheError

MIN_BUCKET_ROWS = 1024  # rows of text
SCRATCH_ROWS = 256  # rows past the text that a pass may write: the largest tree or chunk of a prompt


@dataclass(frozen=True)
class KVLayout:
    """What one row holds in every layer."""

    shapes: tuple[tuple[int, int, int], ...]  # per layer: key/value heads, size of a key, size of a value
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_row(self) -> int:
        """Bytes that one token takes."""
        return sum(heads * (key + value) for heads, key, value in self.shapes) * self.dtype.itemsize


class Slot:
    """Rows for one text, at a fixed address: one stacked tensor for each shape of keys or values."""

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
        places = {shape: iter(stack) for shape, stack in self.stacks.items()}
        # zeros, not empty: a masked row must still be a number
        self.layers: list[tuple[Tensor, Tensor]] = [
            (next(places[key])[None], next(places[value])[None]) for key, value in entries
        ]  # per layer: keys and values [1, H, rows, size]

    @property
    def bytes(self) -> int:
        """Memory that these rows take."""
        return self.rows * self.layout.bytes_per_row

    def copy_from(self, stacks: dict[tuple[int, int], Tensor], length: int) -> None:
        """Take over the first `length` rows of other stacks."""
        for shape, stack in self.stacks.items():
            stack[:, :, :length] = stacks[shape][:, :, :length]


class KVLocation(NamedTuple):
    """Where a pass finds the rows of a layer."""

    keys: Tensor  # [1, H, rows, size], of which the pass looks at `width`
    values: Tensor
    first_new_row: int  # where its own rows go
    kv_length: int


class KVCache:
    """Keys and values of one text: the rows of a slot, and how many of them are sure."""

    def __init__(self) -> None:
        self.length = 0  # sure rows
        self.rollback_floor = 0  # a cut below forgets everything: for networks whose memory cannot be taken back
        self.slot: Slot | None = None  # None while parked or dropped

    def require_slot(self) -> Slot:
        """The slot to write to. A cache must be seated before a pass."""
        assert self.slot is not None, "a pass over a cache that has no slot"
        return self.slot

    def write(self, layer: int, keys: Tensor, values: Tensor, kv_length: int | None = None) -> tuple[Tensor, Tensor]:
        """Put the rows of a pass behind the sure ones; returns the first `width` rows (default: sure and new).

        keys, values: [1, H, N, size] -> [1, H, width, size]
        """
        end = self.length + keys.shape[2]
        stored_keys, stored_values = self.require_slot().layers[layer]
        stored_keys[:, :, self.length : end] = keys
        stored_values[:, :, self.length : end] = values
        kv_length = kv_length or end
        return stored_keys[:, :, :kv_length], stored_values[:, :, :kv_length]

    def kv_location(self, layer: int, kv_length: int) -> KVLocation:
        """Where the rows of a pass that looks at `width` rows go, for those who write them themselves."""
        return KVLocation(*self.require_slot().layers[layer], self.length, kv_length)

    def commit(self, path: list[int]) -> None:
        """Keep these nodes of the last pass, root first, and drop the others.

        With length 5 and path [0, 2], rows 5 and 7 become rows 5 and 6, and length becomes 7.
        """
        if path != list(range(len(path))):
            slot = self.require_slot()
            kept = copy_to_device([node + self.length for node in path], slot.layout.device)
            for stack in slot.stacks.values():
                stack[:, :, self.length : self.length + len(path)] = stack.index_select(2, kept)
        self.length += len(path)

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens; no-op for a cache that knows fewer."""
        self.length = min(self.length, length) if length >= self.rollback_floor else 0


def bucket_of(length: int) -> int:
    """The length bucket, a power of two, that holds a text."""
    return max(MIN_BUCKET_ROWS, 1 << (length - 1).bit_length())


def slot_rows(min_rows: int) -> int:
    """How large a slot is that has at least so many rows: a bucket of text, and scratch paper behind it."""
    return bucket_of(max(min_rows - SCRATCH_ROWS, 1)) + SCRATCH_ROWS


@dataclass
class _CacheEntry:
    """What the pool knows of a cache."""

    pins: int = 0  # turns that run on it now
    last_used: int = 0  # when it was last seated, by the pool's own clock
    offloaded: dict[tuple[int, int], Tensor] | None = None  # rows in host memory


@dataclass
class KVPool:
    """Owner of all keys and values of one model: a few slots, and host memory for who must wait.

    Only a seated cache can step. When every slot is taken, the one used longest ago is parked in host memory (or
    dropped, when `host_bytes` is spent; its text is then read again). Slots grow between turns only.
    """

    layout: KVLayout
    slots: int = 2
    budget_bytes: int | None = None  # for slots; None: as much as the device has
    offload_bytes: int = 2**30  # for parked rows
    _entries: WeakKeyDictionary[KVCache, _CacheEntry] = field(default_factory=WeakKeyDictionary)
    _clock: int = 0

    def open(self) -> KVCache:
        """A new, empty cache that is not seated yet."""
        cache = KVCache()
        self._entries[cache] = _CacheEntry()
        return cache

    def close(self, cache: KVCache) -> None:
        """The text of this cache is gone for good."""
        self._entries.pop(cache, None)
        cache.slot, cache.length = None, 0

    @contextmanager
    def acquire_slot(self, cache: KVCache, min_rows: int) -> Generator[None]:
        """Hold a slot of at least `rows` rows for as long as a turn runs; CacheError when there is none."""
        seat = self._entries[cache]
        self._clock += 1
        seat.last_used = self._clock
        self._allocate_slot(cache, seat, slot_rows(min_rows))
        seat.pins += 1
        try:
            yield
        finally:
            seat.pins -= 1

    @property
    def has_free_slot(self) -> bool:
        """Whether a cache without a slot could get one now."""
        return sum(seat.pins > 0 for seat in self._entries.values()) < self.slots

    @property
    def bytes(self) -> int:
        """Memory that the slots take now."""
        return sum(cache.slot.bytes for cache in self._entries if cache.slot)

    def _allocate_slot(self, cache: KVCache, entry: _CacheEntry, rows: int) -> None:
        old = cache.slot
        if old is not None and old.rows >= rows:
            return
        if old is None:
            self._evict_idle(rows)
        elif entry.pins:
            raise CacheError("keys and values cannot grow in the middle of a turn")
        self._fits_or_raise(rows, excluded_slot=old)
        try:
            slot = Slot(self.layout, rows)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            raise CacheError(f"no memory for {rows} rows of keys and values; lower limits.context") from error
        stacks = old.stacks if old is not None else entry.offloaded
        if stacks is not None:
            slot.copy_from(stacks, cache.length)
        entry.offloaded, cache.slot = None, slot

    def _evict_idle(self, rows: int) -> None:
        """Free one slot if all are taken, or more if the budget asks for it."""
        seated = sorted(
            (cache for cache in self._entries if cache.slot), key=lambda cache: self._entries[cache].last_used
        )
        idle = [cache for cache in seated if not self._entries[cache].pins]
        while idle and (len(seated) >= self.slots or not self._fits(rows)):
            self._offload(idle[0])
            seated.remove(idle.pop(0))
        if len(seated) >= self.slots:
            raise CacheError(f"all {self.slots} slots for keys and values are busy; wait for a turn to end")

    def _offload(self, cache: KVCache) -> None:
        parked = sum(other.length for other, seat in self._entries.items() if seat.offloaded is not None)
        if (parked + cache.length) * self.layout.bytes_per_row <= self.offload_bytes:
            self._entries[cache].offloaded = {
                shape: stack[:, :, : cache.length].to("cpu", copy=True)
                for shape, stack in cache.require_slot().stacks.items()
            }
        else:
            cache.length = 0
        cache.slot = None

    def _fits(self, rows: int, excluded_slot: Slot | None = None) -> bool:
        taken = self.bytes - (excluded_slot.bytes if excluded_slot else 0)
        return self.budget_bytes is None or taken + rows * self.layout.bytes_per_row <= self.budget_bytes

    def _fits_or_raise(self, rows: int, excluded_slot: Slot | None) -> None:
        if not self._fits(rows, excluded_slot):
            wanted, have = rows * self.layout.bytes_per_row / 2**20, (self.budget_bytes or 0) / 2**20
            raise CacheError(
                f"keys and values of {rows} rows take {wanted:.0f} MiB, more than is left of {have:.0f} MiB; "
                "lower limits.context or close a session"
            )
