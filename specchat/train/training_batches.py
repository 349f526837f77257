"""What training reads: rows of tokens with a weight for each, packed on disk, batched by length.

A row is one example. Rows of similar length share a batch and are padded to one of a few lengths, so a compiled
pass sees few shapes and no example can look into another. The plan of batches follows from the seed alone:
to resume is to know the step.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor

PADDED_LENGTHS = (*range(64, 1024, 64), *range(1024, 2048, 256), 2048, 4096)
WEIGHT_SCALE = 16  # weights are kept as whole sixteenths


@dataclass(frozen=True)
class TrainingRow:
    """Tokens, and how much it matters to predict each of them; hard rows come late in a curriculum."""

    tokens: list[int]
    weights: list[float]
    difficulty: float = 0.0


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
    """All rows of a stage in three flat arrays."""

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
        for line, index in enumerate(indices):
            start, stop = self.starts[index], self.starts[index + 1]
            tokens[line, : stop - start] = self.tokens[start:stop]
            weights[line, : stop - start] = self.weights[start:stop] / WEIGHT_SCALE
        weights[:, 0] = 0.0
        return Batch(torch.from_numpy(tokens), torch.from_numpy(weights))


def save_rows(rows: Iterable[TrainingRow], path: Path) -> int:
    """Write the rows to one file and say how many tokens they hold."""
    tokens: list[numpy.ndarray] = []
    weights: list[numpy.ndarray] = []
    hardness: list[float] = []
    for row in rows:
        tokens.append(numpy.array(row.tokens[: PADDED_LENGTHS[-1]], dtype=numpy.uint16))
        scaled = [min(255, round(weight * WEIGHT_SCALE)) for weight in row.weights[: PADDED_LENGTHS[-1]]]
        weights.append(numpy.array(scaled, dtype=numpy.uint8))
        hardness.append(row.difficulty)
    starts = numpy.cumsum([0, *(len(line) for line in tokens)])
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part.npz")
    numpy.savez(
        partial,
        tokens=numpy.concatenate(tokens),
        weights=numpy.concatenate(weights),
        starts=starts,
        hardness=numpy.array(hardness, dtype=numpy.float32),
    )
    partial.replace(path)
    return int(starts[-1])


def load_rows(path: Path) -> PackedRows:
    held = numpy.load(path)
    return PackedRows(held["tokens"], held["weights"], held["starts"], held["hardness"])


@dataclass(frozen=True)
class BatchPlan:
    """The order of batches: each a padded length and the rows it holds."""

    padded_lengths: list[int]
    row_indices: list[list[int]]

    def __len__(self) -> int:
        return len(self.padded_lengths)


def plan_batches(
    packed_rows: PackedRows, batch_tokens: int, seed: int, max_length: int = PADDED_LENGTHS[-1]
) -> BatchPlan:
    """Sort the rows into lengths, then order batches by hardness with much noise; longer than `longest` is left out."""
    dice = random.Random(seed)
    shelves: dict[int, list[int]] = {length: [] for length in PADDED_LENGTHS if length <= max_length}
    for index in range(len(packed_rows)):
        fitting = next((length for length in shelves if packed_rows.row_length(index) <= length), None)
        if fitting is not None and packed_rows.row_length(index) > 1:
            shelves[fitting].append(index)
    noise = [dice.random() for _ in range(len(packed_rows))]
    batches: list[tuple[float, int, list[int]]] = []
    for length, indices in shelves.items():
        indices.sort(key=lambda index: packed_rows.difficulty[index] + noise[index])
        count = max(1, batch_tokens // length)
        for start in range(0, len(indices), count):
            members = indices[start : start + count]
            hardness = sum(packed_rows.difficulty[index] for index in members) / len(members)
            batches.append((hardness + dice.random(), length, members))
    batches.sort(key=lambda batch: batch[0])
    return BatchPlan([length for _, length, _ in batches], [members for _, _, members in batches])
