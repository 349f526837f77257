"""A small set of combinations that covers every pair of choices, or many of them, and the whole product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import combinations, product
from math import gcd
from random import Random
from typing import Any

import pytest

makes_full_cases = True  # the root's conftest.py says no for a default run, which would make them and leave them out
makes_every_case = False  # `--every-combination` says yes

SAMPLED_SHARE, LEAST_OF_SAMPLE = 10, 1
SHARE = "share"  # the parameter of a table that is dealt out, see each_row.py

Row = tuple[int, ...]  # an index into each axis
Pair = tuple[int, int, int, int]  # two axes, and an index into each


def pairs_of(row: Row) -> set[Pair]:
    return {(i, j, row[i], row[j]) for i, j in combinations(range(len(row)), 2)}


def cover_of(*axes: list[Any], rounds: int = 0) -> list[tuple[Any, ...]]:
    """Combinations, one value of each axis, that contain every pair of values of two axes (a pairwise cover).

    With `rounds`, each value of the longest axis in so many combinations only, and in them as many pairs as possible.
    """
    candidates = list(product(*(range(len(axis)) for axis in axes)))
    longest = max(range(len(axes)), key=lambda index: len(axes[index]))
    pairs = {row: pairs_of(row) for row in candidates}
    missing = set[Pair]().union(*pairs.values())
    rows, used = list[Row](), Counter[tuple[int, int]]()
    while len(rows) < rounds * len(axes[longest]) if rounds else missing:
        of_round = [row for row in candidates if not rounds or row[longest] == len(rows) % len(axes[longest])]
        best = max(of_round, key=lambda row: (len(pairs[row] & missing), -sum(used[each] for each in enumerate(row))))
        missing -= pairs[best]
        used.update(enumerate(best))
        rows.append(best)
    return [tuple(axis[index] for axis, index in zip(axes, row, strict=True)) for row in rows]


def matrix(*axes: list[Any], seldom: Collection[Any] = (), rounds: int = 0, step: int = 1) -> list[Any]:
    """Test parameters: the cover of all but `seldom` values always, the other combinations marked `full`.

    Of three and more axes, every second combination (as the black fields of a chessboard): with each choice of all
    values but one, so that every fault which does not need all of them is met. With a `step`, every step-th instead. It
    has no common divisor with the length of an axis, so that every pair of values remains. All with
    `pytest -m full --every-combination`, which takes hours.
    """
    if any(gcd(step, len(axis)) > 1 for axis in axes):
        raise ValueError(f"a step of {step} leaves pairs out: an axis has a length with a common divisor")
    cover = set(cover_of(*([value for value in axis if value not in seldom] for axis in axes), rounds=rounds))
    is_halved = len(axes) > 2 and step == 1
    indices = product(*(range(len(axis)) for axis in axes))
    return [
        pytest.param(*row, marks=() if row in cover else pytest.mark.full, id="-".join(map(str, row)))
        for number, (row, at) in enumerate(zip(product(*axes), indices, strict=True))
        if row in cover or makes_every_case or (makes_full_cases and not (sum(at) % 2 if is_halved else number % step))
    ]


def rest_of_cover(cases: list[pytest.Function], count: int) -> list[pytest.Function]:
    """The cases beyond `count`, after those were chosen that bring the most new values and pairs of values."""
    if len(cases) <= count:
        return []
    facts = {case: _values_and_pairs(case) for case in cases}
    rest, seen = list(cases), set[frozenset[tuple[str, int]]]()
    for _ in range(count):
        best = max(rest, key=lambda case: len(facts[case] - seen))
        rest.remove(best)
        seen |= facts[best]
    return rest


def rest_of_sample(cases: list[pytest.Function]) -> list[pytest.Function]:
    """The cases beyond a tenth, and beyond one: those that bring the fewest new pairs of values, else any.

    Of a function that combines values, each of them is in a case that stays; of a table, all shares. The same ones in
    each process and run, and others than the first ones, which a default run has.
    """
    if len(cases) <= LEAST_OF_SAMPLE or SHARE in cases[0].callspec.indices:  # one case may have no callspec
        return []
    drawn = Random(len(cases)).sample(cases, len(cases))
    return rest_of_cover(drawn, max(LEAST_OF_SAMPLE, len(cases) // SAMPLED_SHARE, _most_combined_values(cases)))


def _most_combined_values(cases: list[pytest.Function]) -> int:
    """How many values the longest axis has; 0 where each of them has a case of its own, as in a table of cases."""
    values = Counter(name for name, _index in {each for case in cases for each in case.callspec.indices.items()})
    longest = max(values.values(), default=0)
    return longest if longest < len(cases) else 0


def _values_and_pairs(case: pytest.Function) -> set[frozenset[tuple[str, int]]]:
    values = list(case.callspec.indices.items())  # not the values themselves: two processes must choose alike
    return {frozenset((value,)) for value in values} | {frozenset(pair) for pair in combinations(values, 2)}
