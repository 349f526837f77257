"""Gaps filled by the embedded model; and that a suffix tree changes no word of it."""

from __future__ import annotations

from functools import lru_cache
from threading import Event as Flag

import pytest

from specchat.assemble import Engine, load_engine
from specchat.chat.events import Event, Finished, PrefillProgress, TextDelta, Totals
from specchat.chat.fim_completer import FimCompleter
from specchat.chat.fim_request import FimRequest
from specchat.engine.drafter import Drafter
from specchat.profile import Profile
from tests.tiny import speaking

BEFORE = "class Point:\n    def __init__(self, x, y):\n        self.x = x\n"
AFTER = "\n    def move(self, x, y):\n        self.x += x\n        self.y += y\n"


@lru_cache
def engine() -> Engine:
    return load_engine(Profile().override({"models.draft": "", "models.heads": []}))


@pytest.fixture
def completer():
    completer = FimCompleter(engine().models)
    yield completer
    completer.close()


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("before", [BEFORE, BEFORE + "        self", BEFORE[:40], ""])
def test_guessing_changes_no_word(completer, before):
    guessed = list(completer.fill(FimRequest(before, AFTER, 24), Flag()))
    plain = FimCompleter(engine().models)
    plain.drafter = Drafter()
    expected = list(plain.complete(FimRequest(before, AFTER, 24), Flag()))
    plain.close()

    assert text_of(guessed) == text_of(expected)
    assert guessed[-1].reason == expected[-1].finish_reason
    assert guessed[-1].totals.steps <= expected[-1].totals.steps


def test_what_is_typed_further_is_not_read_again(completer):
    before = "import math\n\n" * 20 + BEFORE
    list(completer.fill(FimRequest(before, AFTER, 4), Flag()))

    finished = list(completer.fill(FimRequest(before + "        self.", AFTER, 4), Flag()))[-1]

    assert finished.totals.reused_tokens >= finished.totals.prompt_tokens - 5


def test_it_ends_when_told_or_too_late(completer):
    stopped = Flag()
    stopped.set()

    assert list(completer.fill(FimRequest(BEFORE), stopped))[-1].reason == "cancelled"
    assert list(completer.fill(FimRequest(BEFORE, timeout_seconds=1e-9), Flag()))[-1].reason == "late"


def test_it_ends_with_so_many_lines(completer):
    loop = "    for price in prices:\n        total += price\n"
    completer.drafter = Drafter()  # a token a step, so that no step holds two lines

    lines = text_of(
        list(completer.fill(FimRequest(f"def total(prices):\n    total = 0\n{loop}", "", 64, max_lines=1), Flag()))
    )

    assert lines.lstrip("\n").count("\n") <= 1


def test_one_that_was_stopped_while_it_read_leaves_no_wrong_memory(completer):
    gap, stopped = FimRequest("x = 1\n" * 60 + BEFORE, AFTER, 16), Flag()
    for event in completer.fill(gap, stopped):
        if isinstance(event, PrefillProgress):
            stopped.set()
    again = text_of(list(completer.fill(gap, Flag())))
    fresh = FimCompleter(engine().models)
    expected = text_of(list(fresh.complete(gap, Flag())))
    fresh.close()

    assert again == expected


def test_a_model_that_was_not_taught_says_so():
    untaught = load_engine(Profile().override({"models.target": str(speaking()), "models.draft": ""}))
    completer = FimCompleter(untaught.models)

    assert list(completer.complete(FimRequest("x = "), Flag())) == [Finished("unable", Totals())]
