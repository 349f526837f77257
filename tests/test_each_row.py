"""The law of `each_row`: a table is one test, which tries every row and hides no failure."""

import inspect

import pytest

from tests.each_row import each_row


def failures_of(test, **fixtures) -> list[str]:
    """The notes of what fails."""
    with pytest.raises((ExceptionGroup, AssertionError)) as caught:
        test(**fixtures)
    errors = caught.value.exceptions if isinstance(caught.value, ExceptionGroup) else [caught.value]
    return ["".join(error.__notes__) for error in errors]


def test_all_rows_that_fail_are_reported():
    @each_row("number, limit", [(1, 2), (3, 2), (0, 2), (4, 2)])
    def small(number, limit):
        assert number < limit

    assert failures_of(small) == ["row 1: {'number': 3, 'limit': 2}", "row 3: {'number': 4, 'limit': 2}"]


def test_what_does_not_raise_and_what_is_skipped_fail():
    @each_row("raise_or_skip", [lambda: pytest.fail("no"), lambda: pytest.skip("no")])
    def never(raise_or_skip):
        raise_or_skip()

    assert len(failures_of(never)) == 2


def test_a_table_without_rows_fails():
    @each_row("number", list[int])
    def nothing(number):
        pass

    with pytest.raises(AssertionError, match="proves nothing"):
        nothing()


def test_no_row_meets_what_another_left(tmp_path, monkeypatch, capsys):
    seen = []

    @each_row("name", ["A", "B"])
    def row(name, tmp_path, monkeypatch, capsys):
        seen.append((list(tmp_path.iterdir()), capsys.readouterr().out))
        (tmp_path / name).touch()
        monkeypatch.setitem(left, name, 1)
        print(name)
        assert list(left) == [name]

    left = dict[str, int]()
    row(tmp_path=tmp_path, monkeypatch=monkeypatch, capsys=capsys)

    assert seen == [([], "")] * 2


def test_the_shares_of_a_table_have_all_its_rows_and_a_default_run_the_first():
    @each_row("name", "abcde", shares=2)
    def row(name):
        seen.append(name)

    seen = list[str]()
    [mark] = row.pytestmark
    first, second = mark.args[1]
    row(share=first)
    assert list("ace") == seen
    row(share=second.values[0])
    assert list("acebd") == seen
    assert ["full"] == [each.name for each in second.marks]


def test_a_table_of_shares_may_stand_below_a_whole_one():
    @each_row("number", [1, 2])
    @each_row("name", "abc", shares=2)
    def row(name, number):
        seen.append(f"{name}{number}")

    seen = list[str]()
    row(share=1)
    assert ["b1", "b2"] == seen
    row(share=0)
    assert ["b1", "b2", "a1", "c1", "a2", "c2"] == seen
    assert ["share"] == list(inspect.signature(row).parameters)
    assert ["parametrize"] == [mark.name for mark in row.pytestmark]


def test_pytest_sees_one_test_that_asks_for_its_fixtures(tmp_path):
    @each_row("one, two", [(1, 1), (2, 2)])
    @each_row("three", lambda: [3])
    def row(one, two, three, tmp_path):
        tried.append((one, two, three))

    tried = []
    row(tmp_path=tmp_path)

    assert list(inspect.signature(row).parameters) == ["tmp_path"]
    assert tried == [(1, 1, 3), (2, 2, 3)]
