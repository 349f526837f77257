"""The answers that a head is trained on, in main memory, and batches of them.

Tokens only: the target's hidden states are 4.6 KB a token of the starter, and a GPU computes them faster than it could
read them from a disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recipes.answer_waves import Tokens

SORTED_ROWS = 4096  # of which batches of similar length are made


@dataclass(frozen=True)
class StreamAnswer:
    """A prompt with its answer, and how it was made."""

    tokens: Tokens
    start: int  # of the answer
    temperature: float
    kind: str = ""

    @property
    def answered(self) -> Tokens:
        return self.tokens[self.start :]


@dataclass(frozen=True)
class AnswerBatch:
    """Padded rows: tokens [B, L+1], and whether position t, which predicts token t+2, is part of an answer [B, L]."""

    tokens: Tensor
    is_answer: Tensor
    is_prompt: Tensor


def load_answer_batch(answers: Sequence[StreamAnswer], system_tokens: int, device: torch.device) -> AnswerBatch:
    """The first draft token follows the first token of the answer; the start of a prompt is the same in all."""
    length = max(len(answer.tokens) for answer in answers)
    tokens = np.zeros((len(answers), length), dtype=np.int64)
    for row, answer in enumerate(answers):
        tokens[row, : len(answer.tokens)] = answer.tokens
    lengths, starts = (
        torch.tensor(each, device=device)[:, None]
        for each in ([len(answer.tokens) for answer in answers], [answer.start for answer in answers])
    )
    position = torch.arange(length - 1, device=device)
    is_answer = (position >= starts - 1) & (position < lengths - 2)
    is_prompt = (position >= system_tokens) & (position < starts - 1)
    return AnswerBatch(torch.from_numpy(tokens).to(device), is_answer, is_prompt)


class AnswerStore:
    """All answers so far."""

    def __init__(self) -> None:
        self.answers, self.answer_tokens = list[StreamAnswer](), 0

    def add(self, answers: Sequence[StreamAnswer]) -> NDArray[np.int64]:
        """The numbers of these answers."""
        first = len(self.answers)
        self.answers += answers
        self.answer_tokens += sum(len(answer.answered) for answer in answers)
        return np.arange(first, len(self.answers))

    def batches(
        self, numbers: NDArray[np.int64], batch_tokens: int, rng: np.random.Generator
    ) -> list[list[StreamAnswer]]:
        """These answers in a random order, in batches of similar length."""
        shuffled, batches = rng.permutation(numbers), list[list[StreamAnswer]]()
        for start in range(0, len(shuffled), SORTED_ROWS):
            part = [self.answers[number] for number in shuffled[start : start + SORTED_ROWS]]
            batch = list[StreamAnswer]()
            for answer in sorted(part, key=lambda answer: len(answer.tokens)):
                if batch and (len(batch) + 1) * len(answer.tokens) > batch_tokens:
                    batches.append(batch)
                    batch = []
                batch.append(answer)
            batches.append(batch)
        return [batches[index] for index in rng.permutation(len(batches))]
