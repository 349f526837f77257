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

from specchat.engine.device import sent
from specchat.errors import CacheError

SMALLEST_BUCKET = 1024  # rows of text
SCRATCH = 256  # rows past the text that a pass may write: the largest tree or chunk of a prompt


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


class Place(NamedTuple):
    """Where a pass finds the rows of a layer."""

    keys: Tensor  # [1, H, rows, size], of which the pass looks at `width`
    values: Tensor
    first: int  # where its own rows go
    width: int


class KVCache:
    """Keys and values of one text: the rows of a slot, and how many of them are sure."""

    def __init__(self) -> None:
        self.length = 0  # sure rows
        self.floor = 0  # a cut below forgets everything: for networks whose memory cannot be taken back
        self.slot: Slot | None = None  # None while parked or dropped

    def rows(self) -> Slot:
        """The slot to write to. A cache must be seated before a pass."""
        assert self.slot is not None, "a pass over a cache that has no slot"
        return self.slot

    def write(self, layer: int, keys: Tensor, values: Tensor, width: int | None = None) -> tuple[Tensor, Tensor]:
        """Put the rows of a pass behind the sure ones; returns the first `width` rows (default: sure and new).

        keys, values: [1, H, N, size] -> [1, H, width, size]
        """
        end = self.length + keys.shape[2]
        stored_keys, stored_values = self.rows().layers[layer]
        stored_keys[:, :, self.length : end] = keys
        stored_values[:, :, self.length : end] = values
        width = width or end
        return stored_keys[:, :, :width], stored_values[:, :, :width]

    def place(self, layer: int, width: int) -> Place:
        """Where the rows of a pass that looks at `width` rows go, for those who write them themselves."""
        return Place(*self.rows().layers[layer], self.length, width)

    def commit(self, path: list[int]) -> None:
        """Keep these nodes of the last pass, root first, and drop the others.

        With length 5 and path [0, 2], rows 5 and 7 become rows 5 and 6, and length becomes 7.
        """
        if path != list(range(len(path))):
            slot = self.rows()
            kept = sent([node + self.length for node in path], slot.layout.device)
            for stack in slot.stacks.values():
                stack[:, :, self.length : self.length + len(path)] = stack.index_select(2, kept)
        self.length += len(path)

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens; no-op for a cache that knows fewer."""
        self.length = min(self.length, length) if length >= self.floor else 0


def bucket_of(length: int) -> int:
    """The length bucket, a power of two, that holds a text."""
    return max(SMALLEST_BUCKET, 1 << (length - 1).bit_length())


def rows_for(rows: int) -> int:
    """How large a slot is that has at least so many rows: a bucket of text, and scratch paper behind it."""
    return bucket_of(max(rows - SCRATCH, 1)) + SCRATCH


@dataclass
class _Seat:
    """What the pool knows of a cache."""

    pins: int = 0  # turns that run on it now
    used: int = 0  # when it was last seated, by the pool's own clock
    parked: dict[tuple[int, int], Tensor] | None = None  # rows in host memory


@dataclass
class KVPool:
    """Owner of all keys and values of one model: a few slots, and host memory for who must wait.

    Only a seated cache can step. When every slot is taken, the one used longest ago is parked in host memory (or
    dropped, when `host_bytes` is spent; its text is then read again). Slots grow between turns only.
    """

    layout: KVLayout
    slots: int = 2
    budget_bytes: int | None = None  # for slots; None: as much as the device has
    host_bytes: int = 2**30  # for parked rows
    _seats: WeakKeyDictionary[KVCache, _Seat] = field(default_factory=WeakKeyDictionary)
    _clock: int = 0

    def open(self) -> KVCache:
        """A new, empty cache that is not seated yet."""
        cache = KVCache()
        self._seats[cache] = _Seat()
        return cache

    def close(self, cache: KVCache) -> None:
        """The text of this cache is gone for good."""
        self._seats.pop(cache, None)
        cache.slot, cache.length = None, 0

    @contextmanager
    def seated(self, cache: KVCache, rows: int) -> Generator[None]:
        """Hold a slot of at least `rows` rows for as long as a turn runs; CacheError when there is none."""
        seat = self._seats[cache]
        self._clock += 1
        seat.used = self._clock
        self._seat(cache, seat, rows_for(rows))
        seat.pins += 1
        try:
            yield
        finally:
            seat.pins -= 1

    @property
    def can_seat(self) -> bool:
        """Whether a cache without a slot could get one now."""
        return sum(seat.pins > 0 for seat in self._seats.values()) < self.slots

    @property
    def bytes(self) -> int:
        """Memory that the slots take now."""
        return sum(cache.slot.bytes for cache in self._seats if cache.slot)

    def _seat(self, cache: KVCache, seat: _Seat, rows: int) -> None:
        old = cache.slot
        if old is not None and old.rows >= rows:
            return
        if old is None:
            self._make_way(rows)
        elif seat.pins:
            raise CacheError("keys and values cannot grow in the middle of a turn")
        self._fits_or_raise(rows, without=old)
        try:
            slot = Slot(self.layout, rows)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            raise CacheError(f"no memory for {rows} rows of keys and values; lower limits.context") from error
        stacks = old.stacks if old is not None else seat.parked
        if stacks is not None:
            slot.copy_from(stacks, cache.length)
        seat.parked, cache.slot = None, slot

    def _make_way(self, rows: int) -> None:
        """Free one slot if all are taken, or more if the budget asks for it."""
        seated = sorted((cache for cache in self._seats if cache.slot), key=lambda cache: self._seats[cache].used)
        idle = [cache for cache in seated if not self._seats[cache].pins]
        while idle and (len(seated) >= self.slots or not self._fits(rows)):
            self._park(idle[0])
            seated.remove(idle.pop(0))
        if len(seated) >= self.slots:
            raise CacheError(f"all {self.slots} slots for keys and values are busy; wait for a turn to end")

    def _park(self, cache: KVCache) -> None:
        parked = sum(other.length for other, seat in self._seats.items() if seat.parked is not None)
        if (parked + cache.length) * self.layout.bytes_per_row <= self.host_bytes:
            self._seats[cache].parked = {
                shape: stack[:, :, : cache.length].to("cpu", copy=True) for shape, stack in cache.rows().stacks.items()
            }
        else:
            cache.length = 0
        cache.slot = None

    def _fits(self, rows: int, without: Slot | None = None) -> bool:
        taken = self.bytes - (without.bytes if without else 0)
        return self.budget_bytes is None or taken + rows * self.layout.bytes_per_row <= self.budget_bytes

    def _fits_or_raise(self, rows: int, without: Slot | None) -> None:
        if not self._fits(rows, without):
            wanted, have = rows * self.layout.bytes_per_row / 2**20, (self.budget_bytes or 0) / 2**20
            raise CacheError(
                f"keys and values of {rows} rows take {wanted:.0f} MiB, more than is left of {have:.0f} MiB; "
                "lower limits.context or close a session"
            )
