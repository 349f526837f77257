"""Softmax attention over keys and values: additive masks, rotary embeddings, and the kernel that suits the device.

Knows tensors; knows no layer and no cache.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from specchat.forward.batch import RowBatch

BLOCK_ROWS = 4  # rows that one attention block holds in exact mode
MATMUL_MIN_SCORES = 2**16  # queries * keys of one head from which two matmuls are faster (CPU, bfloat16)


def build_additive_mask(
    batch: RowBatch, sliding_window: int | None, queries_per_kv: int, like: Tensor
) -> Tensor | None:
    """The additive mask of a batch, or None when every row sees everything. [1, 1, queries_per_kv * N, kv_length]

    `like` gives dtype and device.
    """
    allowed = batch.attention_mask if sliding_window is None else batch.sliding_window_mask(sliding_window)
    if bool(allowed.all()):
        return None
    return additive_mask(allowed, queries_per_kv, like).to(like.device, non_blocking=True)


def additive_mask(attention_mask: Tensor, queries_per_kv: int, like: Tensor) -> Tensor:
    """0 where attention is allowed, -inf elsewhere. bool [N, kv_length] -> [1, 1, queries_per_kv * N, kv_length]"""
    mask = torch.zeros(attention_mask.shape, dtype=like.dtype, device=attention_mask.device).masked_fill_(
        ~attention_mask, float("-inf")
    )
    return mask.repeat(queries_per_kv, 1)[None, None]


def attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention. queries [N, H, size]; keys, values [1, KV, kv_length, size] -> [N, H * size]

    A mask from `split_mask_into_blocks` computes each block by itself.
    """
    count, kv_heads = len(queries), keys.shape[1]
    queries_per_kv, blocks = queries.shape[1] // kv_heads, 1 if mask is None else mask.shape[0]
    if blocks > 1 or (mask is not None and mask.shape[2] != queries_per_kv * count):
        queries = functional.pad(queries, (0, 0, 0, 0, 0, blocks * BLOCK_ROWS - count))
        keys, values = keys.expand(blocks, -1, -1, -1), values.expand(blocks, -1, -1, -1)
    # query heads that share keys become rows of one head: [blocks, KV, queries_per_kv * N / blocks, size]
    rows = queries.view(blocks, -1, kv_heads, queries_per_kv, queries.shape[-1]).permute(0, 2, 3, 1, 4)
    result = sdpa(rows.flatten(2, 3), keys, values, mask)
    result = result.view(blocks, kv_heads, queries_per_kv, -1, result.shape[-1]).permute(0, 3, 1, 2, 4)
    return result.reshape(len(queries), -1)[:count]


def split_mask_into_blocks(mask: Tensor, count: int, blocks: int) -> Tensor:
    """The first rows of a mask of `count` nodes, BLOCK_ROWS nodes in each block.

    The rounding of a row depends on the number of rows, so every block has the same number.
    [1, 1, queries_per_kv * count, kv_length] -> [blocks, 1, queries_per_kv * BLOCK_ROWS, kv_length]
    """
    first = mask.view(-1, count, mask.shape[-1])[:, : blocks * BLOCK_ROWS]
    return first.unflatten(1, (blocks, BLOCK_ROWS)).transpose(0, 1).flatten(1, 2)[:, None]


def apply_rope(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, half-split layout; the first half of `sin` is negative. [N, heads, head_size]

    With tables narrower than a head, only the first numbers of each head are rotated (partial rotary factor).
    """
    if cos.shape[-1] < states.shape[-1]:
        front, rest = states.split((cos.shape[-1], states.shape[-1] - cos.shape[-1]), dim=-1)
        return torch.cat((apply_rope(front, cos, sin), rest), dim=-1)
    first, second = states.chunk(2, dim=-1)
    return torch.addcmul(states * cos, torch.cat((second, first), dim=-1), sin)


def sdpa(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention. queries [B, KV, n, size], keys and values [B, KV, kv_length, size] -> as queries

    `mask` is added to the scores [B, 1, n, kv_length]. The kernel is chosen by the shape of one of the B blocks, so
    that the result of a block is the same, to the bit, for every B.
    """
    is_large = queries.shape[2] * keys.shape[2] >= MATMUL_MIN_SCORES
    if is_large and queries.dtype == torch.bfloat16 and queries.device.type == "cpu":
        return _attention_by_matmuls(queries, keys, values, mask)
    return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def _attention_by_matmuls(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Two bfloat16 matmuls for each key head, which torch computes twice as fast as its fused attention kernel.

    Scores rounded to 8 bits would lose precision, with an error that grows with the score. So the scores are computed
    twice, and the second time the largest score of the row is subtracted before rounding. The softmax stays the same,
    and the scores that matter are then near 0, where rounding is fine: within twice the error of the fused kernel.
    """
    queries = queries * queries.shape[-1] ** -0.5
    result = queries.new_empty(*queries.shape[:3], values.shape[3])
    for block in range(queries.shape[0]):
        for head in range(queries.shape[1]):
            rows, keys_t = queries[block, head], keys[block, head].mT
            scores = torch.addmm((rows @ keys_t).amax(-1, keepdim=True), rows, keys_t, beta=-1)
            if mask is not None:
                scores += mask[block, 0]
            torch.mm(scores.softmax(-1), values[block, head], out=result[block, head])
    return result
