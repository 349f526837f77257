"""A fault in one request ends that request with an error; the host and the answers of everybody else go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specchat.chat.events import Failed, Finished, TextDelta
from specchat.chat.request import Request
from specchat.errors import HostError, UsageError
from specchat.history.history_writer import HistoryWriter
from specchat.host.client import Conversation, SessionRequest, connect
from specchat.host.protocol import request_to_json
from specchat.profile.settings import read_settings
from tests.host.test_host import ask, text_of

pytestmark = pytest.mark.usefixtures("runtime")


def pid_of(talk: Conversation) -> int:
    return talk.call("hello")["pid"]


def send_question(talk: Conversation, text: str, turn: str) -> None:
    talk.connection.send("ask", {"session": talk.session_id, "turn": turn, "request": request_to_json(Request(text))})


def test_an_id_of_a_turn_in_another_session_is_refused_and_both_go_on():
    first, second = Conversation(), Conversation()
    pid = pid_of(first)
    send_question(first, "slowly 100000", "same")
    params = {"session": second.session_id, "turn": "same", "request": {"text": "count 2"}}

    with pytest.raises(UsageError, match="turn same exists already"):
        second.call("ask", params)
    assert isinstance(ask(second, "count 2")[-1], Finished)
    first.call("cancel", {"turn": "same"})
    assert isinstance(ask(first, "count 2")[-1], Finished)
    assert pid_of(first) == pid


def test_an_id_of_a_stored_turn_of_another_session_is_refused():
    first = Conversation()
    ask(first, "count 2")
    [stored] = first.turns()
    first.close()
    second = Conversation()

    with pytest.raises(UsageError, match="exists already"):
        second.call("ask", {"turn": stored.id, "request": {"text": "count 2"}})


def test_a_completion_cannot_take_the_id_of_a_running_turn():
    talk = Conversation()
    send_question(talk, "slowly 100000", "same")

    with pytest.raises(UsageError, match="exists already"):
        talk.call("complete", {"turn": "same", "prefix": "x"})
    talk.call("cancel", {"turn": "same"})


@pytest.mark.parametrize("fault", ["int64 1", "memory 1", "int64 400"])
def test_an_event_that_cannot_be_sent_or_stored_ends_its_own_answer_only(fault):
    talk, other = Conversation(), Conversation()
    pid = pid_of(other)
    others = other.ask(Request("slowly 60"))
    next(event for event in others if isinstance(event, TextDelta))

    failed = ask(talk, fault)[-1]

    assert isinstance(failed, Failed)
    assert "the answer could not be sent" in failed.message
    assert isinstance(list(others)[-1], Finished)
    assert isinstance(ask(talk, "count 2")[-1], Finished)
    assert pid_of(other) == pid
    assert [turn.state for turn in talk.turns()] == ["failed", "stop"]


@pytest.mark.parametrize("fault", ["exit", "load"])
def test_after_the_death_of_the_engine_thread_the_same_host_answers_again(fault):
    talk, other = Conversation(), Conversation()
    pid = pid_of(talk)
    others = other.ask(Request("slowly 100000"))
    next(event for event in others if isinstance(event, TextDelta))

    failed, others_end = ask(talk, fault)[-1], list(others)[-1]

    assert isinstance(failed, Failed)
    assert isinstance(others_end, Failed)
    assert "the engine stopped unexpectedly" in failed.message
    assert "turn 0" in text_of(ask(talk, "count 2"))  # as after any failed turn
    assert isinstance(ask(other, "count 2")[-1], Finished)
    assert pid_of(talk) == pid


def test_a_response_that_cannot_be_encoded_is_an_error_response(runtime):
    line = connect("test")
    params = {"settings": read_settings("numbers").to_json()}

    with pytest.raises(HostError, match="open_session failed"):
        line.call("open_session", params)
    assert line.call("hello", {})["pid"]


def test_a_statement_that_the_database_cannot_store_does_not_hold_up_the_others(tmp_path):
    history = HistoryWriter(tmp_path / "history.db")
    history._add_statement("UPDATE turns SET partial = ?", object())
    history._add_statement("INSERT INTO settings VALUES ('x', '{\"a\": 1}')")

    assert history.flush()
    assert history.settings("x") == {"a": 1}
    history.close()


def test_no_descriptor_is_left_after_faults(runtime):
    talk = Conversation()
    ask(talk, "count 2")
    descriptors = Path(f"/proc/{pid_of(talk)}/fd")
    before = len(list(descriptors.iterdir()))
    for fault in ("crash", "fail", "int64 1", "exit"):
        ask(talk, fault)

    assert len(list(descriptors.iterdir())) == before


def test_the_host_refuses_another_client_when_it_has_no_descriptors_left(monkeypatch):
    talk = Conversation(SessionRequest())
    talk.call("open_session", {"settings": read_settings("no descriptors").to_json()})

    with pytest.raises(HostError, match="too many open files"):
        connect("another")
    assert talk.call("hello")["pid"]
    log = Path(os.environ["SPECCHAT_RUNTIME"], "host.log").read_text()
    assert log.count("Too many open files") <= 2
