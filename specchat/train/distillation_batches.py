"""Lessons out of the feature cache: what `students.py` learns from, without the target computing anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor

from specchat.engine.model import FINAL
from specchat.train.distillation_losses import Lesson, StudentLoss
from specchat.train.feature_cache import LONGEST, FeatureCache, window
from specchat.train.target_loss import supervised
from specchat.train.training_batches import WEIGHT_UNIT, Batch, Plan, Shelf, plan_batches


@dataclass(frozen=True)
class Ends:
    """Both ends of the target, which heads share: input embeddings and output matrix, [V, D] each."""

    embedding: Tensor
    output: Tensor


@dataclass(frozen=True)
class Lessons:
    """All answers in batches, in the order that a seed gives."""

    cache: FeatureCache
    ends: Ends
    shelf: Shelf
    plan: Plan

    def loss(self, student: StudentLoss) -> Callable[[Batch, int], dict[str, Tensor]]:
        """The loss of a step for the loop of `trainer.py`, which takes batches in the order of the plan."""

        def loss(batch: Batch, step: int) -> dict[str, Tensor]:
            with torch.autocast(batch.tokens.device.type, torch.bfloat16):
                return {"loss": student(self.lesson(batch, step))}

        return loss

    def lesson(self, batch: Batch, step: int) -> Lesson:
        """What the target made of the batch of this step."""
        members = self.plan.members[step % len(self.plan)]
        taps, device = self.cache.taps, batch.tokens.device
        states = torch.zeros(*batch.tokens.shape, len(taps) * self.cache.width, dtype=torch.bfloat16)
        for line, index in enumerate(members):
            known = self.cache.states(index)
            states[line, : len(known)] = known
        stream = dict(zip(taps, states.to(device).chunk(len(taps), dim=-1), strict=True))
        final = stream[FINAL]
        rows, _, _ = supervised(batch)
        with torch.no_grad():
            logits = F.linear(final.flatten(0, 1)[rows].to(self.ends.output.dtype), self.ends.output).float()
        return Lesson(batch, stream, final, rows, logits, self.ends.embedding, self.ends.output, step)


def make_lessons(cache: FeatureCache, ends: Ends, batch_tokens: int, seed: int) -> Lessons:
    """Every answer of the cache as a row; only what the target itself wrote carries loss."""
    windows = [window(answer) for answer in cache.answers]
    rows = list(zip(cache.answers, windows, strict=True))
    tokens = [numpy.array(each.tokens[kept.start :], numpy.int64) for each, kept in rows]
    weights = [numpy.array([WEIGHT_UNIT * (place >= each.start) for place in kept], numpy.uint8) for each, kept in rows]
    starts = numpy.cumsum([0, *map(len, tokens)])
    shelf = Shelf(numpy.concatenate(tokens), numpy.concatenate(weights), starts, numpy.zeros(len(tokens)))
    return Lessons(cache, ends, shelf, plan_batches(shelf, batch_tokens, seed, LONGEST))
