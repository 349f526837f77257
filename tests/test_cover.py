"""The cases of a test that a default run leaves out."""

from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace

import pytest

from tests import cover
from tests.cover import matrix, rest_of_cover, rest_of_sample


@dataclass(frozen=True)
class Case:
    drafter: int
    sampler: int

    @property
    def callspec(self):
        return SimpleNamespace(indices={"drafter": self.drafter, "sampler": self.sampler})


def test_few_cases_all_stay():
    assert [] == rest_of_cover([Case(0, 0), Case(1, 0)], count=2)


def test_every_value_stays_in_the_cases_that_are_kept():
    cases = [Case(*row) for row in product(range(6), range(3))]

    kept = set(cases) - set(rest_of_cover(cases, count=8))

    assert 8 == len(kept)
    assert set(range(6)) == {case.drafter for case in kept}
    assert set(range(3)) == {case.sampler for case in kept}


@pytest.mark.parametrize(("samplers", "count"), [(20, 24), (5, 12)])
def test_a_sample_of_the_full_cases_is_a_tenth_with_every_value_and_always_the_same(samplers, count):
    cases = [Case(*row) for row in product(range(12), range(samplers))]

    rest = rest_of_sample(cases)

    kept = set(cases) - set(rest)
    assert count == len(kept)
    assert set(range(12)) == {case.drafter for case in kept}
    assert set(range(samplers)) == {case.sampler for case in kept}
    assert rest == rest_of_sample(list(cases))
    assert kept != set(cases) - set(rest_of_cover(cases, len(kept)))


def test_a_sample_of_other_cases_is_a_tenth_at_least_one_and_all_shares_of_a_table():
    cases = [Case(number, number) for number in range(30)]

    assert 30 - 3 == len(rest_of_sample(cases))
    assert 5 - 1 == len(rest_of_sample(cases[:5]))
    shares = [SimpleNamespace(callspec=SimpleNamespace(indices={"share": number})) for number in range(5)]
    assert [] == rest_of_sample(cases[:1]) == rest_of_sample(shares) == rest_of_sample([object()])


@pytest.fixture(autouse=True)
def in_a_full_run(monkeypatch):
    monkeypatch.setattr(cover, "makes_full_cases", True)


def test_a_default_run_makes_the_cover_alone(monkeypatch):
    monkeypatch.setattr(cover, "makes_full_cases", False)
    pairs = {param.values for param in matrix(list("abc"), list("de"), list("fg"))}

    assert set(cover.cover_of(list("abc"), list("de"), list("fg"))) == pairs


def test_a_matrix_has_half_of_the_combinations_and_each_choice_of_all_values_but_one():
    axes = ["abc", "de", "fghi"]
    rows = {param.values for param in matrix(*map(list, axes))}

    assert len(rows) < 0.8 * 3 * 2 * 4  # half of them, and the cover
    for left_out in range(3):
        others = [axis for index, axis in enumerate(axes) if index != left_out]
        assert set(product(*others)) == {row[:left_out] + row[left_out + 1 :] for row in rows}


def test_a_matrix_of_two_axes_is_whole():
    assert set(product("abc", "de")) == {param.values for param in matrix(list("abc"), list("de"))}


def test_every_combination_is_made_when_it_is_asked_for(monkeypatch):
    axes = list(range(4)), list(range(5)), list(range(3))
    some = matrix(*axes, step=7)

    monkeypatch.setattr(cover, "makes_every_case", True)

    assert len(some) < 60 / 2
    assert [*product(*axes)] == [each.values for each in matrix(*axes, step=7)]
