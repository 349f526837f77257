"""Copies of what a cache of transformers holds after some token of a text, to go back there.

Keys and values of layers that keep all rows are not copied: a longer text does not change them, so their number is
enough. What is left is small: recurrent states, and windows. Knows caches of transformers and no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from specchat.engine.cache_sizes import CHECKPOINT_TOKENS

MIN_TURN_TOKENS = 32  # a turn that is shorter is read again rather than stored
Saved = list[tuple[Any, dict[str, Any]]]  # an object and copies of its attributes


@dataclass(frozen=True)
class Snapshot:
    """The states of a network after `length` tokens of a text."""

    length: int
    cache: Any
    saved: Saved
    module_states: list[Any]  # of the modules that keep a state themselves

    @classmethod
    def take(cls, length: int, cache: Any, module_states: list[Any], device: torch.device | None = None) -> Snapshot:
        """Copies on `device`; None: where the states are."""
        return cls(length, cache, _save_cache(cache, device), copy_state(module_states, device))

    def on_device(self, device: torch.device) -> Snapshot:
        """The same copies on a device, without another copy where they are there."""
        saved = [(owner, _move(attributes, device)) for owner, attributes in self.saved]
        return Snapshot(self.length, self.cache, saved, _move(self.module_states, device))

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in _tensors([self.module_states, *(each for _, each in self.saved)]))

    def restore(self, device: torch.device) -> list[Any]:
        """Put the states of the cache back; returns those of the modules. The snapshot can be restored again."""
        for owner, attributes in self.saved:
            for name, value in attributes.items():
                is_rows = isinstance(value, _Rows)
                setattr(owner, name, getattr(owner, name)[:, :, : value.rows] if is_rows else copy_state(value, device))
        return copy_state(self.module_states, device)


class Checkpoint(Protocol):
    @property
    def length(self) -> int: ...
    @property
    def bytes(self) -> int: ...


C = TypeVar("C", bound=Checkpoint)


class Checkpoints(Generic[C]):
    """The snapshots of one text, by length, oldest first."""

    def __init__(self) -> None:
        self._snapshots: list[C] = []
        self.bytes = 0

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(each.length for each in self._snapshots)

    @property
    def last_length(self) -> int:
        return self._snapshots[-1].length if self._snapshots else 0

    def add(self, snapshot: C) -> None:
        assert snapshot.length > self.last_length
        self._snapshots.append(snapshot)
        self.bytes += snapshot.bytes

    def newest(self, count: int, max_length: int) -> list[C]:
        """At most so many of the last snapshots up to a length, oldest first."""
        return [each for each in self._snapshots if each.length <= max_length][-count:]

    def go_back(self, length: int) -> C | None:
        """The snapshot of this length, without the later ones, whose text is gone; None for the empty text."""
        while self.last_length > length:
            self.bytes -= self._snapshots.pop().bytes
        assert self.last_length == length, "a rollback between two checkpoints"
        return self._snapshots[-1] if self._snapshots else None

    def thin_out(self) -> None:
        """Drop the snapshot without which the fewest tokens are read again; the older one of two."""
        lengths = (0, *self.lengths, self.last_length + CHECKPOINT_TOKENS)
        gaps = [after - before for before, after in zip(lengths, lengths[2:], strict=False)]
        self.bytes -= self._snapshots.pop(gaps.index(min(gaps))).bytes


def keep_within(budget_bytes: int, all_checkpoints: Sequence[Checkpoints[Any]]) -> None:
    """Drop snapshots until those of all texts fit; the text that was used longest ago stands first and goes first."""
    for each in all_checkpoints:
        while each.bytes and sum(checkpoints.bytes for checkpoints in all_checkpoints) > budget_bytes:
            each.thin_out()


@dataclass(frozen=True)
class _Rows:
    """The first rows of keys or values."""

    rows: int


def cache_bytes(cache: Any) -> int:
    """The bytes of all tensors of a cache."""
    layers: list[Any] = getattr(cache, "layers", None) or []
    owners = [cache, *layers] if hasattr(cache, "__dict__") else []
    return sum(tensor.nbytes for owner in owners for tensor in _tensors(vars(owner)))


def copy_state(value: Any, device: torch.device | None = None) -> Any:
    """A copy that a later pass cannot change; values that are no tensors are not changed by passes."""
    if isinstance(value, Tensor):
        return value.to(device or value.device, copy=True)
    return _mapped(value, lambda each: copy_state(each, device))


def _save_cache(cache: Any, device: torch.device | None) -> Saved:
    if not hasattr(cache, "layers"):
        return [(cache, copy_state(vars(cache), device))] if hasattr(cache, "__dict__") else []
    attributes = {name: copy_state(value, device) for name, value in vars(cache).items() if name != "layers"}
    return [(cache, attributes), *((layer, _save_layer(layer, device)) for layer in cache.layers)]


def _save_layer(layer: Any, device: torch.device | None) -> dict[str, Any]:
    return {name: _save_attribute(layer, name, value, device) for name, value in vars(layer).items()}


def _save_attribute(layer: Any, name: str, value: Any, device: torch.device | None) -> Any:
    if name in ("keys", "values") and isinstance(value, Tensor) and value.dim() == 4 and not layer.is_sliding:
        return _Rows(value.shape[2])
    return copy_state(value, device)


def _move(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else _mapped(value, lambda each: _move(each, device))


def _mapped(value: Any, function: Any) -> Any:
    if isinstance(value, dict):
        return {key: function(each) for key, each in value.items()}
    if isinstance(value, list):
        return [function(each) for each in value]
    return value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors(each)
