"""Reads tensors from safetensors and pickles: names and shapes first, values one tensor at a time.

Pickles are read with torch's weights_only loader, which executes no code; a pickle with anything but tensors is
rejected. Knows no network architecture.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specchat.devices import kind_of
from specchat.errors import ModelError
from specchat.forward.linear.block_linear import BLOCK_TYPES, MXFP4, BlockLinear, block_linear
from specchat.forward.linear.int4_linear import Int4Linear, Int4Weight, int4_matmul
from specchat.forward.linear.linear import FloatLinear, QuantLinear, WeightSource
from specchat.forward.linear.packed_linear import StoredBlocks, packed_linear
from specchat.forward.linear.quant_linear import quant_linear, with_own_kernel
from specchat.forward.llama.embedding_rows import BlockEmbedding, EmbeddingRows, EmbeddingTable, ReadTokenRows
from specchat.weights.kept_weights import KeptWeights
from specchat.weights.load_options import EMBEDDED, cpu_format

EMBEDDING = "model.embed_tokens.weight"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth")


@dataclass(frozen=True)
class TensorLocation:
    path: Path
    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class TensorFiles:
    """The tensors of some files, by name. Values are read on request."""

    source: Path  # named in errors
    locations: Mapping[str, TensorLocation]

    @classmethod
    def from_files(cls, source: Path, paths: Iterable[Path]) -> Self:
        """All tensors of these files; ModelError for a truncated file or one with anything but tensors."""
        return cls(source, {each.name: each for path in paths for each in _tensors_in(path)})

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The same tensors under other names: {new: old}. Tensors without a new name are left out, also scales."""
        return replace(self, locations={new: self._location(old) for new, old in names.items()})

    def __contains__(self, name: str) -> bool:
        return name in self.locations

    def shape(self, name: str) -> tuple[int, ...]:
        return self._location(name).shape

    def read_tensor(self, name: str) -> Tensor:
        """Read one tensor into main memory: all its rows."""
        return self.read_rows(name, 0, self._rows(name))

    def read_rows(self, name: str, first: int, last: int) -> Tensor:
        """Read some rows of a matrix, in the dtype of the file. Only these rows of a safetensors file are read.

        They are copied: a mapped file that another program shortens ends the process with all its models. The files of
        specchat itself stay mapped.
        """
        location, is_whole = self._location(name), (first, last) == (0, self._rows(name))
        if location.path.suffix in PICKLE_SUFFIXES:
            tensor = _load_pickle(location.path)[location.name]
            return (tensor if is_whole else tensor[first:last]).clone()
        with safe_open(location.path, framework="pt") as file:
            mapped = file.get_tensor(location.name) if is_whole else file.get_slice(location.name)[first:last]
        return mapped if location.path.is_relative_to(EMBEDDED) else mapped.clone()

    def has_int4_weight(self, _name: str) -> bool:
        """Whether the files hold this weight in 4 bits."""
        return False

    def int4_weight(self, _name: str) -> Int4Weight | None:
        """A weight as the files hold it in 4 bits; None for others."""
        return None

    def stored_blocks(self, _name: str) -> StoredBlocks | None:
        """A matrix as blocks that can be multiplied as they are; None where the files hold no blocks."""
        return None

    def stacked_blocks(self, _name: str, _index: int) -> Tensor | None:
        """A matrix of a stack as blocks of MXFP4 [out, bytes]; None where the files hold none."""
        return None

    def token_rows(self, _name: str) -> ReadTokenRows | None:
        """Reads single rows of a matrix quickly; None where a lookup needs the whole matrix in memory."""
        return None

    def _rows(self, name: str) -> int:
        """The first dimension; 1 for a single number."""
        return (*self.shape(name), 1)[0]

    def _location(self, name: str) -> TensorLocation:
        if name not in self.locations:
            raise ModelError(f"{self.source}: cannot be loaded: no file holds the tensor {name}")
        return self.locations[name]


@dataclass
class WeightLoader:
    """Moves tensors to a device in a dtype, one at a time, so that memory never holds a second copy of the weights.

    Numbers that are not finite are refused: they would make every answer noise, without an error.

    `quant_format` is the format of linear layers (`forward/linear/quant_linear.py`); all other weights stay floats.
    With `multiplies_blocks`, layers that the files hold as blocks stay as they are. `kept` has layers that an earlier
    load quantized.
    """

    files: TensorFiles
    dtype: torch.dtype | None  # None keeps the stored dtype
    device: torch.device
    quant_format: str = "float"
    multiplies_blocks: bool = False
    kept: KeptWeights | None = None
    loaded_bytes: int = field(default=0, init=False)  # so far

    def on(self, device: torch.device) -> WeightLoader:
        """A loader of the same tensors for another device beside a GPU, which counts its own bytes."""
        kept = replace(self.kept, device=device) if self.kept is not None else None
        quant_format = self.quant_format if kind_of(device).is_gpu else cpu_format(self.quant_format)
        return replace(self, device=device, kept=kept, quant_format=quant_format)

    def tensor(self, name: str, device: torch.device | None = None) -> Tensor:
        """Load one tensor to the device; ModelError when no file holds it. Integers and booleans keep their dtype."""
        tensor = self._to_device(name, self.files.read_tensor(name), device or self.device)
        self.loaded_bytes += tensor.numel() * tensor.element_size()
        return tensor

    def optional(self, name: str) -> Tensor | None:
        return self.tensor(name) if name in self.files else None

    def linear(self, *names: str) -> QuantLinear:
        """Load these linear layers, stacked into one, in `quant_format`."""
        shapes = [self.files.shape(f"{name}.weight") for name in names]
        biases = [self.files.read_tensor(f"{name}.bias") for name in names if f"{name}.bias" in self.files]
        bias = self._to_device(names[0], torch.cat(biases), self.device) if biases else None
        outputs = sum(height for height, _inputs in shapes)
        if bias is not None and bias.shape != (outputs,):  # kernels trust the sizes
            raise ModelError(
                f"{self.files.source}: the biases of {names[0]} have the shape {list(bias.shape)}, not [{outputs}]"
            )
        weights = [f"{name}.weight" for name in names]
        return self._int4_linear(weights, bias) or self._packed(weights, bias) or self._quant_linear(weights, bias)

    def stacked(self, name: str, index: int, *, is_transposed: bool = False, alternates: bool = False) -> QuantLinear:
        """Load one linear layer of a stack, and of the stack `{name}_bias` if there is one, in `quant_format`.

        Its matrix is [out, in], or `is_transposed`. Where the outputs of two layers alternate, those of the first one
        come before those of the second one.
        """

        def outputs(matrix: Tensor) -> Tensor:
            return torch.cat((matrix[0::2], matrix[1::2])) if alternates else matrix

        def bias() -> Tensor | None:
            if f"{name}_bias" not in self.files:
                return None
            return self._to_device(
                name, outputs(self.files.read_rows(f"{name}_bias", index, index + 1)[0]), self.device
            )

        def make() -> QuantLinear:
            weight = self.files.read_rows(name, index, index + 1)[0]
            weight = self._to_device(name, outputs(weight.T if is_transposed else weight).contiguous(), self.device)
            return quant_linear(WeightSource.from_tensor(weight), self.quant_format, bias())

        if self.quant_format == "float" and kind_of(self.device).has_kernels:
            blocks = self.files.stacked_blocks(name, index)
            if blocks is not None and (linear := self._linear_of_blocks(outputs(blocks), bias())) is not None:
                return linear
        return self._kept_linear(f"{name}.{index}", make)

    def _linear_of_blocks(self, rows: Tensor, bias: Tensor | None) -> QuantLinear | None:
        """The layer of these blocks of MXFP4; None where the device has no kernel for them."""
        shape = rows.shape[0], rows.shape[1] // BLOCK_TYPES[MXFP4].bytes * BLOCK_TYPES[MXFP4].step
        stored = StoredBlocks(MXFP4, shape, lambda first, last: rows[first:last])
        linear = block_linear([stored], self._activation_dtype, self.device, bias)
        self.loaded_bytes += linear.bytes if linear else 0
        return linear

    def _int4_linear(self, names: Sequence[str], bias: Tensor | None) -> Int4Linear | None:
        """The layers as the files hold them; None where they are not in 4 bits, or the device cannot multiply those."""
        if self.quant_format != "float" or self.dtype is None:
            return None
        if not all(map(self.files.has_int4_weight, names)) or not (multiply := int4_matmul(self.device, self.dtype)):
            return None
        parts = [part for part in map(self.files.int4_weight, names) if part is not None]
        linear = Int4Linear(Int4Weight.stacked(parts).to(self.device), bias, multiply)
        self.loaded_bytes += linear.bytes
        return linear

    def embedding(self, device: torch.device, name: str = EMBEDDING) -> EmbeddingTable:
        """Embeddings of tokens. Those of a GGUF file stay blocks on a GPU; on a CPU a pass reads them from the file."""
        is_gpu = kind_of(device).is_gpu
        if is_gpu and isinstance(blocks := self._packed([name]), BlockLinear):
            return BlockEmbedding(blocks, self._activation_dtype)
        read_rows = None if is_gpu else self.files.token_rows(name)
        if read_rows is None:
            return self.tensor(name, device)
        tokens, width = self.files.shape(name)
        return EmbeddingRows(
            (tokens, width), self._activation_dtype, lambda missing: self._to_device(name, read_rows(missing), device)
        )

    def tied_lm_head(self, embedding: EmbeddingTable) -> QuantLinear:
        """The output matrix of a model with tied embeddings.

        The embedding stays in its dtype for lookups, so a quantized output matrix is a second copy; blocks are shared.
        """
        if isinstance(embedding, BlockEmbedding):
            return embedding.linear
        if packed := self._packed([EMBEDDING]):
            return packed
        if not isinstance(embedding, Tensor):
            return self._quant_linear([EMBEDDING], None)
        shape = embedding.shape[0], embedding.shape[1]
        source = WeightSource(shape, lambda first, last: embedding[first:last].to(self.device), self.device)
        linear = self._kept_linear("tied output", lambda: quant_linear(source, self.quant_format))
        is_shared = isinstance(linear, FloatLinear) and linear.weight.data_ptr() == embedding.data_ptr()
        self.loaded_bytes -= linear.bytes if is_shared else 0
        return linear

    def _quant_linear(self, weights: Sequence[str], bias: Tensor | None) -> QuantLinear:
        """The layer of these matrices, one above the other, in `quant_format`."""
        shapes = [self.files.shape(name) for name in weights]

        def rows(first: int, last: int) -> Tensor:
            parts, offset = list[Tensor](), 0
            for name, (height, _inputs) in zip(weights, shapes, strict=True):
                begin, end = max(first - offset, 0), min(last - offset, height)
                if begin < end:
                    parts.append(self._to_device(name, self.files.read_rows(name, begin, end), self.device))
                offset += height
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        source = WeightSource((sum(height for height, _inputs in shapes), shapes[0][1]), rows, self.device)
        return self._kept_linear(" ".join(weights), lambda: quant_linear(source, self.quant_format, bias))

    def _kept_linear(self, name: str, make: Callable[[], QuantLinear]) -> QuantLinear:
        """The layer that an earlier load has quantized, or made now."""
        linear = with_own_kernel(self.kept.linear(name, make) if self.kept is not None else make())
        self.loaded_bytes += linear.bytes
        return linear

    def _packed(self, names: Sequence[str], bias: Tensor | None = None) -> QuantLinear | None:
        """The layer as its blocks are stored; None where there are none, or no kernel for them."""
        if not self.multiplies_blocks:
            return None
        weights = [stored for name in names if (stored := self.files.stored_blocks(name)) is not None]
        if len(weights) < len(names):
            return None
        dtype, on_gpu = self._activation_dtype, kind_of(self.device).is_gpu
        pack = lambda: packed_linear(weights, dtype, bias)
        make = (lambda: block_linear(weights, dtype, self.device, bias)) if on_gpu else pack
        linear = self.kept.linear(" ".join(names), make) if self.kept is not None else make()
        self.loaded_bytes += linear.bytes if linear else 0
        return linear

    @cached_property
    def _activation_dtype(self) -> torch.dtype:
        return self.dtype or self.files.read_rows(EMBEDDING, 0, 1).dtype

    def _to_device(self, name: str, tensor: Tensor, device: torch.device) -> Tensor:
        if not tensor.is_floating_point():
            return tensor.to(device)
        moved = tensor.to(device, self.dtype)
        if not is_finite(moved):
            dtype = str(moved.dtype).removeprefix("torch.")
            fault = f"numbers that are too large for {dtype}" if is_finite(tensor) else "NaN or infinite values"
            raise ModelError(f"{self.files.source}: {name} contains {fault}")
        return moved


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite. NaN is both the smallest and the largest number of a tensor that contains it."""
    if not tensor.numel() or not tensor.is_floating_point() or tensor.element_size() == 1:  # torch compares no float8
        return True
    return bool(torch.stack(torch.aminmax(tensor)).isfinite().all())


def _tensors_in(path: Path) -> list[TensorLocation]:
    if path.suffix in PICKLE_SUFFIXES:
        return [TensorLocation(path, name, tuple(tensor.shape)) for name, tensor in _load_pickle(path).items()]
    try:
        with safe_open(path, framework="pt") as file:
            return [TensorLocation(path, name, tuple(file.get_slice(name).get_shape())) for name in file.keys()]  # noqa: SIM118 - no dict
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: cannot be loaded: truncated, or not safetensors: {error}") from error


def _load_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a pickle, memory-mapped where possible; no code in it is executed."""
    try:
        return _load_pickle_once(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise ModelError(f"{path}: cannot be loaded: {error.strerror or 'cannot be read'}") from error


@lru_cache(maxsize=4)
def _load_pickle_once(path: Path, _modified_ns: int) -> dict[str, Tensor]:
    """Load a pickle; the modification time is part of the cache key."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickles that torch did not write; it rejects them next
            content: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=_can_map(path))
    except pickle.UnpicklingError as error:
        raise ModelError(f"{path}: refused: this pickle contains more than tensors and could execute code") from error
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: cannot be loaded: truncated, or not a file of weights") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: refused: a {type(content).__name__}, not a table of tensors")
    others = [str(name) for name, value in content.items() if not isinstance(value, Tensor)]
    if others:
        raise ModelError(f"{path}: refused: {others[0]} is not a tensor; use a file that contains only weights")
    return content


def _can_map(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"  # a zip file, as torch writes since 1.6
