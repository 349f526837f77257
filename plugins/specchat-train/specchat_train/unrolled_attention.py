"""Attention of an unrolled head: to true keys some positions back, and to one key of each step since.

The matrix of all pairs of positions is never stored. A flash kernel attends to the true keys, and its log-sum-exp joins
the others. In the backward pass the kernel gets the joined output and log-sum-exp: its probabilities are then those of
the joined softmax, and so are its gradients. It knows no head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_PROBE_ERROR = 0.05  # of values around 1, in bfloat16


@dataclass(frozen=True)
class FlashOutput:
    """Output [B, H, L, head_dim], log-sum-exp [B, H, L], and what the backward kernel needs besides."""

    output: Tensor
    log_sum: Tensor
    rest: tuple[Any, ...] = ()


def unrolled_attention(query: Tensor, true_key: Tensor, true_value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attend to true keys at least K positions back, and to K keys of each position. [B, H, L, head_dim]

    `keys` and `values` are those of the steps since, shifted to the position of their query. [K, B, H, L, head_dim]
    """
    if query.shape[-2] > len(keys) and has_flash_kernel(query.device.type, query.dtype):
        return _JoinedAttention.apply(query, true_key, true_value, keys, values)
    return explicit_attention(query, true_key, true_value, keys, values)


def explicit_attention(query: Tensor, true_key: Tensor, true_value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The same with a matrix of all pairs, for devices without a flash kernel, and to test the other."""
    length, scale = query.shape[-2], query.shape[-1] ** -0.5
    allowed = torch.ones(length, length, dtype=torch.bool, device=query.device).tril(-len(keys))
    true_scores = (query @ true_key.transpose(-1, -2)).float() * scale
    true_scores = true_scores.masked_fill(~allowed, float("-inf"))
    scores = (query * keys).sum(-1, dtype=torch.float32).permute(1, 2, 3, 0) * scale
    weights = torch.cat((true_scores, scores), dim=-1).softmax(-1).to(query.dtype)
    attended = weights[..., :length] @ true_value
    return attended + (weights[..., length:].permute(3, 0, 1, 2)[..., None] * values).sum(0)


class _JoinedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, true_key: Tensor, true_value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        count, length, scale = len(keys), query.shape[-2], query.shape[-1] ** -0.5
        seen = slice(0, length - count)
        true = _flash(query[:, :, count:], true_key[:, :, seen], true_value[:, :, seen])
        log_sum = F.pad(true.log_sum, (count, 0), value=float("-inf"))
        scores = (query * keys).sum(-1, dtype=torch.float32) * scale
        joined = torch.logaddexp(log_sum, scores.logsumexp(0))
        weights = (scores - joined).exp()
        output = F.pad(true.output, (0, 0, count, 0)) * (log_sum - joined).exp().to(query.dtype)[..., None]
        output = output + (weights.to(query.dtype)[..., None] * values).sum(0)
        ctx.save_for_backward(query, true_key, true_value, keys, values, output, joined, weights)
        ctx.rest = true.rest
        return output

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor, ...]:
        query, true_key, true_value, keys, values, output, joined, weights = ctx.saved_tensors
        gradient, count, length = output_gradients[0], len(keys), query.shape[-2]
        later, seen = slice(count, length), slice(0, length - count)
        merged = FlashOutput(output[:, :, later], joined[:, :, later].contiguous(), ctx.rest)
        parts = query[:, :, later], true_key[:, :, seen], true_value[:, :, seen]
        of_query, of_key, of_value = _flash_backward(gradient[:, :, later], *parts, merged)
        shared = (gradient * output).sum(-1, dtype=torch.float32)
        of_scores = weights * ((gradient * values).sum(-1, dtype=torch.float32) - shared)
        of_scores = (of_scores * query.shape[-1] ** -0.5).to(query.dtype)[..., None]
        whole = (of_scores * keys).sum(0) + F.pad(of_query, (0, 0, count, 0))
        before = (0, 0, 0, count)
        of_values = weights.to(query.dtype)[..., None] * gradient
        return whole, F.pad(of_key, before), F.pad(of_value, before), of_scores * query, of_values


def _kernel(name: str) -> Callable[..., Any]:
    """One of the kernels behind `scaled_dot_product_attention`, with its log-sum-exp."""
    return getattr(torch.ops.aten, f"_scaled_dot_product_flash_attention{name}")


def _flash(query: Tensor, key: Tensor, value: Tensor) -> FlashOutput:
    """Causal attention with its log-sum-exp."""
    if query.is_cpu:
        return FlashOutput(*_kernel("_for_cpu")(query, key, value, 0.0, True))
    output, log_sum, *rest = _kernel("")(query, key, value, 0.0, True)
    return FlashOutput(output, log_sum, tuple(rest))


def _flash_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, forward: FlashOutput
) -> tuple[Tensor, Tensor, Tensor]:
    inputs = gradient, query, key, value, forward.output, forward.log_sum
    if query.is_cpu:
        return _kernel("_for_cpu_backward")(*inputs, 0.0, True)
    sequences, (seed, offset) = forward.rest[:4], forward.rest[4:6]
    return _kernel("_backward")(*inputs, *sequences, 0.0, True, seed, offset)


@lru_cache
def has_flash_kernel(device_type: str, dtype: torch.dtype) -> bool:
    """Whether this build of torch has the kernels, and they do what is expected: they are not part of its interface."""
    generator = torch.Generator().manual_seed(0)
    sizes: Sequence[tuple[int, ...]] = [(2, 3, 40, 64)] * 3 + [(2, 2, 3, 40, 64)] * 2
    inputs = [torch.randn(size, generator=generator).to(device_type, dtype).requires_grad_() for size in sizes]
    try:
        with torch.enable_grad():
            results = [
                (output, *torch.autograd.grad(output.float().pow(2).sum(), inputs))
                for output in (_JoinedAttention.apply(*inputs), explicit_attention(*inputs))
            ]
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return False
    return all(
        float((fast - slow).detach().float().abs().max()) <= MAX_PROBE_ERROR * float(slow.detach().float().abs().max())
        for fast, slow in zip(*results, strict=True)
    )
