"""The values of GGUF tensors as float32 and bf16, some rows at a time. Knows no names and no torch.

Blocks are dequantized by the package `gguf`, whose values are llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_bytes import TensorBytes
from specchat.weights.gguf.gguf_file import GgufTensor, one_line

GROUP_VALUES = 2**12  # that `gguf` dequantizes at a time, times 16: few Python calls, and they fit a CPU cache
SCALE_OFFSETS: Mapping[str, tuple[int, ...]] = {  # of the half floats in a block that kernels multiply as it is
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2),
    "Q6_K": (208,),
}  # fmt: skip
HALF_EXPONENT = 0x7C  # in the upper byte of a half float; all of it is set where it is NaN or infinite


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
    """All values of a vector of RoPE factors, which are never quantized."""
    if len(tensor.shape) != 1 or tensor.type_name not in ("F32", "F16", "BF16"):
        raise ModelError(f"{tensor.path}: {one_line(tensor.name)} is no vector of floats; download the file again")
    values = dequantized(TensorBytes(tensor).rows(0, 1), tensor.type_name)
    if not numpy.isfinite(values).all():
        raise damaged(tensor)
    return values


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
