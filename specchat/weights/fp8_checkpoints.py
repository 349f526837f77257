"""Reads published FP8 checkpoints: weights in 8 bits with scales, dequantized to floats.

The weight is `x.weight` (float8_e4m3fn) times its scales. The shape of the scales tells the layout:

| scales | shape | published by |
|---|---|---|
| one per matrix | `[]` or `[1]` | compressed-tensors, strategy "tensor" |
| one per output | `[out, 1]` | compressed-tensors, strategy "channel"; Meta's fbgemm_fp8 |
| one per block; the last row and column of blocks may be smaller | `[out / 128, in / 128]` | DeepSeek-V3, Qwen3-FP8 |

Scales are named `x.weight_scale_inv` or `x.weight_scale`; both are multiplied. Scales of activations are ignored, as
activations are quantized dynamically. This module knows files, and no network.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from specchat.errors import ModelError
from specchat.weights.tensor_files import TensorFiles

SCALE_INV_SUFFIX = "_scale_inv"
SCALE_SUFFIXES = (SCALE_INV_SUFFIX, "_scale")  # appended to the name of a weight
FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
DEFAULT_BLOCK_SHAPE = (128, 128)
DEQUANT_CHUNK_ROWS = 32  # rows that are in memory as float32 at once
STRATEGIES = ("tensor", "channel", "block")  # of compressed-tensors: those with a layout above


@dataclass(frozen=True)
class Fp8TensorFiles(TensorFiles):
    block_shape: tuple[int, int] = DEFAULT_BLOCK_SHAPE  # rows and columns that share a scale, in the block layout
    dtype: torch.dtype = torch.float32  # of the dequantized weights

    @property
    def has_scaled_weights(self) -> bool:
        return any(self._scales_name(name) for name in self.locations)

    def read_rows(self, name: str, first: int, last: int) -> Tensor:
        """Read some rows of a matrix; FP8 weights are dequantized. No other rows are read."""
        return self._dequantize(name, super().read_rows(name, first, last), first)

    def _scales_name(self, name: str) -> str | None:
        return next((f"{name}{suffix}" for suffix in SCALE_SUFFIXES if f"{name}{suffix}" in self), None)

    def _dequantize(self, name: str, stored: Tensor, first: int) -> Tensor:
        """Dequantize rows from `first` on. Wider floats are returned as they are, also when scales exist.

        ModelError for 8-bit weights without scales: unscaled, they would be wrong by orders of magnitude.
        """
        scales_name = self._scales_name(name)
        if stored.dtype.itemsize > 1 or (scales_name is None and not stored.is_floating_point()):
            return stored
        kind = str(stored.dtype).removeprefix("torch.")
        if scales_name is None:
            raise ModelError(f"{self.source}: {name} is in {kind}, and no file holds its scales")
        if stored.dtype not in FP8_DTYPES:
            raise ModelError(f"{self.source}: {name} is in {kind}, which scales alone cannot dequantize")
        weight = torch.empty(stored.shape, dtype=self.dtype)
        all_scales = super().read_rows(scales_name, 0, self._rows(scales_name))
        for begin, end, scales in self._scale_bands(name, first, first + len(stored), all_scales):
            rows = slice(begin - first, end - first)
            weight[rows] = stored[rows].float().mul_(scales)
        return weight

    def _scale_bands(self, name: str, first: int, last: int, scales: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Yield (first row, end row, scales) of bands of rows; scales are one number, or one per row or column."""
        if not scales.is_floating_point():
            raise ModelError(f"{self.source}: the scales of {name} are in {str(scales.dtype).removeprefix('torch.')}")
        height, width = self.shape(name)
        scales, (rows, columns) = scales.float(), self.block_shape
        is_one = scales.dim() < 2 and scales.numel() == 1
        if is_one or scales.shape == (height, 1):
            for begin, end in pairwise([*range(first, last, DEQUANT_CHUNK_ROWS), last]):
                yield begin, end, scales if is_one else scales[begin:end]
            return
        expected = (-(-height // rows), -(-width // columns))
        if scales.shape != expected:
            blocks = f"{[height, width]} in blocks of {rows} x {columns} has {list(expected)} scales"
            raise ModelError(f"{self.source}: {name} {blocks}, and the file holds {list(scales.shape)}")
        for above in range(first - first % rows, last, rows):
            yield max(above, first), min(above + rows, last), scales[above // rows].repeat_interleave(columns)[:width]


def is_supported_fp8(quantization_config: object) -> bool:
    """Whether this `quantization_config` describes FP8 weights with scales that this module can read.

    Sparse and rotated weights need more than scales. A quantized KV cache is not supported.
    """
    if not isinstance(quantization_config, Mapping):
        return False
    config = cast("Mapping[str, Any]", quantization_config)
    try:
        sparse = (config.get("sparsity_config") or {}).get("format", "dense") != "dense"
        scaled = all(_is_scaled_fp8(weights) for weights in _weight_schemes(config))
    except (AttributeError, TypeError):  # values that should be tables
        return False
    if sparse or config.get("kv_cache_scheme") or config.get("transform_config"):
        return False
    if config.get("quant_method") != "compressed-tensors":
        return config.get("quant_method") in ("fp8", "fbgemm_fp8")
    return config.get("format") == "float-quantized" and scaled


def block_shape_from_config(quantization_config: Mapping[str, Any]) -> tuple[int, int]:
    """The rows and columns that share a scale in a `quantization_config`. ValueError for impossible blocks."""
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
    """The "weights" tables of compressed-tensors, one per group of modules."""
    return [group.get("weights") or {} for group in (quantization_config.get("config_groups") or {}).values()]


def _is_scaled_fp8(weights: Mapping[str, Any]) -> bool:
    kind = (weights.get("type"), weights.get("num_bits"), weights.get("symmetric", True))
    return kind == ("float", 8, True) and weights.get("strategy") in STRATEGIES
