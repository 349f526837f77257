"""Completions (fill in the middle) by the host, next to conversations."""

from __future__ import annotations

from threading import Event as Flag
from threading import Timer
from types import SimpleNamespace

import pytest

from specchat.chat.events import Finished, StepDone, TextDelta
from specchat.chat.fim_request import FimRequest
from specchat.errors import SpecchatError, UsageError
from specchat.host import host_connection, spawn
from specchat.host.client import Conversation, SessionRequest
from specchat.host.engine_loader import EngineLoader
from tests.host.conftest import kill_host
from tests.host.fork_server import forked_host


def completed(conversation: Conversation, gap: FimRequest, cancelled: Flag | None = None) -> tuple[str, str]:
    """The text of a completion, and how it ended."""
    *pieces, end = conversation.fill(gap, cancelled or Flag())
    assert isinstance(end, Finished)
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)), end.finish_reason


@pytest.fixture
def engine(runtime, monkeypatch):
    """A conversation with a fake engine that is loaded."""
    monkeypatch.setattr(spawn, "HOST_COMMAND", forked_host("tests.host.completion_host"))
    monkeypatch.setattr(host_connection, "configuration_hash", lambda: "fake")
    conversation = Conversation(SessionRequest(kind="completion"))
    while completed(conversation, FimRequest("x")) == ("", "model_loading"):
        pass
    yield conversation
    conversation.close()


def fim(verb: str, text: str = "") -> FimRequest:
    return FimRequest(f"# {verb}: {text}\n")


def test_a_completion_is_not_stored(engine):
    assert completed(engine, fim("fill", "x = 1")) == ("x = 1", "stop")
    assert engine.turns() == []
    assert engine.call("list_sessions", {"kind": "completion"})["sessions"] == []


def test_a_completion_does_not_wait_for_a_running_answer(engine):
    with Conversation(SessionRequest()) as other:
        answer = other.ask("slowly 200")
        steps = 0
        for event in answer:
            steps += isinstance(event, StepDone)
            if steps == 3:
                break
        filled = completed(engine, fim("fill", "quick"))
        rest = list(answer)

    assert filled == ("quick", "stop")
    assert isinstance(rest[-1], Finished)
    assert sum(isinstance(event, StepDone) for event in rest) > 50


def test_a_streamed_completion_has_its_text_in_pieces_and_its_result(engine):
    *pieces, end = engine.fill(fim("fill", "x = 1"), Flag())

    assert len(pieces) > 1
    assert "x = 1" == "".join(piece.text for piece in pieces)
    assert isinstance(end, Finished) and end.finish_reason == "stop"


def test_a_cancelled_completion_ends_at_once_and_the_next_one_works(engine):
    stopped = Flag()
    Timer(0.1, stopped.set).start()

    assert completed(engine, fim("slowly", "abc"), stopped)[1] == "cancelled"
    assert completed(engine, fim("fill", "next")) == ("next", "stop")


def test_a_newer_completion_of_a_client_cancels_the_older_one(engine):
    params = {"session": engine.session_id, "prefix": "# slowly: abc\n"}
    engine.connection.send("complete", {**params, "turn": "older"})

    assert completed(engine, fim("fill", "newer")) == ("newer", "stop")
    assert engine.call("stats")["state"] == "ready"


def test_after_a_failed_completion_the_next_one_works(engine):
    with pytest.raises(SpecchatError, match="out of memory"):
        completed(engine, fim("crash"))

    assert completed(engine, fim("fill", "next")) == ("next", "stop")


def test_after_a_kill_a_new_host_completes(engine):
    kill_host()

    while (filled := completed(engine, fim("fill", "x"))) == ("", "model_loading"):
        pass
    assert filled == ("x", "stop")


def test_an_invalid_completion_request_is_an_error(engine):
    for wrong in (
        {},
        {"prefix": 5},
        {"prefix": "x", "max_lines": "3"},
        {"prefix": "x", "max_tokens": 0},
        {"prefix": "x", "stop": [1]},
        {"prefix": "x", "stop": [""]},
        {"prefix": "x", "stop": "x"},
    ):
        with pytest.raises(UsageError):
            engine.call("complete", wrong)


def test_without_the_plugin_a_completion_ends_with_the_line_that_installs_it():
    with pytest.raises(UsageError, match=r"completion is a plugin; .*/specchat-completions' installs it"):
        EngineLoader().make_completer(SimpleNamespace(models=None))
