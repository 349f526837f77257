"""The table of faults: its runs in a small form, and what runs in pieces goes on where it ended."""

from __future__ import annotations

import sys

import pytest

from tests.each_row import each_row
from tools import fault_runs
from tools.fault_runs import Row


@each_row("run, count", [("kills", 1), ("host", 100), ("weights", 4)])
def test_a_run_finds_nothing(run, count):
    row = fault_runs.RUNS[run](count, 20)

    assert row.is_good, row
    assert count == row.count


@pytest.fixture
def seeds(monkeypatch) -> list[int]:
    """Of the pieces that ran; each finds its seed in faults."""
    seeds = list[int]()

    def run(count: int, seed: int) -> Row:
        seeds.append(seed)
        return Row("a fault", count, f"{seed} of {count} differ", is_good=seed < 3)

    monkeypatch.setitem(fault_runs.RUNS, "kills", run)
    monkeypatch.setitem(fault_runs.PIECES, "kills", 10)
    return seeds


def table(monkeypatch, capsys, *words: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["fault_runs", *words])
    return fault_runs.main(), capsys.readouterr().out.splitlines()[-1]


def test_a_run_in_pieces_goes_on_where_it_ended_and_adds_up(seeds, monkeypatch, capsys, tmp_path):
    words = ["--seed", "1", "--into", str(tmp_path / "pieces")]

    assert (0, "| a fault | 20 | 3 of 20 differ | 0 |") == table(monkeypatch, capsys, *words, "kills=20")
    assert (1, "| a fault | 25 | 6 of 25 differ | 0 |") == table(monkeypatch, capsys, *words, "kills=25")

    assert [1, 2, 3] == seeds


def test_without_a_file_a_run_is_one_piece(seeds, monkeypatch, capsys):
    assert (0, "| a fault | 25 | 1 of 25 differ | 0 |") == table(monkeypatch, capsys, "--seed", "1", "kills=25")

    assert [1] == seeds


def test_pieces_of_different_runs_are_not_added(seeds):
    rows = [Row("a fault of starter", 1, "0 differ", True), Row("a fault of embedded", 1, "0 differ", True)]

    with pytest.raises(AssertionError, match="not of one run"):
        fault_runs.added(rows)
