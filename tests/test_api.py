"""The Python interface: lazy, and the same in process and through the engine process."""

import sys
from typing import get_args

import pytest

import specchat
from specchat.chat import events
from specchat.chat.events import Failed, Finished, TextDelta, Totals
from specchat.host import spawn
from tests.host.conftest import runtime  # noqa: F401 - a fixture
from tests.processes import modules_after


def test_importing_the_package_imports_nothing_slow():
    heavy = {"torch", "transformers", "textual", "prompt_toolkit", "click", "numpy"}

    assert not heavy & modules_after("import specchat; specchat.open_session; specchat.TextDelta; specchat.Request")
    assert "specchat.chat.events" not in modules_after("import specchat")


def test_every_public_name_is_there():
    assert specchat.__all__ == sorted(specchat.__all__)
    assert all(hasattr(specchat, name) for name in specchat.__all__)
    assert not hasattr(specchat, "no_such_name")


def test_every_type_of_event_is_public():
    assert {each.__name__ for each in get_args(events.Event)} <= set(specchat.__all__)
    assert specchat.TextDelta is TextDelta


@pytest.mark.usefixtures("runtime")
def test_a_session_answers_in_this_process_and_through_the_host(monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (sys.executable, "-m", "specchat.host"))
    answers = []
    for in_process in (True, False):
        with specchat.open_session("chat", in_process=in_process) as session:
            events = list(session.ask("What is a generator?"))
        assert isinstance(events[-1], Finished)
        answers.append("".join(event.text for event in events if isinstance(event, TextDelta)))

    assert answers[0]
    assert answers[0] == answers[1]


@pytest.mark.usefixtures("runtime")
def test_the_text_of_an_answer_takes_one_call():
    assert specchat.answer("write three words here") == "three words here"


class Scripted:
    """A session with these events for every question."""

    def __init__(self, *events: events.Event) -> None:
        self.events = events

    def ask(self, _question):
        return iter(self.events)


def test_an_answer_of_an_open_session_is_its_text():
    session = Scripted(TextDelta("a fox "), TextDelta("is quick"), Finished("stop", Totals()))

    assert specchat.answer("what is a fox?", session=session) == "a fox is quick"


def test_a_failed_answer_is_an_error_with_its_exit_code():
    with pytest.raises(specchat.SpecchatError, match="too long") as raised:
        specchat.answer("?", session=Scripted(TextDelta("a"), Failed("too long", 6)))

    assert raised.value.exit_code == 6
