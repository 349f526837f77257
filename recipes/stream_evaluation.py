"""The acceptance of heads on held-out answers, at every position, in chains, greedy and with shared noise.

Drafter and target use the same Gumbel noise (see specchat/engine/accept.py): a draft token is right when it is the best
with the noise for which the target's token is the best. The noise of an answer is not stored; noise of the same
distribution, given the target's token, is as good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from recipes.answer_store import StreamAnswer, load_answer_batch
from recipes.batched_llama import BatchedLlama
from recipes.stream_heads import TargetStates
from specchat_train.trainable_heads import Eagle3

DEPTH = 4
Part = tuple[str, float]  # kind of the question, temperature


@dataclass
class ChainCounts:
    """How many chains have 1, 2, ... right tokens at least, and how many answer tokens can be drafted."""

    accepted: Tensor
    starts: int = 0
    in_vocabulary: int = 0
    tokens: int = 0

    def summary(self) -> dict[str, float | list[float]]:
        shares = (self.accepted / max(self.starts, 1)).tolist()
        return {
            "accepted": [round(share, 4) for share in shares],
            "tokens_per_step": round(1.0 + sum(shares), 3),
            "coverage": round(self.in_vocabulary / max(self.tokens, 1), 4),
            "starts": self.starts,
        }


def conditional_noise(log_shares: Tensor, chosen: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Gumbel noise given that `chosen` is the best token with it. log-probabilities [R, V], [R] -> [R, V]

    The best value of all has a Gumbel distribution itself, and all other values have theirs, cut off there.
    """
    best, others = (
        -torch.empty(size, device=log_shares.device).exponential_(generator=generator).log_()
        for size in ((len(chosen), 1), log_shares.shape)
    )
    values = -torch.logaddexp(-best, -(log_shares + others))
    return values.scatter(1, chosen[:, None], best) - log_shares


@torch.no_grad()
def measure_heads(
    heads: dict[str, Eagle3], model: BatchedLlama, answers: Sequence[StreamAnswer], batch_tokens: int
) -> dict[str, dict[Part, ChainCounts]]:
    """The counts of each head by kind and temperature; heads in the dtype of the model."""
    long_enough = [answer for answer in answers if len(answer.answered) > DEPTH + 2]
    parts = sorted({(answer.kind, answer.temperature) for answer in long_enough})
    counts = {name: {part: ChainCounts(torch.zeros(DEPTH, dtype=torch.float64)) for part in parts} for name in heads}
    for part in parts:
        rows = [answer for answer in long_enough if (answer.kind, answer.temperature) == part]
        rows.sort(key=lambda answer: len(answer.tokens))
        while rows:
            size = max(batch_tokens // len(rows[-1].tokens), 1)
            batch, rows = load_answer_batch(rows[-size:], 0, model.device), rows[:-size]
            states = TargetStates.of(model, batch)
            for name, head in heads.items():
                _count(head, model, states, part[1], counts[name][part])
    return counts


def _count(head: Eagle3, model: BatchedLlama, states: TargetStates, temperature: float, counts: ChainCounts) -> None:
    is_answer, ids = states.batch.is_answer, head.draft_token_ids
    positions = is_answer.flatten().nonzero().squeeze(1)
    tokens = F.pad(states.batch.tokens[:, 2:], (0, 1)).flatten()[positions]
    columns = torch.searchsorted(ids, tokens).clamp(max=len(ids) - 1)
    is_drafted = head.t2d[tokens]
    noise = None
    if temperature:
        log_shares = (model.logits_of(states.final.flatten(0, 1)[positions + 1]).float() / temperature).log_softmax(-1)
        noise = conditional_noise(log_shares, tokens)[:, ids]
    right = list[Tensor]()
    for output in head.unroll(states.states, states.embedded, DEPTH):
        logits = head.lm_head(output.prediction.flatten(0, 1)[positions])
        scores = logits if noise is None else logits.float() / temperature + noise
        is_right = torch.zeros_like(is_answer).flatten()
        is_right[positions] = (scores.argmax(-1) == columns) & is_drafted
        right.append(is_right.view(is_answer.shape))
    length = is_answer.shape[1]
    is_start = is_answer[:, : length - DEPTH + 1] & is_answer[:, DEPTH - 1 :]
    alive = is_start
    for step in range(DEPTH):
        alive = alive & right[step][:, step : length - DEPTH + 1 + step]
        counts.accepted[step] += float(alive.sum())
    counts.starts += int(is_start.sum())
    counts.in_vocabulary += int(is_drafted.sum())
    counts.tokens += len(tokens)
