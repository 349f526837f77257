"""What the small ones learn from the target: one loss for each, all on one silent pass of the target.

The draft learns the target's whole distribution, EAGLE-3 and MTP learn it through several runs fed by themselves, and
so does the first EAGLE, which learns the target's next state too. Medusa learns the tokens further ahead. Rows with weight are where the target answers; only these count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specchat.train.target_loss import supervised
from specchat.train.trainable_heads import Eagle, FirstEagle, Medusa, MultiToken
from specchat.train.trainable_llama import Network
from specchat.train.training_batches import Batch

RUNS = 4
MTP_RUNS = 3
FADE = 0.8
TOKEN_WEIGHT = 0.1  # of the tokens in the first EAGLE's loss, beside the states; as SafeAILab trains it
ROW_SHARE = 2  # MTP, Medusa and the first EAGLE score the whole vocabulary, so only one row in so many is scored

StudentLoss = Callable[["Lesson"], Tensor]


@dataclass(frozen=True)
class Lesson:
    """One pass of the target over a batch, and which of its rows count."""

    batch: Batch
    stream: list[Tensor] | Mapping[int, Tensor]  # the residual stream after so many layers; all, or those that are read
    final: Tensor
    rows: Tensor
    logits: Tensor
    embedding: Tensor
    output: Tensor  # the matrix that reads `final`; often the embedding itself
    step: int

    def embedded(self) -> Tensor:
        """Embeddings of the tokens one place ahead [B, L, D]; the last place holds the first token and never counts."""
        return F.embedding(self.batch.tokens.roll(-1, dims=1), self.embedding).to(self.final.dtype)

    def ahead(self, places: int) -> tuple[Tensor, Tensor]:
        """Where a guess `places` further than the target's own is made: (row of the guesser, index into `logits`)."""
        length = self.batch.tokens.shape[1]
        is_inside = (self.rows % length) >= places
        found = is_inside.nonzero().squeeze(1)
        return self.rows[found] - places, found


def teach(network: Network, batch: Batch, step: int) -> Lesson:
    """Let the target read the batch; nothing of it is trained here."""
    with torch.no_grad():
        stream = network(batch.tokens)
        final = network.model.norm(stream[-1])
        rows, _, _ = supervised(batch)
        logits = F.linear(final.flatten(0, 1)[rows], network.model.embed_tokens.weight).float()
    table = network.model.embed_tokens.weight.detach()
    return Lesson(batch, stream, final, rows, logits, table, table, step)


def likeness(scores: Tensor, wanted: Tensor) -> Tensor:
    """Cross-entropy of scores [R, V] with the distribution of `wanted` [R, V]."""
    return -(wanted.softmax(-1) * F.log_softmax(scores.float(), -1)).sum(-1).mean()


def draft_loss(draft: Network) -> StudentLoss:
    def loss(lesson: Lesson) -> Tensor:
        hidden = draft(lesson.batch.tokens)[-1].flatten(0, 1)[lesson.rows]
        return likeness(draft.logits(hidden), lesson.logits)

    return loss


def eagle_loss(eagle: Eagle, taps: tuple[int, ...]) -> StudentLoss:
    def loss(lesson: Lesson) -> Tensor:
        features = torch.cat([lesson.stream[tap] for tap in taps], dim=-1)
        kept = eagle.kept
        total = torch.zeros((), device=kept.device)
        for run, drafted in enumerate(eagle.runs(features, lesson.embedded(), RUNS)):
            guessers, wanted = lesson.ahead(1)
            inside = eagle.t2d[lesson.logits[wanted].argmax(-1)] & in_row(guessers, lesson, run)
            scores = eagle.lm_head(drafted.prediction.flatten(0, 1)[guessers[inside]])
            total = total + FADE**run * likeness(scores, lesson.logits[wanted[inside]][:, kept])
        return total

    return loss


def first_eagle_loss(eagle: FirstEagle) -> StudentLoss:
    """Smooth L1 with the target's next state, brought to size one, and a little of the likeness of tokens."""

    def loss(lesson: Lesson) -> Tensor:
        states = lesson.final.flatten(0, 1).float()
        size = states[lesson.rows].pow(2).mean().sqrt()
        total = torch.zeros((), device=lesson.final.device)
        for run, drafted in enumerate(eagle.runs(lesson.final, lesson.embedded(), MTP_RUNS)):
            guessers, wanted = lesson.ahead(1)
            inside = in_row(guessers, lesson, run)
            guessers, wanted = guessers[inside], wanted[inside]
            made = drafted.feature.flatten(0, 1)[guessers]
            nearness = F.smooth_l1_loss(made.float() / size, states[lesson.rows[wanted]] / size)
            part = slice((lesson.step + run) % ROW_SHARE, None, ROW_SHARE)
            tokens = likeness(F.linear(made[part], lesson.output), lesson.logits[wanted[part]])
            total = total + FADE**run * (nearness + TOKEN_WEIGHT * tokens)
        return total

    return loss


def in_row(guessers: Tensor, lesson: Lesson, run: int) -> Tensor:
    """Whether a place has enough places before it for this run."""
    return guessers % lesson.batch.tokens.shape[1] >= run


def mtp_loss(block: MultiToken) -> StudentLoss:
    def loss(lesson: Lesson) -> Tensor:
        total = torch.zeros((), device=lesson.final.device)
        for run, drafted in enumerate(block.runs(lesson.final, lesson.embedded(), MTP_RUNS)):
            guessers, wanted = lesson.ahead(1)
            part = slice((lesson.step + run) % ROW_SHARE, None, ROW_SHARE)
            guessers, wanted = guessers[part], wanted[part]
            inside = in_row(guessers, lesson, run)
            scores = F.linear(drafted.prediction.flatten(0, 1)[guessers[inside]], lesson.output)
            total = total + FADE**run * likeness(scores, lesson.logits[wanted[inside]])
        return total

    return loss


def medusa_loss(medusa: Medusa) -> StudentLoss:
    def loss(lesson: Lesson) -> Tensor:
        total = torch.zeros((), device=lesson.final.device)
        for index, block in enumerate(medusa.blocks()):
            guessers, wanted = lesson.ahead(index + 1)
            part = slice((lesson.step + index) % (2 * ROW_SHARE), None, 2 * ROW_SHARE)
            hidden = block(lesson.final.flatten(0, 1)[guessers[part]])
            scores = F.linear(hidden, lesson.output)
            total = total + FADE**index * likeness(scores, lesson.logits[wanted[part]])
        return total

    return loss


def student_loss(target: Network, students: dict[str, StudentLoss]) -> Callable[[Batch, int], dict[str, Tensor]]:
    """The loss of a step for all of these at once; their parameters are apart, so their sum trains each."""

    def loss(batch: Batch, step: int) -> dict[str, Tensor]:
        with torch.autocast(batch.tokens.device.type, torch.bfloat16):
            lesson = teach(target, batch, step)
            parts = {name: student(lesson) for name, student in students.items()}
        return {"loss": torch.stack(list(parts.values())).sum(), **parts}

    return loss


def kept_vocabulary(tokens: Tensor, vocabulary: int, size: int, always: Iterable[int] = ()) -> Tensor:
    """The ids that occur most often [Vd], ascending, some of them in any case."""
    counts = torch.bincount(tokens, minlength=vocabulary)
    for index in always:
        counts[index] = counts.max() + 1
    return counts.topk(size).indices.sort().values
