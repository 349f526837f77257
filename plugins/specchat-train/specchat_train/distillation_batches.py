"""Batches with the target's hidden states from the feature cache; the target computes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from specchat.engine.model import FINAL_NORM
from specchat_train.distillation_losses import DistillationBatch, StudentLoss
from specchat_train.feature_cache import MAX_CACHED_TOKENS, FeatureCache, cached_positions
from specchat_train.precision import autocast, training_dtype
from specchat_train.training_batches import WEIGHT_SCALE, Batch, BatchPlan, PackedRows, plan_batches, supervised_rows


@dataclass(frozen=True)
class TargetMatrices:
    """The input embeddings and the output matrix of the target, [V, D] each."""

    embedding_weight: Tensor
    lm_head_weight: Tensor


@dataclass(frozen=True)
class TrainingData:
    """All answers in batches; the order follows from the seed."""

    cache: FeatureCache
    target_matrices: TargetMatrices
    packed_rows: PackedRows
    batch_plan: BatchPlan

    def step_loss(self, student: StudentLoss) -> Callable[[Batch, int], dict[str, Tensor]]:
        """The loss function for `trainer.run_stage`, which takes batches in the order of the plan."""

        def loss(batch: Batch, step: int) -> dict[str, Tensor]:
            with autocast(batch.tokens.device):
                return {"loss": student(self.distillation_batch(batch, step))}

        return loss

    def distillation_batch(self, batch: Batch, step: int) -> DistillationBatch:
        row_indices = self.batch_plan.row_indices[step % len(self.batch_plan)]
        layers, device = self.cache.hidden_state_layers, batch.tokens.device
        states = torch.zeros(*batch.tokens.shape, len(layers) * self.cache.hidden_size, dtype=torch.bfloat16)
        for row, index in enumerate(row_indices):
            cached = self.cache.hidden_states(index)
            states[row, : len(cached)] = cached
        states = states.to(device, training_dtype(device))
        hidden_states = dict(zip(layers, states.chunk(len(layers), dim=-1), strict=True))
        final = hidden_states[FINAL_NORM]
        matrices = self.target_matrices
        rows, _, _ = supervised_rows(batch)
        return DistillationBatch(
            batch, hidden_states, final, rows, matrices.embedding_weight, matrices.lm_head_weight, step
        )


def build_training_data(
    cache: FeatureCache, target_matrices: TargetMatrices, batch_tokens: int, seed: int
) -> TrainingData:
    """Every cached answer as a row; only tokens of the answer carry loss."""
    rows = [(answer, cached_positions(answer)) for answer in cache.answers]
    tokens = [numpy.array(answer.tokens[positions.start :], numpy.int64) for answer, positions in rows]
    weights = [
        numpy.array([WEIGHT_SCALE * (position >= answer.answer_start) for position in positions], numpy.uint8)
        for answer, positions in rows
    ]
    starts = numpy.cumsum([0, *map(len, tokens)])
    packed = PackedRows(numpy.concatenate(tokens), numpy.concatenate(weights), starts, numpy.zeros(len(tokens)))
    return TrainingData(cache, target_matrices, packed, plan_batches(packed, batch_tokens, seed, MAX_CACHED_TOKENS))
