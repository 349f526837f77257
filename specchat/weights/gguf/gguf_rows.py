"""The rows of a GGUF tensor: as they are in the file, as float32, and as published, as blocks or in bf16.

Blocks are dequantized by the package `gguf`, whose values are llama.cpp's, and llama.cpp's changes are undone
(`gguf_manifest.WeightChange`). Memory holds a few megabytes of a tensor at a time. The file is not mapped: a mapped
file that another program shortens ends the process that reads it. Imports no torch.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from threading import Lock

import numpy

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_file import GgufTensor, one_line
from specchat.weights.gguf.gguf_manifest import HeadOrder, MappedTensor, WeightChange

CHUNK_VALUES = 2**19  # that are in memory as float32 at a time
GROUP_VALUES = 2**12  # that `gguf` dequantizes at a time, times 16: few Python calls, and they fit a CPU cache
SCALE_OFFSETS: Mapping[str, tuple[int, ...]] = {  # of the half floats in a block that kernels multiply as it is
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2),
    "Q6_K": (208,),
}  # fmt: skip
HALF_EXPONENT = 0x7C  # in the upper byte of a half float; all of it is set where it is NaN or infinite


class TensorBytes:
    """The rows of a tensor, in a file that stays open. Thread-safe."""

    def __init__(self, tensor: GgufTensor) -> None:
        self._tensor, self._lock = tensor, Lock()
        try:
            self._file = tensor.path.open("rb", buffering=0)
        except OSError as error:
            raise ModelError(f"{tensor.path}: cannot be read: {error.strerror or error}") from error
        weakref.finalize(self, self._file.close)
        self._status = self._file_status()

    def rows(self, first: int, last: int) -> numpy.ndarray:
        """Rows that follow each other. uint8 [rows, bytes of a row]; ModelError when the file has changed."""
        blocks = numpy.empty((last - first, self._tensor.row_bytes), numpy.uint8)
        with self._lock:
            self._read_into(blocks.reshape(-1).data, first)
            self._check_status()
        return blocks

    def single_rows(self, rows: Sequence[int]) -> numpy.ndarray:
        """Rows from anywhere. uint8 [rows, bytes of a row]; ModelError when the file has changed."""
        blocks = numpy.empty((len(rows), self._tensor.row_bytes), numpy.uint8)
        with self._lock:
            for place, row in zip(blocks, rows, strict=True):
                self._read_into(place.data, row)
            self._check_status()
        return blocks

    def _read_into(self, place: memoryview, row: int) -> None:
        self._file.seek(self._tensor.offset + row * self._tensor.row_bytes)
        while len(place):
            count = self._file.readinto(place)
            if not count:
                raise self._changed()
            place = place[count:]

    def _check_status(self) -> None:
        if self._file_status() != self._status:
            raise self._changed()

    def _changed(self) -> ModelError:
        return ModelError(
            f"{self._tensor.path}: has changed since it was opened; is it still being downloaded? Load the model again"
        )

    def _file_status(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class PublishedRows:
    """The rows of a matrix; a vector is one row."""

    tensor: MappedTensor
    stored: TensorBytes
    order: numpy.ndarray | None  # the stored row of each published row, if it is another one

    @classmethod
    def of(cls, tensor: MappedTensor) -> PublishedRows:
        return cls(tensor, TensorBytes(tensor.source), stored_rows(tensor) if len(tensor.source.shape) > 1 else None)

    def blocks(self, first: int, last: int) -> numpy.ndarray:
        """The blocks of some rows. uint8 [rows, bytes of a row]

        ModelError for scales that are not finite: they would make every answer noise.
        """
        rows = self._rows(first, last)
        if not has_finite_scales(rows, self.tensor.source.type_name):
            raise damaged(self.tensor.source)
        return rows

    def bf16(self, first: int, last: int) -> numpy.ndarray:
        """Some rows as 16-bit numbers, rounded to bf16. uint16 [rows, columns]"""
        numbers, done = numpy.empty((last - first, self.tensor.source.shape[-1]), numpy.uint16), 0
        for chunk in self.bf16_chunks(first, last):
            numbers[done : done + len(chunk)] = chunk
            done += len(chunk)
        return numbers

    def bf16_chunks(self, first: int, last: int) -> Iterator[numpy.ndarray]:
        """The same, a few rows after the other."""
        step = max(1, CHUNK_VALUES // self.tensor.source.shape[-1])
        for begin in range(first, last, step):
            yield published_bf16(self.tensor, self._rows(begin, min(begin + step, last)))

    def _rows(self, first: int, last: int) -> numpy.ndarray:
        if self.order is None:
            return self.stored.rows(first, last)
        places = self.order[first:last]
        if self.tensor.head_order is not None:  # of heads from all parts of the tensor
            runs = numpy.split(places, numpy.flatnonzero(numpy.diff(places) != 1) + 1)
            return numpy.concatenate([self.stored.rows(run[0], run[-1] + 1) for run in runs])
        lowest = places.min()  # of one head, or of a few that follow each other
        return self.stored.rows(lowest, places.max() + 1)[places - lowest]


def published_bf16(tensor: MappedTensor, blocks: numpy.ndarray) -> numpy.ndarray:
    """Rows of a tensor from their blocks, rounded to bf16. uint16 [rows, columns]"""
    values = dequantized(blocks, tensor.source.type_name)
    if tensor.change is WeightChange.PLUS_ONE:
        values = values - numpy.float32(1)
    elif tensor.change is WeightChange.MINUS_EXP:
        with numpy.errstate(all="ignore"):
            values = numpy.log(-values)
    if not numpy.isfinite(values).all():
        raise damaged(tensor.source)
    if len(tensor.source.shape) == 1 and (order := stored_rows(tensor)) is not None:  # a bias
        values = values[order]
    values = values.reshape(len(blocks), -1)
    if tensor.head_order is not None and tensor.head_order.is_of_columns:
        values = values[:, stored_heads(tensor.head_order)]
    return bf16_bits(numpy.ascontiguousarray(values))


def stored_rows(tensor: MappedTensor) -> numpy.ndarray | None:
    """The stored place of each published row, or number of a vector; None where it is its own."""
    count, order = tensor.source.shape[0], tensor.head_order
    if tensor.change is WeightChange.PAIRED_ROWS:
        return halves_of_pairs(count, tensor.heads)
    if order is None or order.is_of_columns:
        return None
    return stored_heads(order)[order.skipped : order.skipped + count]


def stored_heads(order: HeadOrder) -> numpy.ndarray:
    """The stored place of all that has this order: two groups of two heads of one row are stored as 0 2 1 3."""
    heads = numpy.arange(order.count).reshape(order.outer, order.inner, order.size)
    return numpy.concatenate((numpy.arange(order.first), heads.transpose(1, 0, 2).reshape(-1) + order.first))


def halves_of_pairs(rows: int, heads: int) -> numpy.ndarray:
    """The stored row of each published row: two heads of 4 rows are stored as 0 2 1 3, 4 6 5 7."""
    return numpy.arange(rows).reshape(heads, -1, 2).transpose(0, 2, 1).reshape(-1)


def row_count(tensor: MappedTensor) -> int:
    return prod(tensor.source.shape[:-1])


def check_dequantizable(tensor: GgufTensor) -> None:
    """ModelError for blocks that `gguf` cannot dequantize."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType[tensor.type_name]
    try:
        dequantize(numpy.zeros((1, GGML_QUANT_SIZES[kind][1]), numpy.uint8), kind)
    except NotImplementedError as error:
        raise ModelError(
            f"{tensor.path}: {tensor.name} is quantized as {tensor.type_name}, which cannot be read here; "
            "choose another quantization of the model, for example Q4_K_M or Q8_0"
        ) from error


def read_float32(tensor: GgufTensor) -> numpy.ndarray:
    """All values of a vector that is never quantized, as of RoPE factors."""
    if len(tensor.shape) != 1 or tensor.type_name not in ("F32", "F16", "BF16"):
        raise ModelError(f"{tensor.path}: {one_line(tensor.name)} is no vector of floats; download the file again")
    values = dequantized(TensorBytes(tensor).rows(0, 1), tensor.type_name)
    if not numpy.isfinite(values).all():
        raise damaged(tensor)
    return values


def token_distances(tensor: GgufTensor) -> numpy.ndarray:
    """A table of ids of the target, by token of a head, as published: how far each is from the token. int64 [Vd]"""
    if len(tensor.shape) != 1 or tensor.type_name not in ("I32", "I64"):
        raise ModelError(f"{tensor.path}: {one_line(tensor.name)} is no table of tokens; download the file again")
    ids = TensorBytes(tensor).rows(0, 1).reshape(-1).view("<i4" if tensor.type_name == "I32" else "<i8")
    return ids.astype(numpy.int64) - numpy.arange(len(ids))


def damaged(tensor: GgufTensor) -> ModelError:
    return ModelError(f"{tensor.path}: damaged: {tensor.name} contains NaN or infinite values; download it again")


def has_finite_scales(blocks: numpy.ndarray, type_name: str) -> bool:
    """Whether the half floats of blocks are finite; True for types whose values are checked where they are read."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    offsets = SCALE_OFFSETS.get(type_name, ())
    if not offsets:
        return True
    flat = blocks.reshape(-1, GGML_QUANT_SIZES[GGMLQuantizationType[type_name]][1])
    return not any((flat[:, offset + 1] & HALF_EXPONENT == HALF_EXPONENT).any() for offset in offsets)


def dequantized(blocks: numpy.ndarray, type_name: str) -> numpy.ndarray:
    """The values of whole blocks, flat. A block stands for itself, so rows of any length give the same values."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType[type_name]
    flat = numpy.ascontiguousarray(blocks).reshape(-1)
    if type_name == "F32":
        return flat.view("<f4")
    block_values, block_bytes = GGML_QUANT_SIZES[kind]
    group = max(1, GROUP_VALUES // block_values) * block_bytes
    whole = flat.size // group * group
    parts = [flat[:whole].reshape(-1, group), flat[whole:].reshape(1, -1)]
    with numpy.errstate(all="ignore"):  # the caller looks for infinite values
        parts = [dequantize(part, kind).reshape(-1) for part in parts if part.size]
    return parts[0] if len(parts) == 1 else numpy.concatenate(parts)


def bf16_bits(values: numpy.ndarray) -> numpy.ndarray:
    """Finite float32 values rounded to the nearest bf16, ties to even, as 16-bit numbers: what torch computes."""
    bits = values.view(numpy.uint32)
    return ((bits + (((bits >> 16) & 1) + numpy.uint32(0x7FFF))) >> 16).astype(numpy.uint16)
