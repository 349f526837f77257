"""Computes the hidden states of stored answers, which the training of a head reads.

    python -m recipes.starter_states --target FOLDER --answers FOLDER --out FOLDER

States need 4.6 KB a token of the starter, so they are made for a training and deleted after it. A run continues with
the missing files.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from recipes.answer_files import load_answers, save_answers
from recipes.batched_llama import BatchedLlama, causal_mask

ROWS = 8  # of similar length, computed at once


@torch.no_grad()
def hidden_states(model: BatchedLlama, texts: Sequence[list[int]]) -> list[Tensor]:
    """The states of all tokens but the last of each text, in its order. [L-1, 4 * D]"""
    states = dict[int, Tensor]()
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    for part in (order[first : first + ROWS] for first in range(0, len(order), ROWS)):
        longest = max(len(texts[index]) for index in part)
        tokens = torch.tensor([texts[index] + [0] * (longest - len(texts[index])) for index in part])
        no_padding = torch.zeros(len(part), dtype=torch.int64)  # on the left; what follows a text is not seen by it
        positions, mask = (
            torch.arange(longest).expand(len(part), -1),
            causal_mask(no_padding, longest, longest, model.dtype),
        )
        computed = model.forward(tokens, positions, model.new_cache(len(part), longest), 0, mask)
        states |= {index: computed[row, : len(texts[index]) - 1].clone() for row, index in enumerate(part)}
    return [states[index] for index in range(len(texts))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--target", "--answers", "--out"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    model = BatchedLlama(arguments.target)
    for path in sorted(arguments.answers.glob("*.safetensors")):
        if not (arguments.out / path.name).is_file() and (answers := load_answers(path)):
            save_answers(arguments.out / path.name, answers, hidden_states(model, [each.tokens for each in answers]))
            print(path.name, flush=True)


if __name__ == "__main__":
    main()
