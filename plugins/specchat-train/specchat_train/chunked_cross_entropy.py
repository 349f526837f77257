"""The cross-entropy of a linear layer with soft targets, in chunks of rows, with gradients computed at once.

The logits of a large vocabulary are many times larger than their inputs, so they exist for one chunk only: the gradient
is the difference of two distributions, and needs no second pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_ROWS = 256


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target_probabilities: Tensor) -> Tensor:
        low_hidden, low_weight = hidden.to(target_probabilities.dtype), weight.to(target_probabilities.dtype)
        hidden_gradient = torch.empty_like(low_hidden)
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
        total = torch.zeros((), device=hidden.device)
        for start in range(0, len(hidden), CHUNK_ROWS):
            chunk = slice(start, start + CHUNK_ROWS)
            log_probabilities = F.log_softmax(F.linear(low_hidden[chunk], low_weight).float(), -1)
            total -= (target_probabilities[chunk] * log_probabilities).sum()
            difference = log_probabilities.exp_().sub_(target_probabilities[chunk]).to(low_hidden.dtype)
            hidden_gradient[chunk] = difference @ low_weight
            weight_gradient += difference.T @ low_hidden[chunk]
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        ctx.dtypes = hidden.dtype, weight.dtype
        return total / max(len(hidden), 1)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        scale = output_gradients[0] / max(len(hidden_gradient), 1)
        return (hidden_gradient * scale).to(ctx.dtypes[0]), (weight_gradient * scale).to(ctx.dtypes[1]), None


def chunked_cross_entropy(hidden: Tensor, weight: Tensor, target_probabilities: Tensor) -> Tensor:
    """The mean cross-entropy of softmax(hidden @ weight.T) [R, V] with `target_probabilities` [R, V], in its dtype."""
    return _ChunkedCrossEntropy.apply(hidden, weight, target_probabilities)


@torch.no_grad()
def probabilities(hidden: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """softmax(hidden @ weight.T) [R, V] in this dtype."""
    chunks = [F.linear(chunk, weight).float().softmax(-1).to(dtype) for chunk in hidden.split(CHUNK_ROWS)]
    return torch.cat(chunks)
