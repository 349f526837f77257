"""Softmax attention of rows over keys and values: torch's own kernel, or two products where these are quicker.

Knows tensors, and which of the two this device is quick at; knows no layer and no cache.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

MANY_SCORES = 2**16  # of rows with the keys of one head: from here on products are quicker, on a CPU in bfloat16


def mixed(rows: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """What each row mixes of the values. rows [B, KV, n, size], keys and values [B, KV, width, size] -> as rows

    The mask is added to the scores [B, 1, n, width]. The choice hangs on the shape of one of the B blocks
    alone, so that a block is computed alike in any company.
    """
    is_large = rows.shape[2] * keys.shape[2] >= MANY_SCORES
    if is_large and rows.dtype == torch.bfloat16 and rows.device.type == "cpu":
        return _by_products(rows, keys, values, mask)
    return functional.scaled_dot_product_attention(rows, keys, values, attn_mask=mask)


def _by_products(rows: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Two products of bfloat16 for each head of keys; torch multiplies them twice as fast as its fused kernel does.

    What they would lose are the scores, rounded to 8 bits: an error that grows with them. So scores are computed
    twice, and the second time each row's largest is subtracted before they are rounded. That changes no softmax, and
    those that count in it are near 0 then, where rounding is fine: within twice the error of the fused kernel.
    """
    rows = rows * rows.shape[-1] ** -0.5
    result = rows.new_empty(*rows.shape[:3], values.shape[3])
    for block in range(rows.shape[0]):
        for head in range(rows.shape[1]):
            queries, across = rows[block, head], keys[block, head].mT
            scores = torch.addmm((queries @ across).amax(-1, keepdim=True), queries, across, beta=-1)
            if mask is not None:
                scores += mask[block, 0]
            torch.mm(scores.softmax(-1), values[block, head], out=result[block, head])
    return result
