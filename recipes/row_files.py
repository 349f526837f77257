"""Training rows on disk: one .npz file per stage, read back as PackedRows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy

from specchat_train.training_batches import PADDED_LENGTHS, WEIGHT_SCALE, PackedRows


@dataclass(frozen=True)
class TrainingRow:
    """The tokens of an example with a weight for each; difficult rows come late in training."""

    tokens: list[int]
    weights: list[float]
    difficulty: float = 0.0


def save_rows(rows: Iterable[TrainingRow], path: Path) -> int:
    """Write the rows to one file; returns the number of tokens."""
    tokens: list[numpy.ndarray] = []
    weights: list[numpy.ndarray] = []
    difficulty: list[float] = []
    for row in rows:
        tokens.append(numpy.array(row.tokens[: PADDED_LENGTHS[-1]], dtype=numpy.uint16))
        scaled = [min(255, round(weight * WEIGHT_SCALE)) for weight in row.weights[: PADDED_LENGTHS[-1]]]
        weights.append(numpy.array(scaled, dtype=numpy.uint8))
        difficulty.append(row.difficulty)
    starts = numpy.cumsum([0, *(len(row_tokens) for row_tokens in tokens)])
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part.npz")
    numpy.savez(
        partial,
        tokens=numpy.concatenate(tokens),
        weights=numpy.concatenate(weights),
        starts=starts,
        difficulty=numpy.array(difficulty, dtype=numpy.float32),
    )
    partial.replace(path)
    return int(starts[-1])


def load_rows(path: Path) -> PackedRows:
    arrays = numpy.load(path)
    return PackedRows(arrays["tokens"], arrays["weights"], arrays["starts"], arrays["difficulty"])
