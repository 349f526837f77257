"""Tensors in files: their names and shapes at once, their numbers when they are asked for, one at a time.

Safetensors and pickles of tensors alike. A pickle is read by torch's own reader of weights, which builds tensors and
nothing else; whatever else it holds, it is refused. Knows no network.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specchat.errors import ModelError
from specchat.forward.linear import FloatLinear, Linear, WeightSource, quant_linear

PICKLE_SUFFIXES = (".bin", ".pt", ".pth")


@dataclass(frozen=True)
class TensorLocation:
    """Where a tensor is: a file, and its name there."""

    path: Path
    name: str


@dataclass(frozen=True)
class TensorFiles:
    """The tensors of some files, by name. Nothing but names and shapes is read until somebody asks."""

    source: Path  # what errors speak of
    locations: Mapping[str, TensorLocation]

    @classmethod
    def from_files(cls, source: Path, paths: Iterable[Path]) -> Self:
        """All tensors of these files; ModelError for a file that is cut off or holds anything else."""
        return cls(source, {name: TensorLocation(path, name) for path in paths for name in _tensor_names(path)})

    def renamed(self, names: Mapping[str, str]) -> TensorFiles:
        """The same tensors under other names: {new: old}. Those that are not named are left out."""
        return TensorFiles(self.source, {new: self._location(old) for new, old in names.items()})

    def __contains__(self, name: str) -> bool:
        return name in self.locations

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it where the file allows that."""
        place = self._location(name)
        if place.path.suffix in PICKLE_SUFFIXES:
            return tuple(_load_pickle(place.path)[place.name].shape)
        with safe_open(place.path, framework="pt") as file:
            return tuple(file.get_slice(place.name).get_shape())

    def read_tensor(self, name: str) -> Tensor:
        """One tensor, in the dtype of the file, in main memory."""
        return self._read_stored(name)

    def read_rows(self, name: str, first: int, last: int) -> Tensor:
        """Some rows of a matrix, in the dtype of the file. Of a safetensors file, no more than these are touched."""
        return self._read_stored_rows(name, first, last)

    def _read_stored(self, name: str) -> Tensor:
        """A tensor as the file has it, whatever a subclass makes of it."""
        place = self._location(name)
        if place.path.suffix in PICKLE_SUFFIXES:
            return _load_pickle(place.path)[place.name]
        with safe_open(place.path, framework="pt") as file:
            return file.get_tensor(place.name)

    def _read_stored_rows(self, name: str, first: int, last: int) -> Tensor:
        place = self._location(name)
        if place.path.suffix in PICKLE_SUFFIXES:
            return self._read_stored(name)[first:last]
        with safe_open(place.path, framework="pt") as file:
            found = file.get_slice(place.name)
            is_whole = (first, last) == (0, found.get_shape()[0])
            return file.get_tensor(place.name) if is_whole else found[first:last]

    def _location(self, name: str) -> TensorLocation:
        if name not in self.locations:
            raise ModelError(f"{self.source}: cannot be loaded: no file holds the tensor {name}")
        return self.locations[name]


@dataclass
class WeightLoader:
    """Brings tensors to a device in a dtype, one at a time, so that no second copy of the weights stands in memory.

    `weights` says how those that are multiplied with are held (`forward/linear.py`); all others stay floats.
    """

    files: TensorFiles
    dtype: torch.dtype | None  # None keeps what the weights were saved in
    device: torch.device
    checks_finite: bool = False  # look at every number once: a head is small, and what it broke nobody would notice
    quant_format: str = "float"
    loaded_bytes: int = field(default=0, init=False)  # brought so far

    def tensor(self, name: str, device: torch.device | None = None) -> Tensor:
        """One tensor, on the device; ModelError when no file holds it. Integers and flags keep their kind."""
        tensor = self._to_device(name, self.files.read_tensor(name), device or self.device)
        self.loaded_bytes += tensor.numel() * tensor.element_size()
        return tensor

    def optional(self, name: str) -> Tensor | None:
        """A tensor that some families lack."""
        return self.tensor(name) if name in self.files else None

    def linear(self, *names: str) -> Linear:
        """The named linear maps, on top of each other, as one product."""
        shapes = [self.files.shape(f"{name}.weight") for name in names]
        biases = [self.files.read_tensor(f"{name}.bias") for name in names if f"{name}.bias" in self.files]
        bias = self._to_device(names[0], torch.cat(biases), self.device) if biases else None

        def rows(first: int, last: int) -> Tensor:
            parts, above = list[Tensor](), 0
            for name, (height, _inputs) in zip(names, shapes, strict=True):
                begin, end = max(first - above, 0), min(last - above, height)
                if begin < end:
                    weight = f"{name}.weight"
                    parts.append(self._to_device(weight, self.files.read_rows(weight, begin, end), self.device))
                above += height
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        source = WeightSource((sum(height for height, _inputs in shapes), shapes[0][1]), rows, self.device)
        multiply = quant_linear(source, self.quant_format, bias)
        self.loaded_bytes += multiply.bytes
        return multiply

    def tied_lm_head(self, embedding: Tensor) -> Linear:
        """The product with the embedding itself, as models have it that score with what they read with.

        Rows must be looked up, so that the embedding stays as it is beside anything smaller or packed.
        """
        shape = embedding.shape[0], embedding.shape[1]
        source = WeightSource(shape, lambda first, last: embedding[first:last].to(self.device), self.device)
        multiply = quant_linear(source, self.quant_format)
        is_shared = isinstance(multiply, FloatLinear) and multiply.weight.data_ptr() == embedding.data_ptr()
        self.loaded_bytes += 0 if is_shared else multiply.bytes
        return multiply

    def _to_device(self, name: str, tensor: Tensor, device: torch.device) -> Tensor:
        if self.checks_finite and tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ModelError(f"{self.files.source}: {name} holds numbers that are none (NaN or infinite)")
        return tensor.to(device, self.dtype if tensor.is_floating_point() else None)


def _tensor_names(path: Path) -> list[str]:
    if path.suffix in PICKLE_SUFFIXES:
        return list(_load_pickle(path))
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: cannot be loaded: not whole, or no safetensors: {error}") from error


def _load_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a pickle, mapped into memory and not read; nothing in it is ever run."""
    try:
        return _load_pickle_once(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise ModelError(f"{path}: cannot be loaded: {error.strerror or 'cannot be read'}") from error


@lru_cache(maxsize=4)
def _load_pickle_once(path: Path, _modified_ns: int) -> dict[str, Tensor]:
    """What a file held when it was last written."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of pickles that torch did not write; it refuses them next
            content: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=_can_map(path))
    except pickle.UnpicklingError as error:
        raise ModelError(f"{path}: refused: this pickle holds more than tensors, and would run when read") from error
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: cannot be loaded: cut off, or no file of weights") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: refused: a {type(content).__name__}, not a table of tensors")
    strangers = [str(name) for name, value in content.items() if not isinstance(value, Tensor)]
    if strangers:
        raise ModelError(f"{path}: refused: {strangers[0]} is no tensor; give the file of weights alone")
    return content


def _can_map(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"  # a zip, what torch writes since 1.6
