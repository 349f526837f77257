"""Softmax attention of rows over keys and values: turned, masked, and mixed by whatever is quickest on this device.

By torch's own kernel, or by two products where these are quicker. Knows tensors; knows no layer and no cache.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from specchat.forward.batch import RowBatch

BLOCK_ROWS = 4  # rows that attention takes at once in exact mode; as many as often step together
MATMUL_MIN_SCORES = 2**16  # of rows with the keys of one head: from here on products are quicker, on a CPU in bfloat16


def build_additive_mask(
    batch: RowBatch, sliding_window: int | None, queries_per_kv: int, like: Tensor
) -> Tensor | None:
    """What is added to the scores of attention; None when all is seen. [1, 1, shared * N, width]

    `shared`: query heads that look at the same keys. `like` gives dtype and device.
    """
    sees = batch.attention_mask if sliding_window is None else batch.sliding_window_mask(sliding_window)
    if bool(sees.all()):
        return None
    return additive_mask(sees, queries_per_kv, like).to(like.device, non_blocking=True)


def additive_mask(attention_mask: Tensor, queries_per_kv: int, like: Tensor) -> Tensor:
    """Nothing where a row is seen, and minus infinity elsewhere. bool [N, width] -> [1, 1, shared * N, width]"""
    mask = torch.zeros(attention_mask.shape, dtype=like.dtype, device=attention_mask.device).masked_fill_(
        ~attention_mask, float("-inf")
    )
    return mask.repeat(queries_per_kv, 1)[None, None]


def attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """What every row mixes of the values. queries [N, H, size]; keys, values [1, KV, width, size] -> [N, H * size]

    With a mask `in_blocks`, each block is computed by itself.
    """
    count, kv_heads = len(queries), keys.shape[1]
    shared, blocks = queries.shape[1] // kv_heads, 1 if mask is None else mask.shape[0]
    if blocks > 1 or (mask is not None and mask.shape[2] != shared * count):
        queries = functional.pad(queries, (0, 0, 0, 0, 0, blocks * BLOCK_ROWS - count))
        keys, values = keys.expand(blocks, -1, -1, -1), values.expand(blocks, -1, -1, -1)
    # heads that share keys become rows of one head: [blocks, KV, shared * N / blocks, size]
    rows = queries.view(blocks, -1, kv_heads, shared, queries.shape[-1]).permute(0, 2, 3, 1, 4)
    result = sdpa(rows.flatten(2, 3), keys, values, mask)
    result = result.view(blocks, kv_heads, shared, -1, result.shape[-1]).permute(0, 3, 1, 2, 4)
    return result.reshape(len(queries), -1)[:count]


def split_mask_into_blocks(mask: Tensor, count: int, blocks: int) -> Tensor:
    """The first rows of a mask of `count` nodes, BLOCK nodes by themselves. [1, 1, shared * count, width] -> blocks

    What attention computes for a row hangs on how many rows there are, and so there are always as many:
    [blocks, 1, shared * BLOCK, width].
    """
    first = mask.view(-1, count, mask.shape[-1])[:, : blocks * BLOCK_ROWS]
    return first.unflatten(1, (blocks, BLOCK_ROWS)).transpose(0, 1).flatten(1, 2)[:, None]


def apply_rope(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, halves layout; the first half of the sine is negative. [N, heads, head_size]

    A table that is narrower than the heads turns their first numbers only.
    """
    if cos.shape[-1] < states.shape[-1]:
        front, rest = states.split((cos.shape[-1], states.shape[-1] - cos.shape[-1]), dim=-1)
        return torch.cat((apply_rope(front, cos, sin), rest), dim=-1)
    first, second = states.chunk(2, dim=-1)
    return torch.addcmul(states * cos, torch.cat((second, first), dim=-1), sin)


def sdpa(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """What each row mixes of the values. rows [B, KV, n, size], keys and values [B, KV, width, size] -> as rows

    The mask is added to the scores [B, 1, n, width]. The choice hangs on the shape of one of the B blocks
    alone, so that a block is computed alike in any company.
    """
    is_large = queries.shape[2] * keys.shape[2] >= MATMUL_MIN_SCORES
    if is_large and queries.dtype == torch.bfloat16 and queries.device.type == "cpu":
        return _attention_by_matmuls(queries, keys, values, mask)
    return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def _attention_by_matmuls(rows: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
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
