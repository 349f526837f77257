"""Packed rows of tokens with a weight for each token, and batches of rows of similar length.

A row is one example. The rows of a batch are padded to one of a few lengths, so that a compiled pass has few shapes.
The plan of batches follows from the seed, so a resumed run needs the step only.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

PADDED_LENGTHS = (*range(64, 1024, 64), *range(1024, 2048, 256), 2048, 4096)
WEIGHT_SCALE = 16  # weights are stored as integers, in sixteenths


@dataclass(frozen=True)
class Batch:
    """tokens [B, L]; weights [B, L], 0 where a token carries no loss."""

    tokens: Tensor
    weights: Tensor

    @property
    def token_count(self) -> int:
        return self.tokens.numel()


@dataclass(frozen=True)
class PackedRows:
    """All rows of a stage in flat arrays; rows of higher difficulty come later."""

    tokens: numpy.ndarray
    weights: numpy.ndarray
    starts: numpy.ndarray
    difficulty: numpy.ndarray

    def __len__(self) -> int:
        return len(self.difficulty)

    def row_length(self, index: int) -> int:
        return int(self.starts[index + 1] - self.starts[index])

    def batch(self, indices: Sequence[int], length: int, padding: int) -> Batch:
        tokens = numpy.full((len(indices), length), padding, dtype=numpy.int64)
        weights = numpy.zeros((len(indices), length), dtype=numpy.float32)
        for row, index in enumerate(indices):
            start, stop = self.starts[index], self.starts[index + 1]
            tokens[row, : stop - start] = self.tokens[start:stop]
            weights[row, : stop - start] = self.weights[start:stop] / WEIGHT_SCALE
        weights[:, 0] = 0.0
        return Batch(torch.from_numpy(tokens), torch.from_numpy(weights))


def supervised_rows(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """The rows that carry loss: their flat indices, the tokens that they predict, and their weights."""
    weights = torch.zeros_like(batch.weights)
    weights[:, :-1] = batch.weights[:, 1:]
    rows = weights.flatten().nonzero().squeeze(1)
    next_tokens = batch.tokens.flatten()[(rows + 1).clamp(max=batch.tokens.numel() - 1)]
    return rows, next_tokens, weights.flatten()[rows]


@dataclass(frozen=True)
class BatchPlan:
    padded_lengths: list[int]
    row_indices: list[list[int]]

    def __len__(self) -> int:
        return len(self.padded_lengths)


def plan_batches(
    packed_rows: PackedRows, batch_tokens: int, seed: int, max_length: int = PADDED_LENGTHS[-1]
) -> BatchPlan:
    """Group rows by padded length, and order batches by difficulty plus noise; rows above `max_length` are left out."""
    rng = random.Random(seed)
    rows_by_length: dict[int, list[int]] = {length: [] for length in PADDED_LENGTHS if length <= max_length}
    for index in range(len(packed_rows)):
        row_length = packed_rows.row_length(index)
        padded_length = next((length for length in rows_by_length if row_length <= length), None)
        if padded_length is not None and row_length > 1:
            rows_by_length[padded_length].append(index)
    noise = [rng.random() for _ in range(len(packed_rows))]
    batches: list[tuple[float, int, list[int]]] = []
    for length, indices in rows_by_length.items():
        indices.sort(key=lambda index: packed_rows.difficulty[index] + noise[index])
        count = max(1, batch_tokens // length)
        for start in range(0, len(indices), count):
            members = indices[start : start + count]
            difficulty = sum(packed_rows.difficulty[index] for index in members) / len(members)
            batches.append((difficulty + rng.random(), length, members))
    batches.sort(key=lambda batch: batch[0])
    return BatchPlan([length for _, length, _ in batches], [members for _, _, members in batches])
