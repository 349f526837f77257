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

LENGTHS = (*range(64, 1024, 64), *range(1024, 2048, 256), 2048, 4096)
WEIGHT_UNIT = 16  # weights are kept as whole sixteenths


@dataclass(frozen=True)
class Row:
    """Tokens, and how much it matters to predict each of them; hard rows come late in a curriculum."""

    tokens: list[int]
    weights: list[float]
    hardness: float = 0.0


@dataclass(frozen=True)
class Batch:
    """tokens [B, L]; weights [B, L], 0 where a token carries no loss."""

    tokens: Tensor
    weights: Tensor

    @property
    def size(self) -> int:
        return self.tokens.numel()


@dataclass(frozen=True)
class Shelf:
    """All rows of a stage in three flat arrays."""

    tokens: numpy.ndarray
    weights: numpy.ndarray
    starts: numpy.ndarray
    hardness: numpy.ndarray

    def __len__(self) -> int:
        return len(self.hardness)

    def length(self, index: int) -> int:
        return int(self.starts[index + 1] - self.starts[index])

    def batch(self, indices: Sequence[int], length: int, padding: int) -> Batch:
        tokens = numpy.full((len(indices), length), padding, dtype=numpy.int64)
        weights = numpy.zeros((len(indices), length), dtype=numpy.float32)
        for line, index in enumerate(indices):
            start, stop = self.starts[index], self.starts[index + 1]
            tokens[line, : stop - start] = self.tokens[start:stop]
            weights[line, : stop - start] = self.weights[start:stop] / WEIGHT_UNIT
        weights[:, 0] = 0.0
        return Batch(torch.from_numpy(tokens), torch.from_numpy(weights))


def save_rows(rows: Iterable[Row], path: Path) -> int:
    """Write the rows to one file and say how many tokens they hold."""
    tokens: list[numpy.ndarray] = []
    weights: list[numpy.ndarray] = []
    hardness: list[float] = []
    for row in rows:
        tokens.append(numpy.array(row.tokens[: LENGTHS[-1]], dtype=numpy.uint16))
        scaled = [min(255, round(weight * WEIGHT_UNIT)) for weight in row.weights[: LENGTHS[-1]]]
        weights.append(numpy.array(scaled, dtype=numpy.uint8))
        hardness.append(row.hardness)
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


def load_rows(path: Path) -> Shelf:
    held = numpy.load(path)
    return Shelf(held["tokens"], held["weights"], held["starts"], held["hardness"])


@dataclass(frozen=True)
class Plan:
    """The order of batches: each a padded length and the rows it holds."""

    lengths: list[int]
    members: list[list[int]]

    def __len__(self) -> int:
        return len(self.lengths)


def plan_batches(shelf: Shelf, batch_tokens: int, seed: int, longest: int = LENGTHS[-1]) -> Plan:
    """Sort the rows into lengths, then order batches by hardness with much noise; longer than `longest` is left out."""
    dice = random.Random(seed)
    shelves: dict[int, list[int]] = {length: [] for length in LENGTHS if length <= longest}
    for index in range(len(shelf)):
        fitting = next((length for length in shelves if shelf.length(index) <= length), None)
        if fitting is not None and shelf.length(index) > 1:
            shelves[fitting].append(index)
    noise = [dice.random() for _ in range(len(shelf))]
    batches: list[tuple[float, int, list[int]]] = []
    for length, indices in shelves.items():
        indices.sort(key=lambda index: shelf.hardness[index] + noise[index])
        count = max(1, batch_tokens // length)
        for start in range(0, len(indices), count):
            members = indices[start : start + count]
            hardness = sum(shelf.hardness[index] for index in members) / len(members)
            batches.append((hardness + dice.random(), length, members))
    batches.sort(key=lambda batch: batch[0])
    return Plan([length for _, length, _ in batches], [members for _, _, members in batches])
