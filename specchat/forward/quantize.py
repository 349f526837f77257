"""Rows rounded to bytes, each by a scale of its own, and sums of bytes made rows again, around products of integers.

By a kernel of ours each, where there are kernels: torch takes a dozen operations for both, which is longer than the
product itself where a weight is small. The bytes are the same; a sum with a bias is rounded once less. Knows no weight.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from specchat.forward.native_ops import Kernel, data_pointer, native_kernels

INT8_MAX = 127  # the largest number of a row, as a byte
ZERO_POINT = 128  # what stands for 0 in unsigned bytes
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.01}  # what rounding once less may change
MIN_ABSMAX = 1e-12  # a row whose largest number is less is a row of nothing


def quantize_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes around ZERO, and what a step of one is worth in each row. [N, D] -> uint8 [N, D], float32 [N]"""
    compiled = _quantize_kernels(rows.dtype)
    return _quantize_rows_torch(rows) if compiled is None else _quantize_rows_native(compiled[0], rows.contiguous())


def dequantize_rows(sums: Tensor, scales: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Sums of such bytes as numbers again, with the bias; `sums` may be changed. float32 [N, D], [N] -> [N, D]"""
    compiled = _quantize_kernels(dtype)
    if compiled is None:
        return _dequantize_rows_torch(sums, scales, bias, dtype)
    return _dequantize_rows_native(compiled[1], sums, scales, bias, dtype)


def absmax_scales(rows: Tensor, max_value: int) -> Tensor:
    """What each row is divided by, so that its largest number becomes `top`. float32 [N]"""
    return rows.abs().amax(dim=1).float().clamp_(min=MIN_ABSMAX).div_(max_value)


def _quantize_rows_native(quantize: Kernel, rows: Tensor) -> tuple[Tensor, Tensor]:
    small, scales = torch.empty(rows.shape, dtype=torch.uint8), torch.empty(len(rows))
    quantize(rows.data_ptr(), small.data_ptr(), scales.data_ptr(), *rows.shape, INT8_MAX, ZERO_POINT)
    return small, scales


def _quantize_rows_torch(rows: Tensor) -> tuple[Tensor, Tensor]:
    scales = absmax_scales(rows, INT8_MAX)
    return (rows / scales[:, None]).round_().add_(ZERO_POINT).to(torch.uint8), scales


def _dequantize_rows_native(
    dequantize: Kernel, sums: Tensor, scales: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    out = torch.empty(sums.shape, dtype=dtype)
    dequantize(sums.data_ptr(), scales.data_ptr(), data_pointer(bias), out.data_ptr(), *sums.shape)
    return out


def _dequantize_rows_torch(sums: Tensor, scales: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    sums.mul_(scales[:, None])
    return (sums if bias is None else sums.add_(bias)).to(dtype)


@lru_cache
def _quantize_kernels(dtype: torch.dtype) -> tuple[Kernel, Kernel] | None:
    """Both kernels for rows of this dtype; None where there are none, or they round otherwise than torch does."""
    shrink, widen = native_kernels().kernel("shrink", dtype), native_kernels().kernel("widen", dtype)
    if shrink is None or widen is None:
        return None
    rows, bias = (torch.arange(count).float().sin_().mul_(9).to(dtype) for count in (3 * 77, 77))
    rows = rows.view(3, 77)
    (small, scales), (theirs, their_scales) = _quantize_rows_native(shrink, rows), _quantize_rows_torch(rows)
    sums = torch.arange(3 * 77.0).view(3, 77)
    wide = _dequantize_rows_native(widen, sums, scales, bias, dtype)
    bytes_agree = torch.equal(small, theirs) and torch.equal(scales, their_scales)
    sums_agree = torch.allclose(
        wide, _dequantize_rows_torch(sums, scales, bias, dtype), TOLERANCE[dtype], TOLERANCE[dtype]
    )
    return (shrink, widen) if bytes_agree and sums_agree else None
