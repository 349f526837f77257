"""Linear layers with 8-bit and 4-bit weights, on a CPU and on a CUDA GPU.

| format | on a CPU | on a CUDA GPU |
|---|---|---|
| `float` | packed by oneDNN | cuBLAS |
| `int8` | blocks of Q8_0 (`packed_linear.py`), else as `fp8` | W8A16 (`byte_linear.py`), else as `fp8` on a CPU |
| `gguf` | the blocks of a GGUF file as they are (`packed_linear.py`) | the same by Triton (`block_linear.py`) |
| `fp8` | e4m3, dequantized in every pass | W8A16, else as on a CPU |
| `nf4` | packed by bitsandbytes with AVX512-BF16, else dequantized in every pass | as `gguf`, else bitsandbytes |
| `nf4-double` | as `nf4`: packing undoes the double quantization | as `nf4`; bitsandbytes has scales of 8 bits |

Knows tensors and what the hardware can do; knows no network and no file.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specchat.devices import GGUF_FORMAT, kind_of, missing_triton
from specchat.errors import ModelError, first_line
from specchat.forward.cuda.kernel_trial import triton_module
from specchat.forward.linear.block_linear import NF4, block_linear
from specchat.forward.linear.byte_linear import ByteLinear, ByteWeight, byte_matmul
from specchat.forward.linear.linear import TILE, QuantLinear, WeightSource, bytes_of, float_linear
from specchat.forward.linear.packed_linear import (
    GROUP,
    INT8_MAX,
    StoredBlocks,
    blocks_of_8_bits,
    multiplies_blocks,
    packed_linear,
)
from specchat.forward.native.native_ops import native_kernels

BLOCKS_OF_8_BITS = "q8_0"
NF4_BLOCK_SIZES = (64, 32)  # numbers that share a scale; the first size that divides a row is used
SCALE_BLOCK = 256  # scales of nf4-double that share one
FP8 = torch.float8_e4m3fn
FP8_MAX = 448  # the largest number of e4m3
FP8_BITS_IN_BF16 = -0x7810  # 1000 0111 1111 0000: the sign, and e4m3's other bits where a bfloat16 has its exponent
FP8_ALIGNMENT = 16  # fp8 matmuls of GPUs need shapes that are multiples of this
MIN_ABSMAX = 1e-12  # a row with a smaller maximum becomes zeros


@dataclass(frozen=True)
class DequantizedLinear(QuantLinear):
    """An 8-bit weight with a scale per output, dequantized in every pass: for hardware without an 8-bit matmul."""

    weight: Tensor  # int8 or float8_e4m3fn [out, in]
    scales: Tensor  # [out]
    bias: Tensor | None

    def __call__(self, rows: Tensor, /) -> Tensor:
        parts: Iterable[Tensor] = (self.weight,)
        if rows.is_cpu:  # chunks stay in the CPU cache; a GPU would wait for kernel launches
            parts = (chunk for _first, chunk in WeightSource.from_tensor(self.weight).row_chunks())
        outputs = [functional.linear(rows, _upcast(part, rows.dtype)) for part in parts]
        out = torch.cat(outputs, dim=1) * self.scales
        return _finished(out, self.bias, rows.dtype)


@dataclass(frozen=True)
class Nf4PackedLinear(QuantLinear):
    """A 4-bit weight in bitsandbytes' layout for AVX512-BF16. Computes in bfloat16."""

    is_batch_invariant = True  # a property of its kernel; tests compare row counts

    weight: Tensor  # uint8 [out, rounded up to whole tiles, in / 2]
    scales: Tensor  # bfloat16 [in / block, out, rounded up to whole tiles]
    code: Tensor  # [16]
    out_features: int
    bias: Tensor | None

    def __call__(self, rows: Tensor, /) -> Tensor:
        shape = (self.weight.shape[0], rows.shape[1])
        block = shape[1] // self.scales.shape[0]
        multiply = torch.ops.bitsandbytes.gemv_4bit.default  # takes any number of rows, despite its name
        out = multiply(rows.to(torch.bfloat16), self.weight, shape, self.scales, self.code, block)
        out = out[:, : self.out_features].to(rows.dtype)
        return out if self.bias is None else out + self.bias


@dataclass(frozen=True)
class Nf4Linear(QuantLinear):
    weight: Tensor  # as bitsandbytes packs it; on a CPU uint8 [out, in / 2]
    quant_state: Any  # bitsandbytes' QuantState of the whole weight
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        state = self.quant_state
        return super().bytes + bytes_of((state.absmax, state.state2.absmax if state.nested else None))

    def __call__(self, rows: Tensor, /) -> Tensor:
        return _bitsandbytes().matmul_4bit(rows, self.weight, quant_state=self.quant_state, bias=self.bias)


class Nf4DequantizedLinear(Nf4Linear):
    """A 4-bit weight on a CPU without a kernel for it: parts that fit the cache are dequantized in every pass."""

    def __call__(self, rows: Tensor, /) -> Tensor:
        library, whole = _bitsandbytes().functional, self.quant_state
        absmax = whole.absmax
        if whole.nested:
            absmax = library.dequantize_blockwise(absmax, whole.state2) + whole.offset
        outputs, inputs = whole.shape
        absmax = absmax.view(outputs, -1)
        chunks = WeightSource.from_tensor(self.weight).row_chunks()
        dequantized = (
            library.dequantize_4bit(
                packed.view(-1, 1),
                library.QuantState(
                    absmax[first : first + len(packed)].flatten(), (len(packed), inputs), whole.code, whole.blocksize,
                    "nf4", rows.dtype,
                ),
            )
            for first, packed in chunks
        )  # fmt: skip
        out = torch.cat([functional.linear(rows, part) for part in dequantized], dim=1)
        return _finished(out, self.bias, rows.dtype)


def with_own_kernel(linear: QuantLinear) -> QuantLinear:
    """4-bit weights of bitsandbytes for our kernel, where a GPU has it: theirs is slow for more than one row."""
    if type(linear) is not Nf4Linear or (state := linear.quant_state).blocksize != NF4_BLOCK_SIZES[0]:
        return linear
    (outputs, inputs), absmax = state.shape, state.absmax
    if state.nested:
        absmax = _bitsandbytes().functional.dequantize_blockwise(absmax, state.state2) + state.offset
    steps = absmax.half().view(torch.uint8).view(outputs, -1, 2)
    codes = linear.weight.view(outputs, steps.shape[1], -1)

    def read_rows(first: int, last: int) -> Tensor:
        return torch.cat((steps[first:last], codes[first:last]), dim=2).flatten(1)

    blocks = [StoredBlocks(NF4, (outputs, inputs), read_rows)]
    return block_linear(blocks, state.dtype, linear.weight.device, linear.bias) or linear


def _finished(out: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    return (out if bias is None else out + bias).to(dtype)


def absmax_scales(rows: Tensor, max_value: int) -> Tensor:
    """The divisor of each row that makes its largest number `max_value`. float32 [N]"""
    return rows.abs().amax(dim=1).float().clamp_(min=MIN_ABSMAX).div_(max_value)


def quant_linear(source: WeightSource, quant_format: str, bias: Tensor | None = None) -> QuantLinear:
    return QUANT_FORMATS[quant_format](source, bias)


def can_quantize(outputs: int, inputs: int, quant_format: str) -> bool:
    """Whether a weight of this shape becomes what its format says; others stay float."""
    if quant_format == "fp8":
        return outputs % FP8_ALIGNMENT == 0 and inputs % FP8_ALIGNMENT == 0
    return not quant_format.startswith("nf4") or _nf4_block(inputs) is not None


def _nf4_block(inputs: int) -> int | None:
    """bitsandbytes 0.50 reads the scales of rows that are not whole blocks wrongly on a CPU."""
    return next((block for block in NF4_BLOCK_SIZES if inputs % block == 0), None)


def _int8_linear(source: WeightSource, bias: Tensor | None) -> QuantLinear:
    linear = _byte_linear(source, bias, torch.int8, INT8_MAX) or _packed_linear_of_8_bits(source, bias)
    return linear or DequantizedLinear(*_quantized_rows(source, torch.int8, INT8_MAX), bias)


def _byte_linear(source: WeightSource, bias: Tensor | None, dtype: torch.dtype, max_value: int) -> QuantLinear | None:
    """What the kernel for 8-bit weights multiplies; None without it."""
    if not kind_of(source.device).has_kernels:
        return None
    multiply = byte_matmul(source.device, source.read_rows(0, 1).dtype)
    return ByteLinear(ByteWeight.pack(*_quantized_rows(source, dtype, max_value)), bias, multiply) if multiply else None


def _quantized_rows(source: WeightSource, dtype: torch.dtype, max_value: int) -> tuple[Tensor, Tensor]:
    """A weight in 8 bits, and the scale of each output.

    Tile by tile: freed large chunks would leave holes between weights in the allocator.
    """
    weight = torch.empty(source.shape, dtype=dtype, device=source.device)
    scales = torch.empty(source.shape[0], device=source.device)
    for first, rows in source.row_chunks():
        for above, tile in zip(range(first, first + len(rows), TILE), rows.split(TILE), strict=True):
            to = slice(above, above + len(tile))
            scales[to] = absmax_scales(tile, max_value)
            scaled = tile / scales[to, None]
            weight[to] = scaled.to(FP8) if dtype == FP8 else scaled.round_()
    return weight, scales


def _fp8_linear(source: WeightSource, bias: Tensor | None) -> QuantLinear:
    if not can_quantize(*source.shape, "fp8"):
        return float_linear(source.all_rows(), bias)
    linear = _byte_linear(source, bias, FP8, FP8_MAX)
    return linear or DequantizedLinear(*_quantized_rows(source, FP8, FP8_MAX), bias)


def _nf4_linear(source: WeightSource, bias: Tensor | None, double_quant: bool = False) -> QuantLinear:
    block = _nf4_block(source.shape[1])
    if block is None:
        return float_linear(source.all_rows(), bias)
    if not kind_of(source.device).is_gpu:
        if supports_nf4_packed():
            return _nf4_packed_linear(source, block, bias)
        return _nf4_dequantized_linear(source, block, bias, double_quant)
    weight, state = _bitsandbytes().functional.quantize_4bit(
        source.all_rows(), blocksize=block, quant_type="nf4", compress_statistics=double_quant
    )
    return Nf4Linear(weight, state, bias)


def _nf4_dequantized_linear(source: WeightSource, block: int, bias: Tensor | None, double_quant: bool) -> QuantLinear:
    """Quantizes chunk by chunk; the scales of nf4-double together, as bitsandbytes' `quantize_4bit`."""
    library, (outputs, inputs) = _bitsandbytes().functional, source.shape
    weight, absmax = torch.empty(outputs, inputs // 2, dtype=torch.uint8), torch.empty(outputs, inputs // block)
    code = library.get_4bit_type("nf4", device="cpu")
    for first, rows in source.row_chunks():
        packed, largest = _quantize_nf4(rows.float().view(-1, block), code)
        weight[first : first + len(rows)] = packed.view(len(rows), -1)
        absmax[first : first + len(rows)] = largest.view(len(rows), -1)
    state = library.QuantState(absmax.flatten(), source.shape, code, block, "nf4")
    if double_quant:
        state.offset, state.nested = absmax.mean(), True
        state.absmax, state.state2 = library.quantize_blockwise(state.absmax - state.offset, blocksize=SCALE_BLOCK)
    return Nf4DequantizedLinear(weight, state, bias)


def _nf4_packed_linear(source: WeightSource, block: int, bias: Tensor | None) -> QuantLinear:
    """Packs chunk by chunk, because bitsandbytes needs eight times the memory of the packed weight.

    The numbers are those of its `quantize_4bit`, which takes five times as long on a CPU.
    """
    library = _bitsandbytes().functional
    outputs, inputs = source.shape
    padded_outputs = -(-outputs // TILE) * TILE
    weight = torch.empty(padded_outputs, inputs // 2, dtype=torch.uint8)
    scales = torch.empty(inputs // block, padded_outputs, dtype=torch.bfloat16)
    code = library.get_4bit_type("nf4", device="cpu")
    for first, rows in source.row_chunks():
        tiles = functional.pad(rows, (0, 0, 0, -len(rows) % TILE)).float()
        quantized, absmax = _quantize_nf4(tiles.view(-1, block), code)
        state = library.QuantState(absmax, tiles.shape, code, block, "nf4", torch.bfloat16)
        # what bitsandbytes' Linear4bit calls
        packed, state = library._convert_weight_packed_for_cpu(quantized, state)  # noqa: SLF001
        weight[first : first + len(tiles)], scales[:, first : first + len(tiles)] = packed, state.absmax
    return Nf4PackedLinear(weight, scales, code, outputs, bias)


def _quantize_nf4(blocks: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
    """Two 4-bit codes per byte, the first in the upper half, and the absmax of each block. float32 [n, block]"""
    absmax = blocks.abs().amax(dim=1)
    scaled = blocks * absmax.clamp(min=1e-38).reciprocal()[:, None]
    nearest = torch.zeros(scaled.shape, dtype=torch.uint8)
    for bound in ((code[:-1] + code[1:]) / 2).tolist():
        nearest += scaled > bound
    pairs = nearest.view(-1, 2)
    return pairs[:, :1] << 4 | pairs[:, 1:], absmax


def _float_linear(source: WeightSource, bias: Tensor | None) -> QuantLinear:
    return float_linear(source.all_rows(), bias)


def _packed_linear_of_8_bits(source: WeightSource, bias: Tensor | None) -> QuantLinear | None:
    """Blocks of Q8_0, which the kernel for GGUF files multiplies; None where it cannot."""
    if source.device.type != "cpu" or source.shape[1] % GROUP:
        return None
    return packed_linear([blocks_of_8_bits(source)], source.read_rows(0, 1).dtype, bias)


def _linear_of_a_head(source: WeightSource, bias: Tensor | None) -> QuantLinear:
    """8 bits where a kernel multiplies them, on a CPU and on a GPU."""
    linear = _packed_linear_of_8_bits(source, bias) or _byte_linear(source, bias, torch.int8, INT8_MAX)
    return linear or _float_linear(source, bias)


QUANT_FORMATS: Mapping[str, Callable[[WeightSource, Tensor | None], QuantLinear]] = {
    "float": _float_linear,
    GGUF_FORMAT: _float_linear,  # of blocks that no kernel multiplies as they are
    "int8": _int8_linear,
    "fp8": _fp8_linear,
    "nf4": _nf4_linear,
    "nf4-double": partial(_nf4_linear, double_quant=True),
    BLOCKS_OF_8_BITS: _linear_of_a_head,
}


def hardware_warning(quant_format: str, device: torch.device) -> str:
    """What this hardware lacks for a quantization format, and what happens instead; empty when it lacks nothing."""
    kind = kind_of(device)
    if quant_format == GGUF_FORMAT:
        on_gpu = missing_triton() if kind.has_kernels else f"device {kind.name} has no kernel for them"
        missing = on_gpu if kind.is_gpu else native_kernels().missing_reason
        return f"GGUF blocks are dequantized to bf16 when they are loaded: {missing}" if missing else ""
    if kind.is_gpu:
        lacks_kernel = quant_format in ("int8", "fp8") and triton_module("triton_linear", device) is None
        missing = f"device {kind.name} has no {quant_format} matmul"
        return f"{missing}: weights are dequantized in every pass, with no speedup" if lacks_kernel else ""
    if quant_format == "fp8":
        return "CPUs have no fp8 kernel: weights are dequantized in every pass, which is slow; int8 is faster"
    if quant_format == "int8" and not multiplies_blocks():
        reason = native_kernels().missing_reason or "no native kernel multiplies them here"
        return f"int8 weights are dequantized in every pass, with no speedup: {reason}"
    if quant_format.startswith("nf4") and not supports_nf4_packed():
        return "this CPU has no AVX512-BF16: 4-bit weights are dequantized in every pass, which is slow; int8 is faster"
    return ""


def supports_nf4_packed() -> bool:
    return bool(_bitsandbytes().functional.has_avx512bf16())


@lru_cache
def _bitsandbytes() -> Any:
    """The library, imported when the first weight needs it; ModelError when that fails."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)  # warns about an optional package
    try:
        import bitsandbytes
    except Exception as error:  # a native library can raise anything when it does not load
        raise ModelError(
            f"bitsandbytes cannot be imported ({first_line(error)}); reinstall it (pip install 'bitsandbytes>=0.50'), "
            "or use --weights float"
        ) from error
    return bitsandbytes


def _upcast(quantized: Tensor, dtype: torch.dtype) -> Tensor:
    """8-bit numbers in another dtype, exactly.

    torch takes 3 ns per fp8 number on a CPU, so this shifts the bits into a bfloat16 and corrects the exponent.
    """
    if quantized.dtype != FP8 or not quantized.is_cpu:
        return quantized.to(dtype)
    bits = quantized.view(torch.int8).to(torch.int16).bitwise_left_shift_(4).bitwise_and_(FP8_BITS_IN_BF16)
    return bits.view(torch.bfloat16).mul_(2.0**120).to(dtype)
