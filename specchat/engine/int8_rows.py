"""Keys and values in 8 bits: the numbers of a row and head as int8, and behind them their scale, a float32.

The scale comes from the row alone, the largest number / 127. So a row has the same bits in every batch of rows, and a
commit, a rollback or a copy moves it as it is. Scales of a channel over many rows would be a little closer for keys
(KIVI, arXiv 2402.02750), but a row would depend on the rows beside it. Knows tensors, no cache and no layer.
"""

import torch
from torch import Tensor

from specchat.engine.cache_sizes import SCALE_BYTES

MAX_STEPS = 127


def quantize_rows(rows: Tensor) -> Tensor:
    """Round to multiples of the scale of each row. [..., size] -> int8 [..., size + SCALE_BYTES]"""
    numbers = rows.float()
    scales = numbers.abs().amax(-1, keepdim=True) / MAX_STEPS
    steps = (numbers / scales.where(scales > 0, 1.0)).round_().to(torch.int8)
    return torch.cat((steps, scales.view(torch.int8)), dim=-1)


def dequantize_rows(stored: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers of stored rows. int8 [..., size + SCALE_BYTES] -> [..., size]"""
    scales = stored[..., -SCALE_BYTES:].contiguous().view(torch.float32)
    return (stored[..., :-SCALE_BYTES] * scales).to(dtype)
