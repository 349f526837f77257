"""The loss of each kind of head, and of a draft model, from the hidden states and logits of the target.

A draft model learns the target's distribution. EAGLE-3 and MTP learn it over several steps on their own output, as does
EAGLE-1, which also learns the next hidden state. Medusa learns the tokens further ahead. Only rows of answers count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specchat_train.chunked_cross_entropy import chunked_cross_entropy, probabilities
from specchat_train.trainable_heads import Eagle1, Eagle3, Medusa, MtpBlock
from specchat_train.trainable_llama import TrainableLlama
from specchat_train.training_batches import Batch

EAGLE3_STEPS = 4
MTP_STEPS = 3
STEP_LOSS_DECAY = 0.8
TOKEN_LOSS_WEIGHT = 0.1  # of the token loss of EAGLE-1, beside the loss of hidden states; as in SafeAILab's training
SCORED_ROW_INTERVAL = 2  # MTP, Medusa and EAGLE-1 score the whole vocabulary: only every n-th row, to save time

StudentLoss = Callable[["DistillationBatch"], Tensor]


@dataclass(frozen=True)
class DistillationBatch:
    batch: Batch
    hidden_states: list[Tensor] | Mapping[int, Tensor]  # by layer, [B, L, D]
    final_hidden: Tensor  # after the final norm [B, L, D]
    supervised_rows: Tensor  # flat indices [R]
    embedding_weight: Tensor  # [V, D]
    lm_head_weight: Tensor  # [V, D]
    step: int

    def next_token_embeddings(self) -> Tensor:
        """The embeddings of the next tokens [B, L, D]; the last position has the first token and carries no loss."""
        return F.embedding(self.batch.tokens.roll(-1, dims=1), self.embedding_weight).to(self.final_hidden.dtype)

    @torch.no_grad()
    def target_logits(self, indices: Tensor) -> Tensor:
        """The target's logits of these supervised rows [n, V], computed anew: of all rows they are too large."""
        hidden = self.final_hidden.flatten(0, 1)[self.supervised_rows[indices]]
        return F.linear(hidden.to(self.lm_head_weight.dtype), self.lm_head_weight).float()

    def draft_positions(self, offset: int) -> tuple[Tensor, Tensor]:
        """Rows that predict `offset` tokens further ahead than the target: (flat row, index into `supervised_rows`)."""
        length = self.batch.tokens.shape[1]
        is_inside = (self.supervised_rows % length) >= offset
        indices = is_inside.nonzero().squeeze(1)
        return self.supervised_rows[indices] - offset, indices


def soft_cross_entropy(logits: Tensor, target_logits: Tensor) -> Tensor:
    """Cross-entropy of logits [R, V] with the distribution of `target_logits` [R, V]."""
    return -(target_logits.softmax(-1) * F.log_softmax(logits.float(), -1)).sum(-1).mean()


def draft_loss(draft: TrainableLlama) -> StudentLoss:
    def loss(batch: DistillationBatch) -> Tensor:
        hidden = draft(batch.batch.tokens)[-1].flatten(0, 1)[batch.supervised_rows]
        every_row = torch.arange(len(hidden), device=hidden.device)
        return soft_cross_entropy(draft.logits(hidden), batch.target_logits(every_row))

    return loss


def eagle3_loss(eagle: Eagle3, hidden_state_layers: tuple[int, ...]) -> StudentLoss:
    """The loss over the draft vocabulary; rows whose next token is not in it carry none."""

    def loss(batch: DistillationBatch) -> Tensor:
        features = torch.cat([batch.hidden_states[layer] for layer in hidden_state_layers], dim=-1)
        rows, indices = batch.draft_positions(1)
        target_rows = batch.supervised_rows[indices]
        is_drafted = eagle.t2d[batch.batch.tokens.flatten()[target_rows + 1]]
        rows, target_rows = rows[is_drafted], target_rows[is_drafted]
        hidden = batch.final_hidden.flatten(0, 1)[target_rows]
        target = probabilities(hidden, batch.lm_head_weight[eagle.draft_token_ids].to(hidden.dtype), hidden.dtype)
        total = torch.zeros((), device=rows.device)
        for step, output in enumerate(eagle.unroll(features, batch.next_token_embeddings(), EAGLE3_STEPS)):
            used = has_enough_context(rows, batch, step)
            prediction = output.prediction.flatten(0, 1)[rows[used]]
            total = total + STEP_LOSS_DECAY**step * chunked_cross_entropy(
                prediction, eagle.lm_head.weight, target[used]
            )
        return total

    return loss


def eagle1_loss(eagle: Eagle1) -> StudentLoss:
    """Smooth L1 loss of the next hidden state, normalized, plus the token loss times TOKEN_LOSS_WEIGHT."""

    def loss(batch: DistillationBatch) -> Tensor:
        states = batch.final_hidden.flatten(0, 1).float()
        rms = states[batch.supervised_rows].pow(2).mean().sqrt()
        total = torch.zeros((), device=batch.final_hidden.device)
        for step, output in enumerate(eagle.unroll(batch.final_hidden, batch.next_token_embeddings(), MTP_STEPS)):
            rows, indices = batch.draft_positions(1)
            used = has_enough_context(rows, batch, step)
            rows, indices = rows[used], indices[used]
            features = output.feature.flatten(0, 1)[rows]
            state_loss = F.smooth_l1_loss(features.float() / rms, states[batch.supervised_rows[indices]] / rms)
            part = slice((batch.step + step) % SCORED_ROW_INTERVAL, None, SCORED_ROW_INTERVAL)
            logits = F.linear(features[part], batch.lm_head_weight)
            token_loss = soft_cross_entropy(logits, batch.target_logits(indices[part]))
            total = total + STEP_LOSS_DECAY**step * (state_loss + TOKEN_LOSS_WEIGHT * token_loss)
        return total

    return loss


def has_enough_context(rows: Tensor, batch: DistillationBatch, step: int) -> Tensor:
    return rows % batch.batch.tokens.shape[1] >= step


def mtp_loss(block: MtpBlock) -> StudentLoss:
    def loss(batch: DistillationBatch) -> Tensor:
        total = torch.zeros((), device=batch.final_hidden.device)
        for step, output in enumerate(block.unroll(batch.final_hidden, batch.next_token_embeddings(), MTP_STEPS)):
            rows, indices = batch.draft_positions(1)
            part = slice((batch.step + step) % SCORED_ROW_INTERVAL, None, SCORED_ROW_INTERVAL)
            rows, indices = rows[part], indices[part]
            used = has_enough_context(rows, batch, step)
            logits = F.linear(output.prediction.flatten(0, 1)[rows[used]], batch.lm_head_weight)
            total = total + STEP_LOSS_DECAY**step * soft_cross_entropy(logits, batch.target_logits(indices[used]))
        return total

    return loss


def medusa_loss(medusa: Medusa) -> StudentLoss:
    def loss(batch: DistillationBatch) -> Tensor:
        total = torch.zeros((), device=batch.final_hidden.device)
        for index, block in enumerate(medusa.blocks()):
            rows, indices = batch.draft_positions(index + 1)
            part = slice((batch.step + index) % (2 * SCORED_ROW_INTERVAL), None, 2 * SCORED_ROW_INTERVAL)
            hidden = block(batch.final_hidden.flatten(0, 1)[rows[part]])
            logits = F.linear(hidden, batch.lm_head_weight)
            total = total + STEP_LOSS_DECAY**index * soft_cross_entropy(logits, batch.target_logits(indices[part]))
        return total

    return loss


def draft_vocabulary(tokens: Tensor, vocabulary: int, size: int, required_ids: Iterable[int] = ()) -> Tensor:
    """The most frequent ids [Vd], ascending, always with `required_ids`."""
    counts = torch.bincount(tokens, minlength=vocabulary)
    for index in required_ids:
        counts[index] = counts.max() + 1
    return counts.topk(size).indices.sort().values
