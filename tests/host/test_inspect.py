"""The method `inspect`: the steps of a turn while it runs, after its end, and after a restart of the host."""

from __future__ import annotations

import sqlite3
from base64 import b64decode
from contextlib import closing
from threading import Event as Flag

import pytest

from specchat.chat.events import StepDone
from specchat.chat.request import Request
from specchat.errors import UsageError
from specchat.history.history_reader import HistoryReader
from specchat.history.step_encoding import unpack_steps
from specchat.host.client import Conversation, SessionRequest
from specchat.host.spawn import history_path
from tests.each_row import each_row
from tests.host.conftest import kill_host

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def talk():
    with Conversation() as conversation:
        yield conversation


def ask_for_steps(talk: Conversation, text: str) -> list[StepDone]:
    """The steps of an answer as a client hears them."""
    return [event for event in talk.ask(Request(text)) if isinstance(event, StepDone)]


def stored_steps(talk: Conversation, **which: object) -> list[StepDone]:
    return unpack_steps(b64decode(talk.call("inspect", which)["steps"]))


def test_the_stored_steps_of_a_turn_are_those_that_its_client_received(talk):
    first, second = ask_for_steps(talk, "guess 3"), ask_for_steps(talk, "count 2")

    assert stored_steps(talk) == second
    assert stored_steps(talk, turn_index=0) == first
    assert stored_steps(talk, turn=talk.turns()[0].id) == first
    assert first[0].draft_token_bytes == (b"word0 ", b"no ")
    assert first[0].draft_sources == ("lookup", "draft")


def test_a_running_turn_has_stored_steps(talk):
    received, stopped = list[StepDone](), Flag()
    for event in talk.ask(Request("slowly 100000"), stopped):
        if isinstance(event, StepDone):
            received.append(event)
            if len(received) == 5:
                with Conversation(SessionRequest(session_id=talk.session_id)) as other:
                    assert stored_steps(other)[:5] == received
                stopped.set()


def test_a_cancelled_turn_keeps_its_steps(talk):
    stopped, received = Flag(), list[StepDone]()
    for event in talk.ask(Request("slowly 100000"), stopped):
        if isinstance(event, StepDone):
            received.append(event)
            stopped.set()

    assert stored_steps(talk) == received
    assert talk.turns()[0].state == "cancelled"


def test_stored_steps_survive_the_host_and_belong_to_forks_too(talk):
    steps = ask_for_steps(talk, "guess 3")
    kill_host()

    assert stored_steps(talk) == steps
    talk.switch_session(talk.call("fork"))
    ask_for_steps(talk, "count 1")
    assert stored_steps(talk, turn_index=0) == steps


def test_a_turn_without_stored_steps_has_none(talk):
    ask_for_steps(talk, "guess 3")
    with closing(sqlite3.connect(history_path())) as database:
        database.execute("DELETE FROM steps")
        database.commit()

    assert stored_steps(talk) == []


@pytest.mark.full
def test_the_stored_steps_of_a_killed_host_stay(talk):
    for received, event in enumerate(talk.ask(Request("slowly 100000"))):
        with closing(HistoryReader(history_path())) as history:
            turns = history.turns(history.thread(talk.session_id).tip)
            if received and turns and (stored := history.steps(turns[0].id)):
                break
        assert event is not None
    kill_host()

    assert stored_steps(talk)[: len(stored)] == stored
    assert stored


@each_row("which", [{"turn_index": 7}, {"turn_index": -1}, {"turn": "nothing"}])
def test_an_unknown_turn_is_an_error(talk, which):
    ask_for_steps(talk, "guess 1")

    with pytest.raises(UsageError, match="no such turn"):
        stored_steps(talk, **which)


def test_a_session_without_turns_has_no_steps(talk):
    with pytest.raises(UsageError, match="no such turn"):
        stored_steps(talk)
