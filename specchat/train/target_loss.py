"""What the target learns from a batch: the next token, and the same from its middle layers (LayerSkip)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from specchat.train.trainable_llama import EXIT_LAYERS, TrainableLlama
from specchat.train.training_batches import Batch

EXIT_LOSS_WEIGHT = 0.25
EXIT_ROW_INTERVAL = 4  # one supervised row in so many also teaches the middle layer

Forward = Callable[[Tensor], list[Tensor]]


def target_loss(
    network: TrainableLlama, forward: Forward, exits: tuple[int, ...] = EXIT_LAYERS
) -> Callable[[Batch, int], dict[str, Tensor]]:
    """The loss of a training step; `forward` may be the compiled pass of the network.

    One of the exits is taught in each step, in turn; a network too shallow for exits has none.
    """

    def loss(batch: Batch, step: int) -> dict[str, Tensor]:
        with torch.autocast(batch.tokens.device.type, torch.bfloat16):
            stream = forward(batch.tokens)
            rows, wanted, weights = supervised_rows(batch)
            final = weighted_loss(network, stream[-1].flatten(0, 1)[rows], wanted, weights)
            if not exits:
                return {"loss": final}
            few = slice(step % EXIT_ROW_INTERVAL, None, EXIT_ROW_INTERVAL)
            middle = stream[exits[step % len(exits)]].flatten(0, 1)[rows[few]]
            early = weighted_loss(network, middle, wanted[few], weights[few])
        return {"loss": final + EXIT_LOSS_WEIGHT * early, "final": final, "early": early}

    return loss


def supervised_rows(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Flat indices of the rows that predict something, what they should predict, and how much it matters."""
    weights = torch.zeros_like(batch.weights)
    weights[:, :-1] = batch.weights[:, 1:]
    rows = weights.flatten().nonzero().squeeze(1)
    wanted = batch.tokens.flatten()[(rows + 1).clamp(max=batch.tokens.numel() - 1)]
    return rows, wanted, weights.flatten()[rows]


def weighted_loss(network: TrainableLlama, hidden: Tensor, target_ids: Tensor, weights: Tensor) -> Tensor:
    losses = F.cross_entropy(network.logits(hidden).float(), target_ids, reduction="none")
    return (losses * weights).sum() / weights.sum().clamp(min=1.0)
