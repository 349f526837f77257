"""EAGLE-3 heads of several shapes that are trained on the same states of the target.

Weights are float32, and a copy in bfloat16 computes: what is exported is what was trained.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from recipes.answer_store import AnswerBatch
from recipes.batched_llama import BatchedLlama
from recipes.sharpened_loss import TargetRows, sharpened_cross_entropy
from specchat_train.distillation_losses import STEP_LOSS_DECAY
from specchat_train.export_weights import export_eagle3
from specchat_train.optimizers import LearningRateSchedule, MuonAdamW
from specchat_train.trainable_heads import Eagle3
from specchat_train.trainable_llama import ModelShape

SCHEDULE = LearningRateSchedule(muon_lr=0.02, adamw_lr=1.5e-3, slow_lr=7e-4, warmup_fraction=0.02, decay_fraction=0.8)
PROMPT_SHARE, LATER_STEP_SHARE = 0.1, 0.5  # of the rows that are scored
SHARP_TEMPERATURE, SHARP_SHARE = 0.4, 0.5


@dataclass(frozen=True)
class HeadSize:
    """The size of the draft vocabulary and of the MLP, written as "6144x1024"."""

    vocabulary: int
    intermediate: int

    @classmethod
    def of(cls, text: str) -> HeadSize:
        vocabulary, intermediate = text.split("x")
        return cls(int(vocabulary), int(intermediate))

    def __str__(self) -> str:
        return f"{self.vocabulary}x{self.intermediate}"


@dataclass(frozen=True)
class TargetStates:
    """What all heads read of a batch: states [B, L, 3 * D], those after the final norm [B, L, D], next embeddings."""

    states: Tensor
    final: Tensor
    embedded: Tensor
    batch: AnswerBatch

    @classmethod
    @torch.no_grad()
    def of(cls, model: BatchedLlama, batch: AnswerBatch) -> TargetStates:
        size = model.shape.hidden_size
        states, final = model.read_texts(batch.tokens[:, :-1]).split((3 * size, size), dim=-1)
        return cls(states, final, F.embedding(batch.tokens[:, 1:], model.embedding), batch)


class StreamHead:
    """A head in training."""

    def __init__(
        self, name: str, eagle: Eagle3, model: BatchedLlama, schedule: LearningRateSchedule = SCHEDULE
    ) -> None:
        self.name, self.working = name, copy.deepcopy(eagle).to(model.device, torch.bfloat16)
        self.master = eagle.to(model.device)
        self.optimizer = MuonAdamW(self.master, schedule, lambda name: name.startswith("fc."))
        self.target_lm_head = model.lm_head[self.working.draft_token_ids]
        self.skipped = 0

    def loss(self, states: TargetStates, is_scored: Tensor, steps: int) -> Tensor:
        """The loss over the draft vocabulary; positions whose token is not in it carry none."""
        is_drafted = is_scored.clone()
        is_drafted[:, :-1] &= self.working.t2d[states.batch.tokens[:, 2:]]
        positions, length = is_drafted.flatten().nonzero().squeeze(1), is_scored.shape[1]
        final = states.final.flatten(0, 1)
        total = torch.zeros((), device=is_scored.device)
        for step, output in enumerate(self.working.unroll(states.states, states.embedded, steps)):
            chosen = torch.rand(len(positions), device=is_scored.device) < (LATER_STEP_SHARE if step else 1.0)
            used = positions[chosen & (positions % length >= step)]
            target = TargetRows(final[used + 1], self.target_lm_head)
            loss = sharpened_cross_entropy(
                output.prediction.flatten(0, 1)[used],
                self.working.lm_head.weight,
                target,
                SHARP_TEMPERATURE,
                SHARP_SHARE,
            )
            total = total + STEP_LOSS_DECAY**step * loss
        return total

    def update(self, progress: float) -> bool:
        """Update the weights from the gradients; not with those that are no numbers."""
        pairs = list(zip(self.master.parameters(), self.working.parameters(), strict=True))
        for master, working in pairs:
            master.grad = None if working.grad is None else working.grad.float()
            working.grad = None
        norm = torch.nn.utils.get_total_norm([master.grad for master, _ in pairs if master.grad is not None])
        if not torch.isfinite(norm):
            self.master.zero_grad(set_to_none=True)
            self.skipped += 1
            return False
        self.optimizer.step(progress)
        with torch.no_grad():
            for master, working in pairs:
                working.copy_(master)
        return True

    def export(self, target: ModelShape, folder: Path) -> None:
        export_eagle3(self.master, target, folder)


def scored_positions(batch: AnswerBatch) -> Tensor:
    """All of the answers, and a few of the prompts. [B, L]"""
    drawn = torch.rand(batch.is_prompt.shape, device=batch.is_prompt.device) < PROMPT_SHARE
    return batch.is_answer | batch.is_prompt & drawn


def head_shape_of(model: BatchedLlama, size: HeadSize) -> ModelShape:
    return replace(model.shape, intermediate_size=size.intermediate)
