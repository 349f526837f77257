"""The loss of the target: the next token, from the last layer and from early exits (LayerSkip, arXiv 2404.16710)."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from specchat_train.precision import autocast
from specchat_train.trainable_llama import EXIT_LAYERS, TrainableLlama
from specchat_train.training_batches import Batch, supervised_rows

EXIT_LOSS_WEIGHT = 0.25
EXIT_ROW_INTERVAL = 4  # early exits learn from every n-th supervised row

Forward = Callable[[Tensor], list[Tensor]]


def target_loss(
    network: TrainableLlama, forward: Forward, exits: tuple[int, ...] = EXIT_LAYERS
) -> Callable[[Batch, int], dict[str, Tensor]]:
    """The loss of a training step; `forward` may be the compiled pass of the network.

    Each step trains one of the early exits, in turn.
    """

    def loss(batch: Batch, step: int) -> dict[str, Tensor]:
        with autocast(batch.tokens.device):
            hidden_states = forward(batch.tokens)
            rows, next_tokens, weights = supervised_rows(batch)
            final = weighted_loss(network, hidden_states[-1].flatten(0, 1)[rows], next_tokens, weights)
            if not exits:
                return {"loss": final}
            few = slice(step % EXIT_ROW_INTERVAL, None, EXIT_ROW_INTERVAL)
            middle = hidden_states[exits[step % len(exits)]].flatten(0, 1)[rows[few]]
            early = weighted_loss(network, middle, next_tokens[few], weights[few])
        return {"loss": final + EXIT_LOSS_WEIGHT * early, "final": final, "early": early}

    return loss


def weighted_loss(network: TrainableLlama, hidden: Tensor, target_ids: Tensor, weights: Tensor) -> Tensor:
    losses = F.cross_entropy(network.logits(hidden).float(), target_ids, reduction="none")
    return (losses * weights).sum() / weights.sum().clamp(min=1.0)
