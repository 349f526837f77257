"""The ways to multiply with a weight: as floats, in 8 bits, in 4 bits; on a CPU and on a CUDA device.

| held as | on a CPU | on a CUDA device |
|---|---|---|
| `float` | packed by oneDNN | cuBLAS |
| `int8` | rows rounded to 8 bits, each by its own scale, and sums of integers by oneDNN | bitsandbytes' LLM.int8 |
| `fp8` | e4m3, made wide again for every pass | rows in e4m3 too, each by its own scale (`torch._scaled_mm`) |
| `nf4` | packed by bitsandbytes where there is AVX512-BF16, else unpacked for every pass | bitsandbytes' `gemm_4bit` |
| `nf4-double` | as `nf4`: packing undoes the second quantisation | the scales of blocks are in 8 bits too |

Weights come as a `Source` that is read a slab of rows at a time, so that no whole float copy need stand in memory.
Knows tensors and what this CPU can do; knows no network and no file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from specchat.errors import ModelError
from specchat.forward.quantize import INT8_MAX, ZERO_POINT, absmax_scales, dequantize_rows, quantize_rows

Linear = Callable[[Tensor], Tensor]  # [N, in] -> [N, out]
ScaledMatmul = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # [N, in], [out, in], [N, 1], [1, out] -> [N, out]
ONEDNN_PACK_ROWS = 8  # the row count that packed weights are laid out for; measured good from 1 to 128
CHUNK_ELEMENTS = 2**19  # of a weight, in memory as floats at once while it is made smaller
TILE = 32  # outputs that bitsandbytes computes together on a CPU; a slab has whole tiles
NF4_BLOCK_SIZES = (64, 32)  # numbers that share a scale in 4 bits; the first that divides a row
TESTED_ROWS = 16  # how many rows `steady_from` looks at: an exact pass has no more
TESTS_PER_ROW_COUNT = 2  # at so many rows each
FP8 = torch.float8_e4m3fn
FP8_MAX = 448  # the largest number of e4m3
FP8_BITS_IN_BF16 = (
    -0x7810
)  # sign, and all of e4m3 where a bfloat16 has the lower end of its exponent: 1000 0111 1111 0000
FP8_ALIGNMENT = 16  # cards multiply whole 16 x 16 pieces of such weights
INT7_MAX = 63  # two products of 8 x 7 bits and their sum fit 16 bits, which is where older CPUs add them


class QuantLinear(Protocol):
    """A weight in the form that it is multiplied in."""

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        ...

    def __call__(self, rows: Tensor, /) -> Tensor:
        """rows @ weight.T + bias, in the dtype of the rows. [N, in] -> [N, out]"""
        ...


@dataclass(frozen=True)
class WeightSource:
    """A weight that may still lie in a file: its rows are read when they are asked for."""

    shape: tuple[int, int]  # out, in
    read_rows: Callable[
        [int, int], Tensor
    ]  # first, last -> [last - first, in], on the device, in the dtype to compute with
    device: torch.device

    @classmethod
    def from_tensor(cls, weight: Tensor) -> WeightSource:
        """A weight that is in memory."""
        return cls((weight.shape[0], weight.shape[1]), lambda first, last: weight[first:last], weight.device)

    def all_rows(self) -> Tensor:
        """All rows at once."""
        return self.read_rows(0, self.shape[0])

    def row_chunks(self) -> Iterator[tuple[int, Tensor]]:
        """The rows in pieces of whole tiles, but for the last: where each begins, and its rows."""
        height = max(CHUNK_ELEMENTS // self.shape[1] // TILE, 1) * TILE
        for first, last in pairwise([*range(0, self.shape[0], height), self.shape[0]]):
            yield first, self.read_rows(first, last)


@dataclass(frozen=True)
class FloatLinear:
    """A weight as it is."""

    weight: Tensor
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        return _bytes(self.weight, self.bias)

    def __call__(self, rows: Tensor, /) -> Tensor:
        return functional.linear(rows, self.weight, self.bias)


@dataclass(frozen=True)
class OneDnnLinear:
    """A float weight in the layout of oneDNN."""

    weight: Tensor
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        return _bytes(self.weight, self.bias)

    def __call__(self, rows: Tensor, /) -> Tensor:
        multiply = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001
        return multiply(rows, self.weight, self.bias, "none", [], "")


@dataclass(frozen=True)
class Int8Linear:
    """Bytes and a scale per output, multiplied as integers by oneDNN.

    What comes in is rounded row by row, to a scale of its own; sums of integers have no order, so a row is the same
    in every company.
    """

    weight: Tensor  # opaque
    scales: Tensor  # [out]
    zero_points: Tensor  # [out]: no output has an offset
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        return self.weight.numel() + _bytes(self.scales, self.zero_points, self.bias)

    def __call__(self, rows: Tensor, /) -> Tensor:
        small, scales = quantize_rows(rows)
        return dequantize_rows(
            _qlinear(small, self.weight, self.scales, self.zero_points), scales, self.bias, rows.dtype
        )


@dataclass(frozen=True)
class DequantizedLinear:
    """8 bits and a scale per output, made floats again for every pass: for machines that multiply no such numbers."""

    weight: Tensor  # int8 or float8_e4m3fn [out, in]
    scales: Tensor  # [out]
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        return _bytes(self.weight, self.scales, self.bias)

    def __call__(self, rows: Tensor, /) -> Tensor:
        is_cpu = rows.device.type == "cpu"  # where pieces stay in the cache; a card would wait for their launches
        pieces = (
            [part for _first, part in WeightSource.from_tensor(self.weight).row_chunks()] if is_cpu else [self.weight]
        )
        parts = [functional.linear(rows, _upcast(part, rows.dtype)) for part in pieces]
        out = torch.cat(parts, dim=1) * self.scales
        return (out if self.bias is None else out + self.bias).to(rows.dtype)


@dataclass(frozen=True)
class Fp8Linear:
    """Floats of 8 bits and a scale per output (arXiv 2209.05433), multiplied as they are.

    What comes in is made as small row by row, to a scale of its own. Sums are rounded to bfloat16.
    """

    weight: Tensor  # float8_e4m3fn [out, in]
    scales: Tensor  # [1, out]
    scaled_matmul: ScaledMatmul
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        return _bytes(self.weight, self.scales, self.bias)

    def __call__(self, rows: Tensor, /) -> Tensor:
        scales = absmax_scales(rows, FP8_MAX)[:, None]
        out = self.scaled_matmul((rows / scales).to(FP8), self.weight, scales, self.scales)
        return (out if self.bias is None else out + self.bias).to(rows.dtype)


@dataclass(frozen=True)
class LlmInt8Linear:
    """LLM.int8 (arXiv 2208.07339) without its search for outliers, which waits for the device in every layer."""

    weight: Tensor  # int8 [out, in]
    absmax: Tensor  # [out]: what TOP stands for
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        return _bytes(self.weight, self.absmax, self.bias)

    def __call__(self, rows: Tensor, /) -> Tensor:
        ops = torch.ops.bitsandbytes
        small, largest, _outliers = ops.int8_vectorwise_quant.default(rows.to(torch.float16), 0.0)
        return ops.int8_scaled_mm.default(small, self.weight, largest, self.absmax, bias=self.bias, dtype=rows.dtype)


@dataclass(frozen=True)
class Nf4PackedLinear:
    """4 bits a number in the layout that bitsandbytes has for AVX512-BF16. Computes in bfloat16."""

    weight: Tensor  # uint8 [out in whole tiles, in / 2]
    scales: Tensor  # bfloat16 [in / block, out in whole tiles]
    code: Tensor  # [16]
    out_features: int
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        return _bytes(self.weight, self.scales, self.bias)

    def __call__(self, rows: Tensor, /) -> Tensor:
        shape = (self.weight.shape[0], rows.shape[1])
        block = shape[1] // self.scales.shape[0]
        multiply = torch.ops.bitsandbytes.gemv_4bit.default  # of as many rows as there are, despite its name
        out = multiply(rows.to(torch.bfloat16), self.weight, shape, self.scales, self.code, block)
        out = out[:, : self.out_features].to(rows.dtype)
        return out if self.bias is None else out + self.bias


@dataclass(frozen=True)
class Nf4Linear:
    """4 bits a number as bitsandbytes saves them."""

    weight: Tensor
    quant_state: Any  # bitsandbytes' QuantState
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        nested = self.quant_state.state2.absmax if self.quant_state.nested else None
        return _bytes(self.weight, self.quant_state.absmax, nested, self.bias)

    def __call__(self, rows: Tensor, /) -> Tensor:
        return _bitsandbytes().matmul_4bit(rows, self.weight, quant_state=self.quant_state, bias=self.bias)


def float_linear(weight: Tensor, bias: Tensor | None = None) -> QuantLinear:
    """x -> x @ weight.T + bias, as floats. On a CPU the weight is packed, and the unpacked one can be dropped."""
    if weight.device.type == "cpu" and torch.backends.mkldnn.is_available():
        # what torch.compile calls for frozen weights; there is no public name for it
        return OneDnnLinear(torch.ops.mkldnn._reorder_linear_weight(weight, ONEDNN_PACK_ROWS), bias)  # noqa: SLF001
    return FloatLinear(weight, bias)


def quant_linear(source: WeightSource, quant_format: str, bias: Tensor | None = None) -> QuantLinear:
    """x -> x @ weight.T + bias, with the weight held as `weights` says: one of WAYS."""
    return QUANT_FORMATS[quant_format](source, bias)


def _int8_linear(source: WeightSource, bias: Tensor | None) -> QuantLinear:
    if source.device.type != "cpu":
        return _llm_int8_linear(source, bias)
    top = max_safe_int8()
    weight, scales = torch.empty(source.shape, dtype=torch.int8), torch.empty(source.shape[0])
    for first, rows in source.row_chunks():
        to = slice(first, first + len(rows))
        scales[to] = absmax_scales(rows, top or INT8_MAX)
        weight[to] = (rows / scales[to, None]).round_()
    if not top:
        return DequantizedLinear(weight, scales, bias)
    packed = torch.ops.onednn.qlinear_prepack(weight, [ONEDNN_PACK_ROWS, source.shape[1]])
    return Int8Linear(packed, scales, torch.zeros(len(scales), dtype=torch.int32), bias)


def _llm_int8_linear(source: WeightSource, bias: Tensor | None) -> QuantLinear:
    small = _bitsandbytes().functional.int8_vectorwise_quant
    weight = torch.empty(source.shape, dtype=torch.int8, device=source.device)
    largest = torch.empty(source.shape[0], device=source.device)
    for first, rows in source.row_chunks():
        to = slice(first, first + len(rows))
        weight[to], largest[to], _outliers = small(rows.to(torch.float16))
    return LlmInt8Linear(weight, largest, bias)


def _fp8_linear(source: WeightSource, bias: Tensor | None) -> QuantLinear:
    """A tile at a time, because the allocator keeps the holes that large pieces leave between weights that stay."""
    if source.shape[0] % FP8_ALIGNMENT or source.shape[1] % FP8_ALIGNMENT:
        return float_linear(source.all_rows(), bias)
    weight = torch.empty(source.shape, dtype=FP8, device=source.device)
    scales = torch.empty(source.shape[0], device=source.device)
    for first, rows in source.row_chunks():
        for above, tile in zip(range(first, first + len(rows), TILE), rows.split(TILE), strict=True):
            to = slice(above, above + len(tile))
            scales[to] = absmax_scales(tile, FP8_MAX)
            weight[to] = (tile / scales[to, None]).to(FP8)
    multiply = fp8_matmul(source.device)
    return Fp8Linear(weight, scales[None], multiply, bias) if multiply else DequantizedLinear(weight, scales, bias)


def _nf4_linear(source: WeightSource, bias: Tensor | None, double_quant: bool = False) -> QuantLinear:
    """A weight whose rows are no whole blocks stays float: on a CPU, bitsandbytes 0.50 reads its scales wrongly."""
    library = _bitsandbytes().functional
    block = next((block for block in NF4_BLOCK_SIZES if source.shape[1] % block == 0), None)
    if block is None:
        return float_linear(source.all_rows(), bias)
    if source.device.type == "cpu" and supports_nf4_packed():
        return _nf4_packed_linear(source, block, bias)
    weight, state = library.quantize_4bit(
        source.all_rows(), blocksize=block, quant_type="nf4", compress_statistics=double_quant
    )
    return Nf4Linear(weight, state, bias)


def _nf4_packed_linear(source: WeightSource, block: int, bias: Tensor | None) -> QuantLinear:
    """Slab by slab, because bitsandbytes takes eight times the room of a packed weight to pack it.

    The numbers are those of its `quantize_4bit`, which on a CPU takes five times as long to find them.
    """
    library = _bitsandbytes().functional
    outputs, inputs = source.shape
    tiled = -(-outputs // TILE) * TILE
    weight = torch.empty(tiled, inputs // 2, dtype=torch.uint8)
    scales = torch.empty(inputs // block, tiled, dtype=torch.bfloat16)
    code = library.get_4bit_type("nf4", device="cpu")
    for first, rows in source.row_chunks():
        whole = functional.pad(rows, (0, 0, 0, -len(rows) % TILE)).float()
        small, largest = _quantize_nf4(whole.view(-1, block), code)
        state = library.QuantState(largest, whole.shape, code, block, "nf4", torch.bfloat16)
        packed, state = library._convert_weight_packed_for_cpu(small, state)  # noqa: SLF001 - what its Linear4bit calls
        weight[first : first + len(whole)], scales[:, first : first + len(whole)] = packed, state.absmax
    return Nf4PackedLinear(weight, scales, code, outputs, bias)


def _quantize_nf4(blocks: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
    """Two numbers a byte, the first in the upper half, and the largest of each block. float32 [n, block]"""
    largest = blocks.abs().amax(dim=1)
    scaled = blocks * largest.clamp(min=1e-38).reciprocal()[:, None]
    nearest = torch.zeros(scaled.shape, dtype=torch.uint8)
    for bound in ((code[:-1] + code[1:]) / 2).tolist():
        nearest += scaled > bound
    pairs = nearest.view(-1, 2)
    return pairs[:, :1] << 4 | pairs[:, 1:], largest


QUANT_FORMATS: Mapping[str, Callable[[WeightSource, Tensor | None], QuantLinear]] = {
    "float": lambda source, bias: float_linear(source.all_rows(), bias),
    "int8": _int8_linear,
    "fp8": _fp8_linear,
    "nf4": _nf4_linear,
    "nf4-double": partial(_nf4_linear, double_quant=True),
}


def batch_invariant_from(linear: Linear, in_features: int, like: Tensor) -> int:
    """From how many rows on a row comes out the same, to the bit, whatever their number (up to STEADY_ROWS).

    Kernels are chosen by shapes and not by numbers. But what they sum in another order mostly rounds to the same
    bfloat16, so that every row is looked at in companies of every size. `like` gives dtype and device.
    """
    dice, steady = torch.Generator().manual_seed(0), 1
    for _ in range(TESTS_PER_ROW_COUNT):
        rows = torch.randn(TESTED_ROWS, in_features, generator=dice).to(like)
        together = linear(rows)
        for count in range(TESTED_ROWS - 1, steady - 1, -1):
            companies = [slice(first, first + count) for first in range(0, TESTED_ROWS - count + 1, count)]
            if not all(torch.equal(linear(rows[some]), together[some]) for some in companies):
                steady = count + 1
                break
    return steady


def hardware_warning(quant_format: str, device: torch.device) -> str:
    """What this machine lacks for weights that are held so, and what is done instead; empty when it lacks nothing."""
    if device.type != "cpu":
        lacks = quant_format == "fp8" and not fp8_matmul(device)
        return "this card multiplies no fp8: weights are widened for every pass, which saves no time" if lacks else ""
    if quant_format == "fp8":
        return "CPUs multiply no fp8: weights are widened for every pass, which is slow; int8 is not"
    if quant_format == "int8" and max_safe_int8() == INT7_MAX:
        return "this CPU has no VNNI: int8 weights keep 7 bits"
    if quant_format == "int8" and not max_safe_int8():
        return "oneDNN multiplies no int8 on this CPU: weights are widened for every pass, which saves no time"
    if quant_format.startswith("nf4") and not supports_nf4_packed():
        return "this CPU has no AVX512-BF16: 4-bit weights are unpacked for every pass, which is slow; int8 is not"
    return ""


@lru_cache
def max_safe_int8() -> int:
    """The largest byte that oneDNN multiplies on this CPU without overflow: 127, 63, or 0 where it multiplies none.

    CPUs without VNNI add two products in 16 bits and cut off what does not fit, without a word: so it is tried.
    """
    inputs = 64
    for top in (INT8_MAX, INT7_MAX):
        try:
            packed = torch.ops.onednn.qlinear_prepack(torch.full((TILE, inputs), top, dtype=torch.int8), [1, inputs])
            rows, ones = torch.full((1, inputs), 2 * ZERO_POINT - 1, dtype=torch.uint8), torch.ones(TILE)
            zeros = torch.zeros(TILE, dtype=torch.int32)
            out = _qlinear(rows, packed, ones, zeros)
        except (RuntimeError, AttributeError, NotImplementedError):
            return 0
        if bool((out == inputs * INT8_MAX * top).all()):
            return top
    return 0


def fp8_matmul(device: torch.device) -> ScaledMatmul | None:
    """How this device multiplies floats of 8 bits, or None. On a CPU oneDNN has no more than a reference loop."""
    return None if device.type == "cpu" else probe_fp8_matmul(device)


@lru_cache
def probe_fp8_matmul(device: torch.device) -> ScaledMatmul | None:
    """The first way that gives known sums: what a card can do hangs on torch and its libraries, too."""
    weight = torch.ones(2 * TILE, TILE, device=device).to(FP8)
    rows, scales = (torch.arange(1, count + 1.0, device=device) for count in (3, len(weight)))
    for multiply in (_rowwise_scaled_matmul, _tensorwise_scaled_matmul):
        try:
            out = multiply(weight[:3], weight, rows[:, None], scales[None])
        except (RuntimeError, ValueError, AttributeError, TypeError):
            continue
        if torch.equal(out.bfloat16(), (rows[:, None] * scales * TILE).bfloat16()):
            return multiply
    return None


def _rowwise_scaled_matmul(rows: Tensor, weight: Tensor, row_scales: Tensor, output_scales: Tensor) -> Tensor:
    return _scaled_matmul(rows, weight, row_scales, output_scales)


def _tensorwise_scaled_matmul(rows: Tensor, weight: Tensor, row_scales: Tensor, output_scales: Tensor) -> Tensor:
    """For cards that know one scale for a whole matrix and no more (compute capability 8.9 under some torch)."""
    one = row_scales.new_ones(())
    return _scaled_matmul(rows, weight, one, one) * row_scales * output_scales


def _scaled_matmul(rows: Tensor, weight: Tensor, row_scales: Tensor, output_scales: Tensor) -> Tensor:
    multiply = torch.ops.aten._scaled_mm.default  # noqa: SLF001 - torch before 2.10 has no public name for it
    return multiply(rows, weight.t(), scale_a=row_scales, scale_b=output_scales, out_dtype=torch.bfloat16)


def supports_nf4_packed() -> bool:
    """Whether bitsandbytes multiplies packed 4-bit weights on this CPU."""
    return bool(_bitsandbytes().functional.has_avx512bf16())


@lru_cache
def _bitsandbytes() -> Any:
    """The library, imported when the first weight needs it; ModelError says what to do without it."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)  # it misses a package that nobody needs
    try:
        import bitsandbytes
    except Exception as error:  # whatever a native library does when it cannot be loaded
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"bitsandbytes cannot be used ({reason}); install it anew (pip install 'bitsandbytes>=0.50'), "
            "or use --weights float"
        ) from error
    return bitsandbytes


def _qlinear(rows: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """Sums of integers by oneDNN, as floats by the scales of the outputs. Rows are bytes around ZERO."""
    multiply = torch.ops.onednn.qlinear_pointwise.default
    return multiply(rows, 1.0, ZERO_POINT, weight, scales, zeros, None, 1.0, 0, torch.float32, "none", [], "")


def _upcast(quantized: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers of 8 bits in another dtype, exactly.

    torch takes 3 ns for a float of 8 bits on a CPU. Its bits are those of a bfloat16 with another offset of exponents.
    """
    if quantized.dtype != FP8 or quantized.device.type != "cpu":
        return quantized.to(dtype)
    bits = quantized.view(torch.int8).to(torch.int16).bitwise_left_shift_(4).bitwise_and_(FP8_BITS_IN_BF16)
    return bits.view(torch.bfloat16).mul_(2.0**120).to(dtype)


def _bytes(*tensors: Tensor | None) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)
