"""Lessons out of the feature cache: what `students.py` learns from, without the target computing anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor

from specchat.engine.model import FINAL_NORM
from specchat.train.distillation_losses import DistillationBatch, StudentLoss
from specchat.train.feature_cache import MAX_CACHED_TOKENS, FeatureCache, cached_positions
from specchat.train.target_loss import supervised_rows
from specchat.train.training_batches import WEIGHT_SCALE, Batch, BatchPlan, PackedRows, plan_batches


@dataclass(frozen=True)
class TargetMatrices:
    """Both ends of the target, which heads share: input embeddings and output matrix, [V, D] each."""

    embedding_weight: Tensor
    lm_head_weight: Tensor


@dataclass(frozen=True)
class TrainingData:
    """All answers in batches, in the order that a seed gives."""

    cache: FeatureCache
    target_matrices: TargetMatrices
    packed_rows: PackedRows
    batch_plan: BatchPlan

    def step_loss(self, student: StudentLoss) -> Callable[[Batch, int], dict[str, Tensor]]:
        """The loss of a step for the loop of `trainer.py`, which takes batches in the order of the plan."""

        def loss(batch: Batch, step: int) -> dict[str, Tensor]:
            with torch.autocast(batch.tokens.device.type, torch.bfloat16):
                return {"loss": student(self.distillation_batch(batch, step))}

        return loss

    def distillation_batch(self, batch: Batch, step: int) -> DistillationBatch:
        """What the target made of the batch of this step."""
        members = self.batch_plan.row_indices[step % len(self.batch_plan)]
        taps, device = self.cache.hidden_state_layers, batch.tokens.device
        states = torch.zeros(*batch.tokens.shape, len(taps) * self.cache.hidden_size, dtype=torch.bfloat16)
        for line, index in enumerate(members):
            known = self.cache.hidden_states(index)
            states[line, : len(known)] = known
        stream = dict(zip(taps, states.to(device).chunk(len(taps), dim=-1), strict=True))
        final = stream[FINAL_NORM]
        rows, _, _ = supervised_rows(batch)
        with torch.no_grad():
            logits = F.linear(
                final.flatten(0, 1)[rows].to(self.target_matrices.lm_head_weight.dtype),
                self.target_matrices.lm_head_weight,
            ).float()
        return DistillationBatch(
            batch,
            stream,
            final,
            rows,
            logits,
            self.target_matrices.embedding_weight,
            self.target_matrices.lm_head_weight,
            step,
        )


def build_training_data(
    cache: FeatureCache, target_matrices: TargetMatrices, batch_tokens: int, seed: int
) -> TrainingData:
    """Every answer of the cache as a row; only what the target itself wrote carries loss."""
    windows = [cached_positions(answer) for answer in cache.answers]
    rows = list(zip(cache.answers, windows, strict=True))
    tokens = [numpy.array(each.tokens[kept.start :], numpy.int64) for each, kept in rows]
    weights = [
        numpy.array([WEIGHT_SCALE * (place >= each.answer_start) for place in kept], numpy.uint8) for each, kept in rows
    ]
    starts = numpy.cumsum([0, *map(len, tokens)])
    shelf = PackedRows(numpy.concatenate(tokens), numpy.concatenate(weights), starts, numpy.zeros(len(tokens)))
    return TrainingData(cache, target_matrices, shelf, plan_batches(shelf, batch_tokens, seed, MAX_CACHED_TOKENS))
