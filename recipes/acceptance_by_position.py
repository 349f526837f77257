"""The acceptance of draft tokens by position, measured without the engine.

The texts are the target's own greedy answers. Position k counts draft tokens whose k-1 predecessors were correct, as in
a chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specchat_train.trainable_heads import Eagle1, Eagle3, HeadOutput, Medusa, MtpBlock
from specchat_train.trainable_llama import TrainableLlama


@dataclass(frozen=True)
class PositionAcceptance:
    """The share of accepted draft tokens by position, among those whose predecessors were accepted."""

    by_position: tuple[float, ...]

    @property
    def tokens_per_step(self) -> float:
        """The mean accepted length of a chain, plus the token of the target."""
        accepted, total = 1.0, 1.0
        for share in self.by_position:
            accepted *= share
            total += accepted
        return total


@dataclass(frozen=True)
class Answer:
    """A prompt with the target's greedy answer, and where the answer starts."""

    tokens: list[int]
    start: int


@dataclass(frozen=True)
class TargetPass:
    """One answer with the hidden states of the target; a draft token is correct when it equals `tokens`."""

    tokens: Tensor
    start: int
    hidden_states: list[Tensor]
    final: Tensor


# Per position k: whether the draft of token i is correct, bool [L] each, False before the start.
DraftFunction = Callable[[TargetPass], list[Tensor]]


def run_target(target: TrainableLlama, answer: Answer) -> TargetPass:
    tokens = torch.tensor([answer.tokens])
    hidden_states = target(tokens)
    return TargetPass(tokens, answer.start, hidden_states, target.model.norm(hidden_states[-1]))


def correct_positions(drafted: Tensor, target_pass: TargetPass, ahead: int) -> Tensor:
    """drafted [L]: the draft at position i of token i+ahead -> for each token of the answer, whether it is correct."""
    tokens = target_pass.tokens[0]
    is_correct = torch.zeros(len(tokens), dtype=torch.bool)
    is_correct[ahead:] = drafted[: len(tokens) - ahead] == tokens[ahead:]
    return is_correct


@torch.no_grad()
def measure(target: TrainableLlama, answers: Sequence[Answer], draft: DraftFunction, depth: int) -> PositionAcceptance:
    """Measure chains that start at every token of every answer."""
    drafted, accepted = [0] * depth, [0] * depth
    for answer in answers:
        is_correct = draft(run_target(target, answer))
        first = torch.arange(answer.start + 1, len(answer.tokens))
        alive = torch.ones(len(first), dtype=torch.bool)
        for position in range(depth):
            index = first + position
            alive = alive & (index < len(answer.tokens))
            drafted[position] += int(alive.sum())
            alive = alive & is_correct[position][index.clamp(max=len(answer.tokens) - 1)]
            accepted[position] += int(alive.sum())
    return PositionAcceptance(tuple(count / max(1, total) for count, total in zip(accepted, drafted, strict=True)))


def draft_model_tokens(draft: TrainableLlama, depth: int) -> DraftFunction:
    def propose(target_pass: TargetPass) -> list[Tensor]:
        logits = draft.logits(draft(target_pass.tokens)[-1])
        return [correct_positions(logits.argmax(-1)[0], target_pass, 1)] * depth

    return propose


def early_exit_tokens(target: TrainableLlama, layer: int, depth: int) -> DraftFunction:
    def propose(target_pass: TargetPass) -> list[Tensor]:
        logits = target.logits(target_pass.hidden_states[layer])
        return [correct_positions(logits.argmax(-1)[0], target_pass, 1)] * depth

    return propose


def medusa_tokens(medusa: Medusa, target: TrainableLlama) -> DraftFunction:
    def propose(target_pass: TargetPass) -> list[Tensor]:
        logits = [F.linear(hidden, target.model.embed_tokens.weight) for hidden in medusa(target_pass.final)]
        return [correct_positions(each.argmax(-1)[0], target_pass, 2 + index) for index, each in enumerate(logits)]

    return propose


def eagle3_tokens(
    eagle: Eagle3, target: TrainableLlama, hidden_state_layers: tuple[int, ...], depth: int
) -> DraftFunction:
    def propose(target_pass: TargetPass) -> list[Tensor]:
        features = torch.cat([target_pass.hidden_states[layer] for layer in hidden_state_layers], dim=-1)
        outputs = eagle.unroll(features, next_embeddings(target_pass, target), depth)
        return unrolled_head_tokens(
            outputs, target_pass, lambda hidden: eagle.draft_token_ids[eagle.lm_head(hidden).argmax(-1)[0]]
        )

    return propose


def final_state_head_tokens(block: MtpBlock | Eagle1, target: TrainableLlama, depth: int) -> DraftFunction:
    """Draft tokens of a block that reads the state after the final norm and uses the target's output matrix."""

    def propose(target_pass: TargetPass) -> list[Tensor]:
        outputs = block.unroll(target_pass.final, next_embeddings(target_pass, target), depth)
        lm_head = target.model.embed_tokens.weight
        return unrolled_head_tokens(outputs, target_pass, lambda hidden: F.linear(hidden, lm_head).argmax(-1)[0])

    return propose


def unrolled_head_tokens(
    outputs: Iterable[HeadOutput], target_pass: TargetPass, choose: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Step k at position i predicts token i+2 from true features up to position i-k."""
    return [correct_positions(choose(output.prediction), target_pass, 2) for output in outputs]


def next_embeddings(target_pass: TargetPass, target: TrainableLlama) -> Tensor:
    return target.model.embed_tokens(target_pass.tokens.roll(-1, dims=1))
