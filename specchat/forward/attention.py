"""Softmax attention over keys and values: additive masks, rotary embeddings, and the kernel that suits the device.

Knows tensors; knows no layer and no cache.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from specchat.forward.batch import RowBatch


@dataclass(frozen=True)
class AttentionMask:
    """The rows of the KV cache that each row of a pass sees."""

    allowed: Tensor  # bool [N, kv_length]
    queries_per_kv: int
    like: Tensor  # dtype and device of the network

    @cached_property
    def additive(self) -> Tensor:
        """0 where attention is allowed, -inf elsewhere, on the device. [1, 1, queries_per_kv * N, kv_length]"""
        mask = torch.zeros(self.allowed.shape, dtype=self.like.dtype, device=self.allowed.device)
        mask = mask.masked_fill_(~self.allowed, float("-inf")).to(self.like.device, non_blocking=True)
        return mask.repeat(self.queries_per_kv, 1)[None, None]


def build_attention_mask(
    batch: RowBatch, sliding_window: int | None, queries_per_kv: int, like: Tensor
) -> AttentionMask | None:
    """The mask of a batch, or None when every row sees everything. `like` gives dtype and device."""
    if batch.sees_all and (sliding_window is None or batch.kv_length <= sliding_window):
        return None
    allowed = batch.attention_mask if sliding_window is None else batch.sliding_window_mask(sliding_window)
    return None if bool(allowed.all()) else AttentionMask(allowed.contiguous(), queries_per_kv, like)


@dataclass(frozen=True)
class Scores:
    """What becomes of the products of queries and keys before the softmax."""

    scale: float
    cap: float | None = None  # scores become cap * tanh(score / cap)


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: AttentionMask | None, scores: Scores | None = None,
    sinks: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Grouped-query attention. queries [N, H, size]; keys, values [1, KV, kv_length, size] -> [N, H * size]

    Without `scores`, their scale is that of the head size. `sinks` are a score of each query head [H] that takes its
    share of the softmax and has no value.
    """
    count, kv_heads = len(queries), keys.shape[1]
    # query heads that share keys become rows of one head: [1, KV, queries_per_kv * N, size]
    rows = queries.view(1, count, kv_heads, -1, queries.shape[-1]).permute(0, 2, 3, 1, 4).flatten(2, 3)
    scores, added = scores or Scores(queries.shape[-1] ** -0.5), mask.additive if mask is not None else None
    if scores.cap is not None or sinks is not None:
        result = _attention_in_float32(rows, keys, values, added, scores, sinks)
    else:
        result = functional.scaled_dot_product_attention(rows, keys, values, attn_mask=added, scale=scores.scale)
    return result.view(kv_heads, -1, count, result.shape[-1]).permute(2, 0, 1, 3).reshape(count, -1)


def apply_rope(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, half-split layout; the first half of `sin` is negative. [N, heads, head_size]

    With tables narrower than a head, only the first numbers of each head are rotated (partial rotary factor).
    """
    if cos.shape[-1] < states.shape[-1]:
        front, rest = states.split((cos.shape[-1], states.shape[-1] - cos.shape[-1]), dim=-1)
        return torch.cat((apply_rope(front, cos, sin), rest), dim=-1)
    first, second = states.chunk(2, dim=-1)
    return torch.addcmul(states * cos, torch.cat((second, first), dim=-1), sin)


def _attention_in_float32(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scores: Scores, sinks: Tensor | None
) -> Tensor:
    """Softmax of capped scores or beside sinks, in float32, which no kernel of torch has. One key head at a time."""
    result = queries.new_empty(*queries.shape[:3], values.shape[3])
    for head in range(queries.shape[1]):
        products = (queries[:, head] @ keys[:, head].mT).float() * scores.scale
        if scores.cap is not None:
            products = scores.cap * torch.tanh(products / scores.cap)
        if mask is not None:
            products = products + mask[:, 0]
        if sinks is not None:
            of_heads = sinks.float().view(queries.shape[1], -1)[head]
            of_rows = of_heads.repeat_interleave(queries.shape[2] // len(of_heads))
            products = torch.cat((products, of_rows[None, :, None].expand(len(products), -1, 1)), dim=-1)
        weights = products.softmax(-1)[..., : keys.shape[2]]
        result[:, head] = weights.to(values.dtype) @ values[:, head]
    return result
