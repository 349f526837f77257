"""The table of faults: it counts what was tried, and what runs in pieces goes on where it ended."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from specchat.chat.events import Finished, Totals
from tests.each_row import each_row
from tests.faults import weights
from tests.host.test_kills import Kill
from tools import fault_runs
from tools.fault_runs import Row


class AnswersAtOnce:
    """An engine and its session, whose answers end before anything can be done to them."""

    drafters, turns, models = ("plain",), (), SimpleNamespace(target=None)

    def create_session(self, *_turns):
        return nullcontext(self)

    def ask(self, *_question):
        yield Finished("stop", Totals())


@each_row("run", ["cancels", "memory"])
def test_an_answer_that_ended_before_the_fault_is_no_try(monkeypatch, run):
    monkeypatch.setattr(fault_runs, "load_engine", lambda _profile: AnswersAtOnce())

    row = fault_runs.RUNS[run](3, 20)

    assert row.is_good, row
    assert row.count == 0


def test_tries_that_cannot_be_shared_out_evenly_are_made_and_counted(monkeypatch):
    monkeypatch.setattr(weights, "load_hostile", lambda _kind, _folder, count, _seed: weights.Loads(count, count))

    row = fault_runs.RUNS["weights"](6, 20)

    assert "6 refused" in row.result
    assert row.count == 6


def test_a_kill_that_met_no_process_is_no_try(monkeypatch):
    monkeypatch.setattr(fault_runs, "kill_after", lambda *_arguments: Kill("", "", 0))

    assert fault_runs.RUNS["kills"](2, 20).count == 0


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
