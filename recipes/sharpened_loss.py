"""The cross-entropy with the target's distribution over a draft vocabulary, at temperature 1 and at a lower one.

At a low temperature only the few best tokens count, as they do when a draft token is compared with a greedy or a sharp
choice. Gradients are computed at once, in chunks of rows: logits of all rows are many gigabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_ROWS = {"cuda": 8192}
DEFAULT_CHUNK_ROWS = 256


@dataclass(frozen=True)
class TargetRows:
    """States of the target after its final norm [R, D], and the rows of its LM head for the draft vocabulary [Vd, D]."""

    states: Tensor
    lm_head: Tensor


class _SharpenedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: TargetRows, temperature: float, share: float
    ) -> Tensor:
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
        total = torch.zeros((), device=hidden.device)
        parts = ((1.0, 1.0), (temperature, share)) if share else ((1.0, 1.0),)
        rows = CHUNK_ROWS.get(hidden.device.type, DEFAULT_CHUNK_ROWS)
        for chunk in (slice(start, start + rows) for start in range(0, len(hidden), rows)):
            logits = F.linear(hidden[chunk], weight).float()
            target_logits = F.linear(target.states[chunk], target.lm_head).float()
            gradient = torch.zeros_like(logits)
            for at, part in parts:  # times the temperature, which keeps the sizes of the gradients alike
                log_shares, target_shares = (logits / at).log_softmax(-1), (target_logits / at).softmax(-1)
                total -= part * at * (target_shares * log_shares).sum()
                gradient.add_(log_shares.exp_().sub_(target_shares), alpha=part)
            low = gradient.to(hidden.dtype)
            hidden_gradient[chunk] = low @ weight
            weight_gradient += low.T @ hidden[chunk]
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        ctx.dtype = weight.dtype
        return total / max(len(hidden), 1)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        scale = output_gradients[0] / max(len(hidden_gradient), 1)
        return (
            (hidden_gradient * scale).to(hidden_gradient.dtype),
            (weight_gradient * scale).to(ctx.dtype),
            None,
            None,
            None,
        )


def sharpened_cross_entropy(
    hidden: Tensor, weight: Tensor, target: TargetRows, temperature: float, share: float
) -> Tensor:
    """The mean over rows [R, D] of the cross-entropy at T 1, plus `share` times `temperature` times that at it."""
    return _SharpenedCrossEntropy.apply(hidden, weight, target, temperature, share)
