"""Rows rounded to bytes, each by a scale of its own, and sums of bytes made rows again, around products of integers.

By a kernel of ours each, where there are kernels: torch takes a dozen operations for both, which is longer than the
product itself where a weight is small. The bytes are the same; a sum with a bias is rounded once less. Knows no weight.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from specchat.forward.native_ops import Kernel, address, kernels

TOP = 127  # the largest number of a row, as a byte
ZERO = 128  # what stands for 0 in unsigned bytes
NEAR = {torch.float32: 1e-5, torch.bfloat16: 0.01}  # what rounding once less may change
NOTHING = 1e-12  # a row whose largest number is less is a row of nothing


def shrunk(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes around ZERO, and what a step of one is worth in each row. [N, D] -> uint8 [N, D], float32 [N]"""
    compiled = _compiled(rows.dtype)
    return _shrunk_by_torch(rows) if compiled is None else _shrunk(compiled[0], rows.contiguous())


def widened(sums: Tensor, scales: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Sums of such bytes as numbers again, with the bias; `sums` may be changed. float32 [N, D], [N] -> [N, D]"""
    compiled = _compiled(dtype)
    if compiled is None:
        return _widened_by_torch(sums, scales, bias, dtype)
    return _widened(compiled[1], sums, scales, bias, dtype)


def scales_of(rows: Tensor, top: int) -> Tensor:
    """What each row is divided by, so that its largest number becomes `top`. float32 [N]"""
    return rows.abs().amax(dim=1).float().clamp_(min=NOTHING).div_(top)


def _shrunk(shrink: Kernel, rows: Tensor) -> tuple[Tensor, Tensor]:
    small, scales = torch.empty(rows.shape, dtype=torch.uint8), torch.empty(len(rows))
    shrink(rows.data_ptr(), small.data_ptr(), scales.data_ptr(), *rows.shape, TOP, ZERO)
    return small, scales


def _shrunk_by_torch(rows: Tensor) -> tuple[Tensor, Tensor]:
    scales = scales_of(rows, TOP)
    return (rows / scales[:, None]).round_().add_(ZERO).to(torch.uint8), scales


def _widened(widen: Kernel, sums: Tensor, scales: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    out = torch.empty(sums.shape, dtype=dtype)
    widen(sums.data_ptr(), scales.data_ptr(), address(bias), out.data_ptr(), *sums.shape)
    return out


def _widened_by_torch(sums: Tensor, scales: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    sums.mul_(scales[:, None])
    return (sums if bias is None else sums.add_(bias)).to(dtype)


@lru_cache
def _compiled(dtype: torch.dtype) -> tuple[Kernel, Kernel] | None:
    """Both kernels for rows of this dtype; None where there are none, or they round otherwise than torch does."""
    shrink, widen = kernels().kernel("shrink", dtype), kernels().kernel("widen", dtype)
    if shrink is None or widen is None:
        return None
    rows, bias = (torch.arange(count).float().sin_().mul_(9).to(dtype) for count in (3 * 77, 77))
    rows = rows.view(3, 77)
    (small, scales), (theirs, their_scales) = _shrunk(shrink, rows), _shrunk_by_torch(rows)
    sums = torch.arange(3 * 77.0).view(3, 77)
    wide = _widened(widen, sums, scales, bias, dtype)
    bytes_agree = torch.equal(small, theirs) and torch.equal(scales, their_scales)
    sums_agree = torch.allclose(wide, _widened_by_torch(sums, scales, bias, dtype), NEAR[dtype], NEAR[dtype])
    return (shrink, widen) if bytes_agree and sums_agree else None
