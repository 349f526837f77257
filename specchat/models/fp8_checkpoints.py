"""Weights in eight bits with scales beside them, as they are published: read as the numbers that they stand for.

`x.weight` (float8_e4m3fn) times its scales is the weight. They lie beside it in one of three layouts, told apart by
their shape:

| scales | shape | published so |
|---|---|---|
| one for the matrix | `[]` or `[1]` | compressed-tensors, strategy "tensor" |
| one for every output | `[out, 1]` | compressed-tensors, strategy "channel"; Meta's fbgemm_fp8 |
| one for every block, the last row and column of blocks cut off | `[out / 128, in / 128]` | DeepSeek-V3, Qwen3-FP8 |

They are named `x.weight_scale_inv` or `x.weight_scale`, and are multiplied with whatever "inv" says. Scales of inputs
are another matter and are not read: rows are measured when they come. Knows files; a head that is loaded from here is
full-sized.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self, cast

import torch
from torch import Tensor

from specchat.errors import ModelError
from specchat.models.tensor_files import TensorFiles

SCALE_INV_SUFFIX = "_scale_inv"
SCALE_SUFFIXES = (SCALE_INV_SUFFIX, "_scale")  # what is appended to the name of a weight
FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
DEFAULT_BLOCK_SHAPE = (128, 128)
DEQUANT_CHUNK_ROWS = 32  # rows that stand in memory as float32 at once
STRATEGIES = ("tensor", "channel", "block")  # of compressed-tensors, that have one of the layouts above


@dataclass(frozen=True)
class Fp8TensorFiles(TensorFiles):
    """Tensors of which some have scales beside them."""

    block_shape: tuple[int, int] = DEFAULT_BLOCK_SHAPE  # rows and columns that share a scale, where blocks do
    dtype: torch.dtype = torch.float32  # what they are made, if they were in eight bits

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The same tensors under other names: {new: old}. Scales go where they are named to."""
        return replace(self, places=super().renamed(names).locations)

    @property
    def has_scaled_weights(self) -> bool:
        """Whether any weight has scales beside it."""
        return any(self._scales_name(name) for name in self.locations)

    def read_tensor(self, name: str) -> Tensor:
        """One tensor in main memory: multiplied with its scales if it is in eight bits, else as the file has it."""
        return self._dequantize(name, self._read_stored(name), 0)

    def read_rows(self, name: str, first: int, last: int) -> Tensor:
        """Some rows of a matrix, made whole in the same way. No other rows are read."""
        return self._dequantize(name, self._read_stored_rows(name, first, last), first)

    def _scales_name(self, name: str) -> str | None:
        return next((f"{name}{ending}" for ending in SCALE_SUFFIXES if f"{name}{ending}" in self), None)

    def _dequantize(self, name: str, stored: Tensor, first: int) -> Tensor:
        """Rows from `first` on as what they mean. Scales beside wider floats are those that they were rounded by once.

        A byte that nothing says the meaning of is refused: unscaled, it would be wrong by orders and look right.
        """
        scales_of = self._scales_name(name)
        if stored.dtype.itemsize > 1 or (scales_of is None and not stored.is_floating_point()):
            return stored
        kind = str(stored.dtype).removeprefix("torch.")
        if scales_of is None:
            raise ModelError(f"{self.source}: {name} is in {kind}, and no file holds its scales")
        if stored.dtype not in FP8_DTYPES:
            raise ModelError(f"{self.source}: {name} is in {kind}, which scales alone do not make whole")
        whole = torch.empty(stored.shape, dtype=self.dtype)
        for begin, end, scales in self._scale_bands(name, first, first + len(stored), self._read_stored(scales_of)):
            here = slice(begin - first, end - first)
            whole[here] = stored[here].float().mul_(scales)
        return whole

    def _scale_bands(self, name: str, first: int, last: int, scales: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Where each few rows begin and end, and what they are multiplied with: a number, or one per row or column."""
        if not scales.is_floating_point():
            raise ModelError(f"{self.source}: the scales of {name} are in {str(scales.dtype).removeprefix('torch.')}")
        height, width = self.shape(name)
        scales, (rows, columns) = scales.float(), self.block_shape
        is_one = scales.dim() < 2 and scales.numel() == 1
        if is_one or scales.shape == (height, 1):
            for begin, end in pairwise([*range(first, last, DEQUANT_CHUNK_ROWS), last]):
                yield begin, end, scales if is_one else scales[begin:end]
            return
        wanted = (-(-height // rows), -(-width // columns))
        if scales.shape != wanted:
            blocks = f"{[height, width]} in blocks of {rows} x {columns} has {list(wanted)} scales"
            raise ModelError(f"{self.source}: {name} {blocks}, and the file holds {list(scales.shape)}")
        for above in range(first - first % rows, last, rows):
            yield max(above, first), min(above + rows, last), scales[above // rows].repeat_interleave(columns)[:width]


def is_supported_fp8(quantization_config: object) -> bool:
    """Whether weights that `quantization_config` says this of are floats of eight bits with scales that are read here.

    Sparse and rotated weights need more than scales; what is meant for keys and values in few bits we would not follow.
    """
    if not isinstance(quantization_config, Mapping):
        return False
    told = cast("Mapping[str, Any]", quantization_config)
    try:
        sparse = (told.get("sparsity_config") or {}).get("format", "dense") != "dense"
        scaled = all(_is_scaled_fp8(weights) for weights in _weight_schemes(told))
    except (AttributeError, TypeError):  # tables that are none
        return False
    if sparse or told.get("kv_cache_scheme") or told.get("transform_config"):
        return False
    if told.get("quant_method") != "compressed-tensors":
        return told.get("quant_method") in ("fp8", "fbgemm_fp8")
    return told.get("format") == "float-quantized" and scaled


def block_shape_from_config(quantization_config: Mapping[str, Any]) -> tuple[int, int]:
    """The rows and columns that share a scale, by a `quantization_config`. ValueError for what cannot be."""
    structures = (weights.get("block_structure") for weights in _weight_schemes(quantization_config))
    block = quantization_config.get("weight_block_size") or next(filter(None, structures), DEFAULT_BLOCK_SHAPE)
    try:
        rows, columns = (int(size) for size in block)
    except TypeError as error:
        raise ValueError(f"scales for blocks of {block}") from error
    if min(rows, columns) < 1:
        raise ValueError(f"scales for blocks of {rows} x {columns} numbers")
    return rows, columns


def _weight_schemes(quantization_config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What compressed-tensors says of the weights of each group of modules."""
    return [group.get("weights") or {} for group in (quantization_config.get("config_groups") or {}).values()]


def _is_scaled_fp8(weights: Mapping[str, Any]) -> bool:
    kind = (weights.get("type"), weights.get("num_bits"), weights.get("symmetric", True))
    return kind == ("float", 8, True) and weights.get("strategy") in STRATEGIES
