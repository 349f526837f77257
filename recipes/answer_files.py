"""Files of answers: tokens, and where they were computed, the hidden states of all tokens but the last.

Tokens alone are small (8 bytes each with their prompts); states are 4.6 KB a token of the starter, so they are
computed for the time of a training only (`starter_states`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor


@dataclass(frozen=True)
class Answer:
    """The tokens of a prompt with its answer, and at which temperature it was written."""

    tokens: list[int]
    start: int
    is_held_out: bool
    temperature: float = 0.0

    @property
    def answered(self) -> list[int]:
        return self.tokens[self.start :]


def save_answers(path: Path, answers: Sequence[Answer], states: Iterable[Tensor] = ()) -> None:
    """Store answers atomically, with the states of each [L-1, layers * D] if there are some."""
    content = {
        "tokens": torch.tensor([token for answer in answers for token in answer.tokens], dtype=torch.int32),
        "lengths": torch.tensor([len(answer.tokens) for answer in answers], dtype=torch.int64),
        "answer_starts": torch.tensor([answer.start for answer in answers], dtype=torch.int64),
        "is_held_out": torch.tensor([answer.is_held_out for answer in answers], dtype=torch.bool),
        "temperatures": torch.tensor([answer.temperature for answer in answers], dtype=torch.float32),
    }
    if parts := list(states):
        content["states"] = torch.cat(parts)
    save_file(content, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def load_answers(path: Path) -> list[Answer]:
    names = ("tokens", "lengths", "answer_starts", "is_held_out", "temperatures")
    with safe_open(path, framework="pt") as file:
        tokens, lengths, starts, held_out, temperatures = (file.get_tensor(name).tolist() for name in names)
    answers, first = list[Answer](), 0
    for length, start, is_held_out, temperature in zip(lengths, starts, held_out, temperatures, strict=True):
        answers.append(Answer(tokens[first : first + length], start, is_held_out, round(temperature, 3)))
        first += length
    return answers
