"""`specchat stats`: what stands in the history, summed; every number can be worked out by hand."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict

import pytest

from specchat.chat.events import Totals
from specchat.chat.history import Answered, Thread
from specchat.host.spawn import history_path
from specchat.host.writer import HistoryWriter
from tests.front import command

PLAIN = Totals(tokens=10, steps=10, verify_seconds=1.0)
GUESSED = Totals(
    tokens=40, steps=10, drafted=60, accepted={"suffix": 20, "draft": 10},
    draft_seconds=0.5, verify_seconds=1.5, plain_seconds=0.1,
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_runtime(tmp_path, monkeypatch):
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("SPECCHAT_RUNTIME", str(folder))


def kept(*answers: tuple[str, Totals]) -> None:
    """A conversation with these answers, and a copy of it that shares them."""
    thread = Thread("t", "a talk")
    with closing(HistoryWriter(history_path())) as history:
        for number, (variant, totals) in enumerate(answers):
            parent = str(number - 1) if number else None
            history.begin(thread, str(number), parent, {"text": f"question {number}"})
            history.finish(str(number), Answered("yes", variant=variant), "stop", asdict(totals))
        history.fork(Thread("copy", "a copy", tip=str(len(answers) - 1), forked_from="t"))


def rows(monkeypatch) -> list[list[str]]:
    ran = command(monkeypatch, "stats")
    assert ran.code == 0
    return [line.split() for line in ran.out.decode().splitlines()]


def test_without_a_history_it_says_so(monkeypatch):
    assert command(monkeypatch, "stats").out == b"nothing was answered yet\n"


def test_answers_are_summed_by_variant_and_counted_once(monkeypatch):
    kept(("plain", PLAIN), ("auto", GUESSED), ("auto", GUESSED))

    _head, auto, plain, everything = rows(monkeypatch)

    assert auto[:7] == ["auto", "2", "80", "20", "4.00", "2.00", "50%"]
    assert plain == ["plain", "1", "10", "10", "1.00"]
    assert everything[:5] == ["all", "3", "90", "18", "3.00"]


def test_those_who_guessed_most_come_first(monkeypatch):
    kept(("auto", GUESSED))

    assert rows(monkeypatch)[1][7:] == ["suffix", "20,", "draft", "10"]


def test_an_answer_without_a_token_counts_for_nothing(monkeypatch):
    kept(("auto", Totals()))

    assert command(monkeypatch, "stats").out == b"nothing was answered yet\n"
