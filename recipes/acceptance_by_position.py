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

from specchat.train.trainable_heads import Drafted, Eagle, FirstEagle, Medusa, MultiToken
from specchat.train.trainable_llama import Network


@dataclass(frozen=True)
class Acceptance:
    """The share of guesses that held, by position, each among those whose forerunners held."""

    by_position: tuple[float, ...]

    @property
    def tokens_per_pass(self) -> float:
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
class Reading:
    """One answer as everybody sees it: guesses are right when they equal `tokens`."""

    tokens: Tensor
    start: int
    stream: list[Tensor]
    final: Tensor


Guess = Callable[
    [Reading], list[Tensor]
]  # per position k: is the guess for token i right, [L] each, False before the start


def read_answer(target: Network, answer: Answer) -> Reading:
    tokens = torch.tensor([answer.tokens])
    stream = target(tokens)
    return Reading(tokens, answer.start, stream, target.model.norm(stream[-1]))


def hits(guessed: Tensor, reading: Reading, ahead: int) -> Tensor:
    """guessed [L]: what place i thinks token i+ahead is -> for each token of the answer, whether that was right."""
    wanted = reading.tokens[0]
    right = torch.zeros(len(wanted), dtype=torch.bool)
    right[ahead:] = guessed[: len(wanted) - ahead] == wanted[ahead:]
    return right


@torch.no_grad()
def measure(target: Network, answers: Sequence[Answer], guess: Guess, depth: int) -> Acceptance:
    """Chains that start at every token of every answer."""
    tried, held = [0] * depth, [0] * depth
    for answer in answers:
        reading = read_answer(target, answer)
        right = guess(reading)
        first = torch.arange(answer.start + 1, len(answer.tokens))
        alive = torch.ones(len(first), dtype=torch.bool)
        for position in range(depth):
            place = first + position
            alive = alive & (place < len(answer.tokens))
            tried[position] += int(alive.sum())
            alive = alive & right[position][place.clamp(max=len(answer.tokens) - 1)]
            held[position] += int(alive.sum())
    return Acceptance(tuple(good / max(1, total) for good, total in zip(held, tried, strict=True)))


def guess_of_draft(draft: Network, depth: int) -> Guess:
    def guess(reading: Reading) -> list[Tensor]:
        right = hits(draft.logits(draft(reading.tokens)[-1]).argmax(-1)[0], reading, 1)
        return [right] * depth

    return guess


def guess_of_exit(target: Network, layer: int, depth: int) -> Guess:
    def guess(reading: Reading) -> list[Tensor]:
        right = hits(target.logits(reading.stream[layer]).argmax(-1)[0], reading, 1)
        return [right] * depth

    return guess


def guess_of_medusa(medusa: Medusa, target: Network) -> Guess:
    def guess(reading: Reading) -> list[Tensor]:
        scores = [F.linear(hidden, target.model.embed_tokens.weight) for hidden in medusa(reading.final)]
        return [hits(score.argmax(-1)[0], reading, 2 + index) for index, score in enumerate(scores)]

    return guess


def guess_of_eagle(eagle: Eagle, target: Network, taps: tuple[int, ...], depth: int) -> Guess:
    def guess(reading: Reading) -> list[Tensor]:
        features = torch.cat([reading.stream[tap] for tap in taps], dim=-1)
        runs = eagle.runs(features, next_embeddings(reading, target), depth)
        return guesses_of_runs(runs, reading, lambda hidden: eagle.kept[eagle.lm_head(hidden).argmax(-1)[0]])

    return guess


def guess_of_final(block: MultiToken | FirstEagle, target: Network, depth: int) -> Guess:
    """Guesses of a block that reads the state after the final norm and borrows the output matrix."""

    def guess(reading: Reading) -> list[Tensor]:
        runs = block.runs(reading.final, next_embeddings(reading, target), depth)
        output = target.model.embed_tokens.weight
        return guesses_of_runs(runs, reading, lambda hidden: F.linear(hidden, output).argmax(-1)[0])

    return guess


def guesses_of_runs(runs: Iterable[Drafted], reading: Reading, choose: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Run k at place i speaks about token i+2, having seen true features up to place i-k only."""
    return [hits(choose(drafted.prediction), reading, 2) for drafted in runs]


def next_embeddings(reading: Reading, target: Network) -> Tensor:
    return target.model.embed_tokens(reading.tokens.roll(-1, dims=1))
