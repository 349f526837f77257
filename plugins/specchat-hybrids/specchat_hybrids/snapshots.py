"""Copies of what a cache of transformers holds after some token of a text, to go back there.

Keys and values of layers that keep all rows are not copied: a longer text does not change them, so their number is
enough. What is left is small: recurrent states, and windows. Knows caches of transformers and no network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specchat.forward.transformers.own_cache import tensors_in

Saved = list[tuple[Any, dict[str, Any]]]  # an object and copies of its attributes


@dataclass(frozen=True)
class Snapshot:
    """The states of a network after `length` tokens of a text."""

    length: int
    cache: Any
    saved: Saved

    @classmethod
    def take(cls, length: int, cache: Any, device: torch.device | None = None) -> Snapshot:
        """Copies on `device`; None: where the states are."""
        return cls(length, cache, _save_cache(cache, device))

    def on_device(self, device: torch.device) -> Snapshot:
        """The same copies on a device, without another copy where they are there."""
        saved = [(owner, _move(attributes, device)) for owner, attributes in self.saved]
        return Snapshot(self.length, self.cache, saved)

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in tensors_in([each for _, each in self.saved]))

    def restore(self, device: torch.device) -> Any:
        """The cache with these states again. The snapshot can be restored more than once."""
        for owner, attributes in self.saved:
            for name, value in attributes.items():
                is_rows = isinstance(value, _Rows)
                setattr(owner, name, getattr(owner, name)[:, :, : value.rows] if is_rows else copy_state(value, device))
        return self.cache


@dataclass(frozen=True)
class _Rows:
    """The first rows of keys or values."""

    rows: int


def copy_state(value: Any, device: torch.device | None = None) -> Any:
    """A copy that a later pass cannot change; values that are no tensors are not changed by passes."""
    if isinstance(value, Tensor):
        return value.to(device or value.device, copy=True)
    return _mapped(value, lambda each: copy_state(each, device))


def _save_cache(cache: Any, device: torch.device | None) -> Saved:
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
