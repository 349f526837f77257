"""How often each drafter's guess is the target's own choice, by how far ahead: measured without an engine.

The texts are the target's own greedy answers, read once by everybody with the true tokens before each guess. What is
counted at position k is the guess after k-1 right ones, which is what a chain meets that got so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specchat.train.trainable_heads import Eagle1, Eagle3, HeadOutput, Medusa, MtpBlock
from specchat.train.trainable_llama import TrainableLlama


@dataclass(frozen=True)
class PositionAcceptance:
    """The share of guesses that held, by position, each among those whose forerunners held."""

    by_position: tuple[float, ...]

    @property
    def tokens_per_step(self) -> float:
        """What a chain of so many guesses gives, the target's own token included."""
        kept, total = 1.0, 1.0
        for share in self.by_position:
            kept *= share
            total += kept
        return total


@dataclass(frozen=True)
class Answer:
    """A prompt with the target's greedy answer, and where the answer starts."""

    tokens: list[int]
    start: int


@dataclass(frozen=True)
class TargetPass:
    """One answer as everybody sees it: guesses are right when they equal `tokens`."""

    tokens: Tensor
    start: int
    stream: list[Tensor]
    final: Tensor


DraftFunction = Callable[
    [TargetPass], list[Tensor]
]  # per position k: is the guess for token i right, [L] each, False before the start


def run_target(target: TrainableLlama, answer: Answer) -> TargetPass:
    tokens = torch.tensor([answer.tokens])
    stream = target(tokens)
    return TargetPass(tokens, answer.start, stream, target.model.norm(stream[-1]))


def correct_positions(guessed: Tensor, reading: TargetPass, ahead: int) -> Tensor:
    """guessed [L]: what place i thinks token i+ahead is -> for each token of the answer, whether that was right."""
    wanted = reading.tokens[0]
    right = torch.zeros(len(wanted), dtype=torch.bool)
    right[ahead:] = guessed[: len(wanted) - ahead] == wanted[ahead:]
    return right


@torch.no_grad()
def measure(target: TrainableLlama, answers: Sequence[Answer], guess: DraftFunction, depth: int) -> PositionAcceptance:
    """Chains that start at every token of every answer."""
    tried, held = [0] * depth, [0] * depth
    for answer in answers:
        reading = run_target(target, answer)
        right = guess(reading)
        first = torch.arange(answer.start + 1, len(answer.tokens))
        alive = torch.ones(len(first), dtype=torch.bool)
        for position in range(depth):
            place = first + position
            alive = alive & (place < len(answer.tokens))
            tried[position] += int(alive.sum())
            alive = alive & right[position][place.clamp(max=len(answer.tokens) - 1)]
            held[position] += int(alive.sum())
    return PositionAcceptance(tuple(good / max(1, total) for good, total in zip(held, tried, strict=True)))


def draft_model_tokens(draft: TrainableLlama, depth: int) -> DraftFunction:
    def guess(reading: TargetPass) -> list[Tensor]:
        right = correct_positions(draft.logits(draft(reading.tokens)[-1]).argmax(-1)[0], reading, 1)
        return [right] * depth

    return guess


def early_exit_tokens(target: TrainableLlama, layer: int, depth: int) -> DraftFunction:
    def guess(reading: TargetPass) -> list[Tensor]:
        right = correct_positions(target.logits(reading.stream[layer]).argmax(-1)[0], reading, 1)
        return [right] * depth

    return guess


def medusa_tokens(medusa: Medusa, target: TrainableLlama) -> DraftFunction:
    def guess(reading: TargetPass) -> list[Tensor]:
        scores = [F.linear(hidden, target.model.embed_tokens.weight) for hidden in medusa(reading.final)]
        return [correct_positions(score.argmax(-1)[0], reading, 2 + index) for index, score in enumerate(scores)]

    return guess


def eagle3_tokens(
    eagle: Eagle3, target: TrainableLlama, hidden_state_layers: tuple[int, ...], depth: int
) -> DraftFunction:
    def guess(reading: TargetPass) -> list[Tensor]:
        features = torch.cat([reading.stream[tap] for tap in hidden_state_layers], dim=-1)
        runs = eagle.unroll(features, next_embeddings(reading, target), depth)
        return unrolled_head_tokens(
            runs, reading, lambda hidden: eagle.draft_token_ids[eagle.lm_head(hidden).argmax(-1)[0]]
        )

    return guess


def final_state_head_tokens(block: MtpBlock | Eagle1, target: TrainableLlama, depth: int) -> DraftFunction:
    """Guesses of a block that reads the state after the final norm and borrows the output matrix."""

    def guess(reading: TargetPass) -> list[Tensor]:
        runs = block.unroll(reading.final, next_embeddings(reading, target), depth)
        output = target.model.embed_tokens.weight
        return unrolled_head_tokens(runs, reading, lambda hidden: F.linear(hidden, output).argmax(-1)[0])

    return guess


def unrolled_head_tokens(
    runs: Iterable[HeadOutput], reading: TargetPass, choose: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Run k at place i speaks about token i+2, having seen true features up to place i-k only."""
    return [correct_positions(choose(drafted.prediction), reading, 2) for drafted in runs]


def next_embeddings(reading: TargetPass, target: TrainableLlama) -> Tensor:
    return target.model.embed_tokens(reading.tokens.roll(-1, dims=1))
