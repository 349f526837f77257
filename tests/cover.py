"""A small set of combinations that covers every pair of choices (a pairwise cover), and the whole product."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(*axes: list[Any]) -> list[tuple[Any, ...]]:
    """Combinations, one value of each axis, that contain every pair of values of two axes."""
    places = list(combinations(range(len(axes)), 2))
    missing = {(i, j, a, b) for i, j in places for a, b in product(range(len(axes[i])), range(len(axes[j])))}
    rows: list[tuple[int, ...]] = []
    candidates = list(product(*(range(len(axis)) for axis in axes)))
    while missing:
        best = max(candidates, key=lambda row: sum((i, j, row[i], row[j]) in missing for i, j in places))
        rows.append(best)
        missing -= {(i, j, best[i], best[j]) for i, j in places}
    return [tuple(axis[index] for axis, index in zip(axes, row, strict=True)) for row in rows]


def matrix(*axes: list[Any], seldom: Collection[Any] = ()) -> list[Any]:
    """Test parameters: the pairwise cover of all but `seldom` values always, all other combinations marked `full`."""
    cover = set(pairwise(*([value for value in axis if value not in seldom] for axis in axes)))
    return [
        pytest.param(*row, marks=() if row in cover else pytest.mark.full, id="-".join(map(str, row)))
        for row in product(*axes)
    ]
