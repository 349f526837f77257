"""The values of GGUF tensors as float32 and bf16, some rows at a time. Knows no names and no torch.

Blocks are dequantized by the package `gguf`, whose values are llama.cpp's. Rows are read from a memory-mapped file, so
memory holds a few megabytes of a tensor at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy

from specchat.errors import ModelError
from specchat.models.gguf_file import GgufTensor, one_line

CHUNK_VALUES = 2**19  # that are in memory as float32 at a time
GROUP_VALUES = 2**12  # that `gguf` dequantizes at a time, times 16: few Python calls, and they fit a CPU cache


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
    """All values of a bias or of RoPE factors, which are never quantized."""
    if len(tensor.shape) != 1 or tensor.type_name not in ("F32", "F16", "BF16"):
        raise ModelError(f"{tensor.path}: {one_line(tensor.name)} is no vector of floats; download the file again")
    return numpy.concatenate(list(float32_chunks(tensor))).reshape(tensor.shape)


def float32_chunks(tensor: GgufTensor, row_order: numpy.ndarray | None = None) -> Iterator[numpy.ndarray]:
    """The values of some rows after the other, flat. `row_order` are the numbers of the rows, if not as stored."""
    rows, columns = prod(tensor.shape[:-1]), tensor.shape[-1]
    stored = mapped_rows(tensor)
    step = max(1, CHUNK_VALUES // columns)
    for first in range(0, rows, step):
        chunk = stored[first : first + step] if row_order is None else stored[row_order[first : first + step]]
        values = dequantized(chunk, tensor.type_name)
        if not numpy.isfinite(values).all():
            raise ModelError(
                f"{tensor.path}: damaged: {tensor.name} contains NaN or infinite values; download it again"
            )
        yield values


def mapped_rows(tensor: GgufTensor) -> numpy.ndarray:
    """The blocks as they are stored, mapped from the file. uint8 [rows, bytes of a row]"""
    shape = prod(tensor.shape[:-1]), tensor.row_bytes
    try:
        return numpy.memmap(tensor.path, numpy.uint8, "r", tensor.offset, shape)
    except ValueError as error:
        raise ModelError(f"{tensor.path}: became shorter while it was read; is it still being downloaded?") from error


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
