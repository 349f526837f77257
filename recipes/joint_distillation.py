"""Distills the embedded draft model and all heads at once, from one forward pass of the target per batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specchat_train.distillation_losses import DistillationBatch, StudentLoss
from specchat_train.precision import autocast
from specchat_train.trainable_llama import TrainableLlama
from specchat_train.training_batches import Batch, supervised_rows


def run_target(network: TrainableLlama, batch: Batch, step: int) -> DistillationBatch:
    """Compute the hidden states of the target, without gradients."""
    with torch.no_grad():
        hidden_states = network(batch.tokens)
        final = network.model.norm(hidden_states[-1])
        rows, _, _ = supervised_rows(batch)
    embedding = network.model.embed_tokens.weight.detach()
    return DistillationBatch(batch, hidden_states, final, rows, embedding, embedding, step)


def joint_student_loss(
    target: TrainableLlama, students: dict[str, StudentLoss]
) -> Callable[[Batch, int], dict[str, Tensor]]:
    """The sum of the losses of all students; they share no parameters."""

    def loss(batch: Batch, step: int) -> dict[str, Tensor]:
        with autocast(batch.tokens.device):
            distillation_batch = run_target(target, batch, step)
            parts = {name: student(distillation_batch) for name, student in students.items()}
        return {"loss": torch.stack(list(parts.values())).sum(), **parts}

    return loss
