"""Gaps in texts, filled by the host beside what is said in sessions."""

from __future__ import annotations

import sys
from threading import Event as Flag
from threading import Timer

import pytest

from specchat.chat.events import Finished, StepDone
from specchat.chat.fim_request import FimRequest
from specchat.errors import HostError, UsageError
from specchat.host import client, spawn
from specchat.host.client import CompletionResult, Conversation, SessionRequest
from tests.host.conftest import kill_host


@pytest.fixture
def engine(runtime, monkeypatch):
    """A conversation with a fake engine that is loaded."""
    monkeypatch.setattr(spawn, "HOST_COMMAND", (sys.executable, "-m", "tests.lsp.fake_host"))
    monkeypatch.setattr(client, "configuration_hash", lambda: "fake")
    conversation = Conversation(SessionRequest(kind="completion"))
    while conversation.complete(FimRequest("x")).finish_reason == "model_loading":
        pass
    yield conversation
    conversation.close()


def told(verb: str, text: str = "") -> FimRequest:
    return FimRequest(f"# {verb}: {text}\n")


def test_a_gap_is_filled_and_nothing_of_it_is_kept(engine):
    filled = engine.complete(told("fill", "x = 1"))

    assert (filled.text, filled.finish_reason) == ("x = 1", "stop")
    assert engine.turns() == []
    assert engine.call("list_sessions", {"kind": "completion"})["sessions"] == []


def test_a_gap_does_not_wait_for_an_answer_that_is_being_written(engine):
    with Conversation(SessionRequest()) as other:
        answer = other.ask("slowly 200")
        steps = 0
        for event in answer:
            steps += isinstance(event, StepDone)
            if steps == 3:
                break
        filled = engine.complete(told("fill", "quick"))
        rest = list(answer)

    assert filled.text == "quick"
    assert isinstance(rest[-1], Finished)
    assert sum(isinstance(event, StepDone) for event in rest) > 50


def test_one_that_is_cancelled_is_answered_at_once_and_the_next_one_filled(engine):
    stopped = Flag()
    Timer(0.1, stopped.set).start()

    assert engine.complete(told("slowly", "abc"), stopped) == CompletionResult("", "cancelled")
    assert engine.complete(told("fill", "next")).text == "next"


def test_a_newer_gap_of_a_client_ends_the_older_one(engine):
    params = {"session": engine.session_id, "prefix": "# slowly: abc\n"}
    engine._connection.send("complete", {**params, "turn": "older"})

    assert engine.complete(told("fill", "newer")).text == "newer"
    assert engine.call("stats")["state"] == "ready"


def test_an_engine_that_fails_at_one_gap_fills_the_next(engine):
    with pytest.raises(HostError, match="out of memory"):
        engine.complete(told("crash"))

    assert engine.complete(told("fill", "next")).text == "next"


def test_after_a_kill_another_host_is_started_and_fills(engine):
    kill_host()

    while (filled := engine.complete(told("fill", "x"))).finish_reason == "model_loading":
        pass
    assert filled.text == "x"


def test_what_is_no_gap_is_refused(engine):
    for wrong in ({}, {"prefix": 5}, {"prefix": "x", "max_lines": "3"}, {"prefix": "x", "max_tokens": 0}):
        with pytest.raises(UsageError):
            engine.call("complete", wrong)
