"""`specchat stats`: what stands in the history, summed; every number can be worked out by hand."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, replace

import pytest

from specchat.acceptance_counts import Acceptance
from specchat.chat.events import Totals
from specchat.history.history_reader import StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter
from specchat.host.spawn import history_path
from specchat_bench.answer_sums import GROUPINGS, AnswerTotals
from tests.cli.conftest import own_runtime  # noqa: F401 (a fixture)
from tests.front import command
from tests.test_accessibility import WIDTHS, on_columns, too_long, words_of
from tests.test_one_number import RATE, TOTALS, of_steps

PLAIN = Totals(completion_tokens=10, steps=10, verify_seconds=1.0)
GUESSED = Totals(
    completion_tokens=40, steps=10, draft_tokens=60, accepted_by_drafter={"suffix": 20, "draft": 10},
    acceptance=Acceptance((10, 5), (5, 1)),
    draft_seconds=0.5, verify_seconds=1.5, plain_decode_seconds=4.0,
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("own_runtime")


def kept(*answers: tuple[str, Totals], questions: tuple[dict, ...] = ()) -> None:
    """A conversation with these answers, and a copy of it that shares them."""
    thread = Thread("t", "a talk")
    with closing(HistoryWriter(history_path())) as history:
        for number, (variant, totals) in enumerate(answers):
            parent = str(number - 1) if number else None
            question = questions[number] if questions else {"text": f"question {number}"}
            history.start_turn(thread, str(number), parent, question)
            history.finish_turn(str(number), StoredAnswer("yes", variant=variant), "stop", asdict(totals))
        history.add_thread(Thread("copy", "a copy", tip=str(len(answers) - 1), forked_from="t"))


def rows(monkeypatch, *options: str) -> list[list[str]]:
    ran = command(monkeypatch, "stats", *options)
    assert ran.code == 0
    return [line.split() for line in ran.out.decode().splitlines()]


def test_without_a_history_it_says_so(monkeypatch):
    assert command(monkeypatch, "stats").out == b"no answers yet\n"


def test_answers_are_summed_by_variant_and_counted_once(monkeypatch):
    kept(("plain", PLAIN), ("auto", GUESSED), ("auto", GUESSED))

    _head, auto, plain, everything = rows(monkeypatch)

    assert auto[:7] == ["auto", "2", "80", "20", "4.00", "2.0", "40%"]
    assert auto[7:9] == ["50%", "20%"]
    assert plain == ["plain", "1", "10", "10", "1.00"]
    assert everything[:5] == ["all", "3", "90", "18", "3.00"]


def test_an_answer_whose_steps_nobody_knows_has_no_tokens_a_pass(monkeypatch):
    kept(("auto", GUESSED), ("server", Totals(completion_tokens=60, verify_seconds=1.0)))

    _head, server, auto, everything = rows(monkeypatch)

    assert server == ["server", "1", "60", "60"]
    assert auto[4] == everything[4] == "4.00"


def test_impossible_numbers_are_left_out_with_one_line(monkeypatch):
    kept(("auto", replace(GUESSED, plain_decode_seconds=float("nan"))), ("auto", replace(GUESSED, seconds=-1.0)))

    ran = command(monkeypatch, "stats")

    assert ran.err == "specchat: impossible numbers are left out, in 2 of 2 stored answers\n"
    assert ran.out.decode().splitlines()[1].split()[:6] == ["auto", "2", "80", "20", "4.00", "2.0"]


def test_those_who_guessed_most_come_first(monkeypatch):
    kept(("auto", GUESSED))

    assert rows(monkeypatch)[1][-4:] == ["suffix", "20,", "draft", "10"]


def test_an_answer_without_a_token_counts_for_nothing(monkeypatch):
    kept(("auto", Totals()))

    assert command(monkeypatch, "stats").out == b"no answers yet\n"


def test_answers_are_summed_by_what_was_asked(monkeypatch):
    asked = ({"text": "fix it", "task": "edit"}, {"text": "Write a poem about rain."}, {"text": "count to three"})
    kept(("auto", GUESSED), ("auto", GUESSED), ("plain", PLAIN), questions=asked)

    tasks = {row[0]: row[1:3] for row in rows(monkeypatch, "--by", "task")}

    assert tasks["edit"] == ["1", "40"] and tasks["creative"] == ["1", "40"]
    assert tasks["all"] == ["3", "90"]


def test_days_stand_in_their_order(monkeypatch):
    days = iter(("2026-03-02", "2026-03-01", "2026-03-01"))
    kept(("auto", GUESSED), ("plain", PLAIN), ("auto", GUESSED))
    monkeypatch.setitem(GROUPINGS, "day", lambda _turn: next(days))

    _head, first, second, _all = rows(monkeypatch, "--by", "day")

    assert first[:3] == ["2026-03-01", "2", "50"] and second[:3] == ["2026-03-02", "1", "40"]


def test_a_day_is_that_of_the_question(monkeypatch):
    kept(("auto", GUESSED))

    assert rows(monkeypatch, "--by", "day")[1][0] == time.strftime("%Y-%m-%d")


def cells(totals: Totals) -> list[str]:
    sums = AnswerTotals("all")
    sums.add(totals)
    return sums.cells()


def test_it_shows_the_speedup_and_the_acceptance_that_every_other_place_shows():
    for shown, totals in TOTALS.items():
        assert (shown if shown[:1].isdigit() else "") == cells(totals)[5]
    assert [f"{RATE:.0%}", "67% 50% 100%"] == cells(of_steps())[6:8]


def test_the_table_has_all_its_words_at_every_width(monkeypatch):
    kept(("auto", GUESSED), ("plain", PLAIN))
    shown = {columns: on_columns(monkeypatch, columns, "stats") for columns in WIDTHS}

    for columns, ran in shown.items():
        assert not too_long(ran.out.decode() + ran.err, columns)
        assert words_of(ran.out.decode()) == words_of(shown[100].out.decode())
