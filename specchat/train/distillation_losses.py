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

from specchat.train.target_loss import supervised_rows
from specchat.train.trainable_heads import Eagle1, Eagle3, Medusa, MtpBlock
from specchat.train.trainable_llama import TrainableLlama
from specchat.train.training_batches import Batch

EAGLE3_STEPS = 4
MTP_STEPS = 3
STEP_LOSS_DECAY = 0.8
TOKEN_LOSS_WEIGHT = 0.1  # of the tokens in the first EAGLE's loss, beside the states; as SafeAILab trains it
SCORED_ROW_INTERVAL = (
    2  # MTP, Medusa and the first EAGLE score the whole vocabulary, so only one row in so many is scored
)

StudentLoss = Callable[["DistillationBatch"], Tensor]


@dataclass(frozen=True)
class DistillationBatch:
    """One pass of the target over a batch, and which of its rows count."""

    batch: Batch
    hidden_states: (
        list[Tensor] | Mapping[int, Tensor]
    )  # the residual stream after so many layers; all, or those that are read
    final_hidden: Tensor
    supervised_rows: Tensor
    target_logits: Tensor
    embedding_weight: Tensor
    lm_head_weight: Tensor  # the matrix that reads `final`; often the embedding itself
    step: int

    def next_token_embeddings(self) -> Tensor:
        """Embeddings of the tokens one place ahead [B, L, D]; the last place holds the first token and never counts."""
        return F.embedding(self.batch.tokens.roll(-1, dims=1), self.embedding_weight).to(self.final_hidden.dtype)

    def draft_positions(self, offset: int) -> tuple[Tensor, Tensor]:
        """Where a guess `places` further than the target's own is made: (row of the guesser, index into `logits`)."""
        length = self.batch.tokens.shape[1]
        is_inside = (self.supervised_rows % length) >= offset
        found = is_inside.nonzero().squeeze(1)
        return self.supervised_rows[found] - offset, found


def run_target(network: TrainableLlama, batch: Batch, step: int) -> DistillationBatch:
    """Let the target read the batch; nothing of it is trained here."""
    with torch.no_grad():
        stream = network(batch.tokens)
        final = network.model.norm(stream[-1])
        rows, _, _ = supervised_rows(batch)
        logits = F.linear(final.flatten(0, 1)[rows], network.model.embed_tokens.weight).float()
    table = network.model.embed_tokens.weight.detach()
    return DistillationBatch(batch, stream, final, rows, logits, table, table, step)


def soft_cross_entropy(scores: Tensor, target_logits: Tensor) -> Tensor:
    """Cross-entropy of scores [R, V] with the distribution of `wanted` [R, V]."""
    return -(target_logits.softmax(-1) * F.log_softmax(scores.float(), -1)).sum(-1).mean()


def draft_loss(draft: TrainableLlama) -> StudentLoss:
    def loss(lesson: DistillationBatch) -> Tensor:
        hidden = draft(lesson.batch.tokens)[-1].flatten(0, 1)[lesson.supervised_rows]
        return soft_cross_entropy(draft.logits(hidden), lesson.target_logits)

    return loss


def eagle3_loss(eagle: Eagle3, hidden_state_layers: tuple[int, ...]) -> StudentLoss:
    def loss(lesson: DistillationBatch) -> Tensor:
        features = torch.cat([lesson.hidden_states[tap] for tap in hidden_state_layers], dim=-1)
        kept = eagle.draft_token_ids
        total = torch.zeros((), device=kept.device)
        for run, drafted in enumerate(eagle.unroll(features, lesson.next_token_embeddings(), EAGLE3_STEPS)):
            guessers, wanted = lesson.draft_positions(1)
            inside = eagle.t2d[lesson.target_logits[wanted].argmax(-1)] & has_enough_context(guessers, lesson, run)
            scores = eagle.lm_head(drafted.prediction.flatten(0, 1)[guessers[inside]])
            total = total + STEP_LOSS_DECAY**run * soft_cross_entropy(
                scores, lesson.target_logits[wanted[inside]][:, kept]
            )
        return total

    return loss


def eagle1_loss(eagle: Eagle1) -> StudentLoss:
    """Smooth L1 with the target's next state, brought to size one, and a little of the likeness of tokens."""

    def loss(lesson: DistillationBatch) -> Tensor:
        states = lesson.final_hidden.flatten(0, 1).float()
        size = states[lesson.supervised_rows].pow(2).mean().sqrt()
        total = torch.zeros((), device=lesson.final_hidden.device)
        for run, drafted in enumerate(eagle.unroll(lesson.final_hidden, lesson.next_token_embeddings(), MTP_STEPS)):
            guessers, wanted = lesson.draft_positions(1)
            inside = has_enough_context(guessers, lesson, run)
            guessers, wanted = guessers[inside], wanted[inside]
            made = drafted.feature.flatten(0, 1)[guessers]
            nearness = F.smooth_l1_loss(made.float() / size, states[lesson.supervised_rows[wanted]] / size)
            part = slice((lesson.step + run) % SCORED_ROW_INTERVAL, None, SCORED_ROW_INTERVAL)
            tokens = soft_cross_entropy(F.linear(made[part], lesson.lm_head_weight), lesson.target_logits[wanted[part]])
            total = total + STEP_LOSS_DECAY**run * (nearness + TOKEN_LOSS_WEIGHT * tokens)
        return total

    return loss


def has_enough_context(positions: Tensor, lesson: DistillationBatch, step: int) -> Tensor:
    """Whether a place has enough places before it for this run."""
    return positions % lesson.batch.tokens.shape[1] >= step


def mtp_loss(block: MtpBlock) -> StudentLoss:
    def loss(lesson: DistillationBatch) -> Tensor:
        total = torch.zeros((), device=lesson.final_hidden.device)
        for run, drafted in enumerate(block.unroll(lesson.final_hidden, lesson.next_token_embeddings(), MTP_STEPS)):
            guessers, wanted = lesson.draft_positions(1)
            part = slice((lesson.step + run) % SCORED_ROW_INTERVAL, None, SCORED_ROW_INTERVAL)
            guessers, wanted = guessers[part], wanted[part]
            inside = has_enough_context(guessers, lesson, run)
            scores = F.linear(drafted.prediction.flatten(0, 1)[guessers[inside]], lesson.lm_head_weight)
            total = total + STEP_LOSS_DECAY**run * soft_cross_entropy(scores, lesson.target_logits[wanted[inside]])
        return total

    return loss


def medusa_loss(medusa: Medusa) -> StudentLoss:
    def loss(lesson: DistillationBatch) -> Tensor:
        total = torch.zeros((), device=lesson.final_hidden.device)
        for index, block in enumerate(medusa.blocks()):
            guessers, wanted = lesson.draft_positions(index + 1)
            part = slice((lesson.step + index) % (2 * SCORED_ROW_INTERVAL), None, 2 * SCORED_ROW_INTERVAL)
            hidden = block(lesson.final_hidden.flatten(0, 1)[guessers[part]])
            scores = F.linear(hidden, lesson.lm_head_weight)
            total = total + STEP_LOSS_DECAY**index * soft_cross_entropy(scores, lesson.target_logits[wanted[part]])
        return total

    return loss


def joint_student_loss(
    target: TrainableLlama, students: dict[str, StudentLoss]
) -> Callable[[Batch, int], dict[str, Tensor]]:
    """The loss of a step for all of these at once; their parameters are apart, so their sum trains each."""

    def loss(batch: Batch, step: int) -> dict[str, Tensor]:
        with torch.autocast(batch.tokens.device.type, torch.bfloat16):
            lesson = run_target(target, batch, step)
            parts = {name: student(lesson) for name, student in students.items()}
        return {"loss": torch.stack(list(parts.values())).sum(), **parts}

    return loss


def draft_vocabulary(tokens: Tensor, vocabulary: int, size: int, required_ids: Iterable[int] = ()) -> Tensor:
    """The ids that occur most often [Vd], ascending, some of them in any case."""
    counts = torch.bincount(tokens, minlength=vocabulary)
    for index in required_ids:
        counts[index] = counts.max() + 1
    return counts.topk(size).indices.sort().values
