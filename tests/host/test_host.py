"""The host from the view of its clients, with a fake engine."""

from __future__ import annotations

import time
from threading import Event as Flag
from threading import Thread

import pytest

from specchat.chat.events import (
    Event,
    Failed,
    Finished,
    LoadingProgress,
    PrefillProgress,
    Routed,
    StepDone,
    TextDelta,
    Waiting,
)
from specchat.chat.request import Request
from specchat.chat.transcript import Question
from specchat.cli.session_options import last_session_id
from specchat.errors import HostError, ProfileError, UsageError
from specchat.host.client import Conversation, SessionRequest, connect
from specchat.profile.settings import read_settings
from tests.host.fake import FakeEngine

pytestmark = pytest.mark.usefixtures("runtime")


def ask(conversation: Conversation, text: str, **options: object) -> list[Event]:
    return list(conversation.ask(Request(text, **options)))


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_the_same_text_through_the_host_and_in_process():
    request = Request("count 40", seed=5)
    question = Question(request, profile=read_settings().profile)
    local = list(FakeEngine().answer(question, Flag()).events())

    heard = [event for event in Conversation().ask(request) if not isinstance(event, LoadingProgress)]

    assert text_of(local) == text_of(heard)
    for kind in (StepDone, Routed, PrefillProgress, Finished):
        assert [e for e in local if isinstance(e, kind)] == [e for e in heard if isinstance(e, kind)]


def test_regenerate_uses_a_new_seed_and_a_given_seed_fixes_the_text():
    talk = Conversation()
    first = text_of(ask(talk, "hello"))
    talk.rewind()
    second = text_of(ask(talk, "hello"))
    talk.rewind()
    fixed = text_of(ask(talk, "hello", seed=7))
    talk.rewind()

    assert first != second
    assert fixed == text_of(ask(talk, "hello", seed=7)) == "you said 'hello' with seed 7"


def test_turns_follow_one_another_and_survive_in_the_history():
    talk = Conversation()
    ask(talk, "count 2", seed=1)
    assert "turn 1" in text_of(ask(talk, "count 2", seed=1))
    talk.rewind()
    assert "turn 1" in text_of(ask(talk, "count 2", seed=1))

    turns = Conversation(SessionRequest(session_id=talk.session_id)).turns()

    assert ["count 2", "count 2"] == [turn.request["text"] for turn in turns]
    assert ("stop", 4, b"\x00\x01" * 2) == (
        turns[0].state,
        turns[0].totals["completion_tokens"],
        turns[0].answer.source_indices,
    )
    assert ("lookup", "target") == turns[0].answer.sources


def test_a_session_goes_on_after_its_host_was_replaced():
    talk = Conversation()
    ask(talk, "count 2", seed=1)
    talk.call("shutdown")

    assert "turn 1" in text_of(ask(talk, "count 2", seed=1))


def test_the_last_conversation_of_this_folder_is_found(monkeypatch, tmp_path):
    ask(Conversation(), "one")
    monkeypatch.chdir(tmp_path)
    ask(elsewhere := Conversation(), "two")

    assert elsewhere.session_id == Conversation(SessionRequest(last_session_id())).session_id


def test_two_clients_are_answered_at_once():
    heard: dict[str, list[Event]] = {}

    def listen(name: str) -> None:
        heard[name] = ask(Conversation(client_name=name), "slowly 40", seed=1)

    Conversation()
    threads = [Thread(target=listen, args=(name,)) for name in "ab"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    assert text_of(heard["a"]) == text_of(heard["b"])
    assert "seed 1 turn 0" in text_of(heard["a"])


def test_an_answer_begins_while_another_one_goes_on():
    cancelled = Flag()
    answers = [Conversation().ask(Request("slowly 100000"), cancelled) for _ in "ab"]

    first_words = [next(event for event in each if isinstance(event, TextDelta)) for each in answers]
    cancelled.set()

    assert 2 == len(first_words)
    assert ["cancelled", "cancelled"] == [list(each)[-1].finish_reason for each in answers]


def test_requests_of_one_session_queue_and_all_listeners_hear_them():
    first = Conversation()
    second = Conversation(SessionRequest(session_id=first.session_id))
    answers: dict[str, str] = {}
    threads = [
        Thread(target=lambda talk=talk, name=name: answers.update({name: text_of(ask(talk, "count 3", seed=1))}))
        for name, talk in (("first", first), ("second", second))
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    assert {"turn 0", "turn 1"} == {answer[-6:] for answer in answers.values()}


@pytest.mark.parametrize("verb", ["slowly 100000", "read"])
def test_a_cancelled_turn_ends_within_a_step_and_keeps_its_text(verb):
    talk, cancelled = Conversation(), Flag()
    events = []
    for event in talk.ask(Request(verb), cancelled):
        events.append(event)
        if isinstance(event, TextDelta | PrefillProgress):
            begun = time.monotonic()
            cancelled.set()

    assert time.monotonic() - begun < 60  # of 500 seconds and more
    assert "cancelled" == events[-1].finish_reason
    [turn] = talk.turns()
    assert ("cancelled", text_of(events)) == (turn.state, turn.answer.text)
    assert "stop" == ask(talk, "count 2")[-1].finish_reason


def test_a_turn_is_cancelled_while_its_model_loads():
    talk, cancelled = Conversation(SessionRequest(settings=read_settings("endless"))), Flag()
    events = []
    for event in talk.ask(Request("count 2"), cancelled):
        events.append(event)
        cancelled.set()

    assert isinstance(events[0], LoadingProgress)
    assert "cancelled" == events[-1].finish_reason


def test_a_turn_is_cancelled_while_it_waits():
    talk = Conversation()
    waiting, cancelled = Conversation(SessionRequest(session_id=talk.session_id)), Flag()
    running = talk.ask(Request("read"))
    assert isinstance(next(event for event in running if isinstance(event, PrefillProgress)), PrefillProgress)
    cancelled.set()

    *_, end = waiting.ask(Request("count 2"), cancelled)

    assert "cancelled" == end.finish_reason


def test_a_waiting_turn_keeps_the_settings_with_which_it_was_asked():
    busy = [Conversation().ask("slowly 100000") for _slot in range(FakeEngine.max_concurrent_turns)]
    for answer in busy:
        next(event for event in answer if isinstance(event, TextDelta))
    conversation = Conversation()
    waiting = conversation.ask("settings sampling.temperature")
    assert isinstance(next(event for event in waiting if not isinstance(event, LoadingProgress)), Waiting)

    other = connect("another client")
    settings = conversation.settings.changed({"sampling.temperature": 0.7})
    other.call("set_settings", {"session": conversation.session_id, "settings": settings.to_json()})
    for answer in busy:
        answer.close()

    assert "[0.0]" == text_of(list(waiting))


def test_the_turn_of_a_disconnected_client_is_cancelled_and_stored():
    talk = Conversation()
    heard = talk.ask(Request("slowly 100000"))
    next(event for event in heard if isinstance(event, TextDelta))
    other = Conversation(SessionRequest(session_id=talk.session_id))
    talk.connection.close()

    assert "turn 1" in text_of(ask(other, "count 2"))
    assert "cancelled" == other.turns()[0].state
    assert other.turns()[0].answer.text.startswith("word0 ")


@pytest.mark.parametrize(
    ("question", "message", "exit_code"),
    [("fail", "too long", 6), ("crash", "the engine failed: RuntimeError: out of memory; see the log of the host", 1)],
)
def test_a_failed_turn_has_its_reason_and_the_next_one_works(question, message, exit_code):
    talk = Conversation()

    assert Failed(message, exit_code) == ask(talk, question)[-1]
    assert "stop" == ask(talk, "count 2")[-1].finish_reason


def test_an_engine_without_a_session_fails_the_turn_and_survives():
    talk = Conversation(SessionRequest(settings=read_settings("sessionless")))

    assert "RuntimeError: no room" in ask(talk, "hello")[-1].message
    talk.use(read_settings())
    assert "stop" == ask(talk, "hello")[-1].finish_reason


def test_a_model_that_cannot_be_loaded_fails_the_turn():
    talk = Conversation(SessionRequest(settings=read_settings("broken")))

    assert Failed("no such model", 7) == ask(talk, "hello")[-1]


def test_errors_of_the_host_keep_their_class():
    with pytest.raises(ProfileError, match="unknown profile"):
        Conversation(SessionRequest(settings=read_settings("unknown")))
    with pytest.raises(UsageError, match="no session"):
        Conversation(SessionRequest(session_id="nothing"))


def test_a_fork_has_its_own_future():
    talk = Conversation()
    ask(talk, "count 2", seed=1)
    fork = Conversation()
    fork.switch_session(fork.call("fork", {"session": talk.session_id}))
    ask(talk, "one")
    ask(fork, "two")

    assert ["count 2", "one"] == [turn.request["text"] for turn in talk.turns()]
    assert ["count 2", "two"] == [turn.request["text"] for turn in fork.turns()]


def test_sessions_are_listed_renamed_deleted_and_restored():
    talk = Conversation()
    ask(talk, "hello  my\nworld")
    names = lambda **params: [each["name"] for each in talk.call("list_sessions", params)["sessions"]]
    assert ["hello my world"] == names()

    talk.call("rename", {"name": "Greeting"})
    assert ["Greeting"] == names(search="wor")
    talk.call("delete")
    assert ([], ["Greeting"]) == (names(), names(is_deleted=True))
    talk.call("restore")
    assert ["Greeting"] == names()


def test_explain_routing_and_stats_answer():
    talk = Conversation(client_name="me")
    ask(talk, "hello")

    assert "because it is a fake" == talk.call("explain_routing")["reason"]
    stats = talk.call("stats")
    assert ("ready", 1000, ["me"]) == (stats["state"], stats["memory_bytes"]["target"], stats["clients"])
    assert {"Python and libraries", "mapped files"} == stats["process_bytes"].keys()  # of a host that loaded no model
    talk.call("unload")
    assert "stop" == ask(talk, "hello")[-1].finish_reason


def test_an_unknown_method_is_an_error_and_the_connection_stays():
    line = connect("test")

    with pytest.raises(HostError, match="unknown method"):
        line.call("sing", {})
    with pytest.raises(HostError, match="a parameter is missing or wrong: session must be a text"):
        line.call("session_info", {})
    assert "unloaded" == line.call("hello", {})["state"]
