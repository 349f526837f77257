"""Dynamic quantization of activations to 8 bits, one scale per row, and dequantization of integer matmul results.

A native kernel does each, where there are native kernels: torch needs a dozen operations for both, which takes longer
than the matmul itself when the weight is small. The bytes are identical; with a bias, the native result is rounded once
less. Knows no weight.
"""

from functools import lru_cache

import torch
from torch import Tensor

from specchat.forward.native_ops import Kernel, check_border, data_pointer, native_kernels

INT8_MAX = 127  # the largest magnitude of a quantized row
ZERO_POINT = 128  # the unsigned byte that stands for 0
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.01}  # of dequantization with one rounding less
MIN_ABSMAX = 1e-12  # a row with a smaller maximum becomes zeros


def quantize_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes around ZERO_POINT, and the scale of each row. [N, D] -> uint8 [N, D], float32 [N]"""
    kernels = _quantize_kernels(rows.dtype)
    return _quantize_rows_torch(rows) if kernels is None else _quantize_rows_native(kernels[0], rows.contiguous())


def dequantize_rows(sums: Tensor, scales: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Integer matmul results, scaled row by row, plus the bias. May change `sums`. float32 [N, D], [N] -> [N, D]"""
    kernels = _quantize_kernels(dtype)
    if kernels is None:
        return _dequantize_rows_torch(sums, scales, bias, dtype)
    return _dequantize_rows_native(kernels[1], sums, scales, bias, dtype)


def absmax_scales(rows: Tensor, max_value: int) -> Tensor:
    """The divisor of each row that makes its largest number `max_value`. float32 [N]"""
    return rows.abs().amax(dim=1).float().clamp_(min=MIN_ABSMAX).div_(max_value)


def _quantize_rows_native(quantize: Kernel, rows: Tensor) -> tuple[Tensor, Tensor]:
    quantized, scales = torch.empty(rows.shape, dtype=torch.uint8), torch.empty(len(rows))
    quantize(rows.data_ptr(), quantized.data_ptr(), scales.data_ptr(), *rows.shape, INT8_MAX, ZERO_POINT)
    return quantized, scales


def _quantize_rows_torch(rows: Tensor) -> tuple[Tensor, Tensor]:
    scales = absmax_scales(rows, INT8_MAX)
    return (rows / scales[:, None]).round_().add_(ZERO_POINT).to(torch.uint8), scales


def _dequantize_rows_native(
    dequantize: Kernel, sums: Tensor, scales: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    check_border("dequantize", sums, (scales, sums.shape[:1]))
    if bias is not None:
        check_border("dequantize", bias, (bias, sums.shape[1:]))
    out = torch.empty(sums.shape, dtype=dtype)
    dequantize(sums.data_ptr(), scales.data_ptr(), data_pointer(bias), out.data_ptr(), *sums.shape)
    return out


def _dequantize_rows_torch(sums: Tensor, scales: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    sums.mul_(scales[:, None])
    return (sums if bias is None else sums.add_(bias)).to(dtype)


@lru_cache
def _quantize_kernels(dtype: torch.dtype) -> tuple[Kernel, Kernel] | None:
    """The native kernels for this dtype; None when there are none, or when a test gives other results than torch."""
    quantize, dequantize = (native_kernels().kernel(name, dtype) for name in ("quantize", "dequantize"))
    if quantize is None or dequantize is None:
        return None
    rows, bias = (torch.arange(count).float().sin_().mul_(9).to(dtype) for count in (3 * 77, 77))
    rows, sums, tolerance = rows.view(3, 77), torch.arange(3 * 77.0).view(3, 77), TOLERANCE[dtype]
    (ours, scales), (theirs, torch_scales) = _quantize_rows_native(quantize, rows), _quantize_rows_torch(rows)
    if not torch.equal(ours, theirs) or not torch.equal(scales, torch_scales):
        return None
    restored = _dequantize_rows_native(dequantize, sums, scales, bias, dtype)
    expected = _dequantize_rows_torch(sums, scales, bias, dtype)
    return (quantize, dequantize) if torch.allclose(restored, expected, tolerance, tolerance) else None
