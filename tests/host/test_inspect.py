"""What was guessed in a turn, asked of the host: while it is written, when it is over, and by those who come later."""

from __future__ import annotations

import sqlite3
from base64 import b64decode
from contextlib import closing
from threading import Event as Flag

import pytest

from specchat.chat.events import StepDone
from specchat.chat.history import HistoryReader
from specchat.chat.request import Request
from specchat.chat.step_encoding import unpack_steps
from specchat.errors import UsageError
from specchat.host.client import Conversation, SessionRequest
from specchat.host.spawn import history_path
from tests.host.conftest import kill_host

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def talk():
    with Conversation() as conversation:
        yield conversation


def asked(talk: Conversation, text: str) -> list[StepDone]:
    """The steps of an answer as a client hears them."""
    return [event for event in talk.ask(Request(text)) if isinstance(event, StepDone)]


def known(talk: Conversation, **which: object) -> list[StepDone]:
    return unpack_steps(b64decode(talk.call("inspect", which)["steps"]))


def test_the_record_of_a_turn_is_what_its_client_heard(talk):
    first, second = asked(talk, "guess 3"), asked(talk, "count 2")

    assert known(talk) == second
    assert known(talk, turn_index=0) == first
    assert known(talk, turn=talk.turns()[0].id) == first
    assert first[0].draft_token_bytes == (b"word0 ", b"no ")
    assert first[0].draft_sources == ("lookup", "draft")


def test_a_turn_that_is_being_written_has_a_record_already(talk):
    heard, stopped = list[StepDone](), Flag()
    for event in talk.ask(Request("slowly 100000"), stopped):
        if isinstance(event, StepDone):
            heard.append(event)
            if len(heard) == 5:
                with Conversation(SessionRequest(session_id=talk.session_id)) as other:
                    assert known(other)[:5] == heard
                stopped.set()


def test_a_turn_that_was_stopped_keeps_its_record(talk):
    stopped, heard = Flag(), list[StepDone]()
    for event in talk.ask(Request("slowly 100000"), stopped):
        if isinstance(event, StepDone):
            heard.append(event)
            stopped.set()

    assert known(talk) == heard
    assert talk.turns()[0].state == "cancelled"


def test_the_record_outlives_the_host_and_goes_with_a_copy(talk):
    steps = asked(talk, "guess 3")
    kill_host()

    assert known(talk) == steps
    talk.switch_session(talk.call("fork"))
    asked(talk, "count 1")
    assert known(talk, turn_index=0) == steps


def test_a_turn_of_before_there_were_records_has_none(talk):
    asked(talk, "guess 3")
    with closing(sqlite3.connect(history_path())) as database:
        database.execute("DELETE FROM steps")
        database.commit()

    assert known(talk) == []


def test_a_host_that_is_killed_leaves_what_it_had_stored(talk):
    for heard, event in enumerate(talk.ask(Request("slowly 100000"))):
        with closing(HistoryReader(history_path())) as history:
            turns = history.turns(history.thread(talk.session_id).tip)
            if heard and turns and (stored := history.steps(turns[0].id)):
                break
        assert event is not None
    kill_host()

    assert known(talk)[: len(stored)] == stored
    assert stored


@pytest.mark.parametrize("which", [{"turn_index": 7}, {"turn_index": -1}, {"turn": "nothing"}])
def test_a_turn_that_is_not_there_is_refused(talk, which):
    asked(talk, "guess 1")

    with pytest.raises(UsageError, match="no such turn"):
        known(talk, **which)


def test_before_anything_was_asked_there_is_nothing_to_look_into(talk):
    with pytest.raises(UsageError, match="no such turn"):
        known(talk)
