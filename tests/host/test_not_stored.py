"""Sessions that are not stored: not in the history; their clients have the turns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from specchat.chat.events import Event, TextDelta
from specchat.chat.request import Attachment, Request
from specchat.chat.transcript import Turn
from specchat.errors import UsageError
from specchat.history.history_reader import HistoryReader
from specchat.host.client import Conversation, SessionRequest
from tests.host.conftest import kill_host

pytestmark = pytest.mark.usefixtures("runtime")

UNKEPT = SessionRequest(is_stored=False)
PAST = (Turn("one?", answer="1"), Turn("two?", answer="2"))


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def recalled(talk: Conversation, turns: Sequence[Turn] | None = None) -> str:
    return text_of(list(talk.ask(Request("recall"), turns=turns)))


def test_it_answers_like_any_other_session_and_is_not_listed():
    talk = Conversation(UNKEPT)

    answers = [text_of(list(talk.ask(Request("count 1", seed=1)))) for _ in range(2)]

    assert ["seed 1 turn 0", "seed 1 turn 1"] == answers
    assert [] == talk.call("list_sessions")["sessions"]
    with closing(HistoryReader(Path(talk.call("hello")["history_path"]))) as history:
        assert [] == history.search("count")


def test_its_client_knows_its_turns():
    talk = Conversation(UNKEPT)
    for question in ("write first", "write second"):
        list(talk.ask(Request(question)))

    assert [(turn.request["text"], turn.answer.text, turn.state) for turn in talk.turns()] == [
        ("write first", "first", "stop"),
        ("write second", "second", "stop"),
    ]
    talk.rewind()
    assert [turn.answer.text for turn in talk.turns()] == ["first"]
    talk.switch_session(talk.open_new_session())
    assert talk.turns() == []


def test_it_goes_on_after_the_turns_that_its_client_gives():
    talk = Conversation(UNKEPT)
    list(talk.ask(Request("write first")))

    assert "one?=1;two?=2;" == recalled(talk, PAST)
    assert "one?=1;" == recalled(talk, PAST[:1])
    assert "" == recalled(talk, ())


def test_a_given_turn_without_a_question_is_an_error_and_changes_nothing():
    talk = Conversation(UNKEPT)
    list(talk.ask(Request("write first")))

    [failed] = talk.ask(Request("recall"), turns=[Turn("", answer="2")])
    assert "the prompt is empty" in failed.message
    talk.rewind(0)
    assert "write first=first;" == recalled(talk)


def test_only_a_stored_session_forks_and_only_another_takes_turns():
    kept, unkept = Conversation(), Conversation(UNKEPT)
    for talk in (kept, unkept):
        list(talk.ask(Request("hello")))

    [failed] = kept.ask(Request("recall"), turns=PAST)
    assert "not stored" in failed.message
    with pytest.raises(UsageError, match="not stored"):
        unkept.call("fork")
    assert kept.call("fork")["turn_count"] == 1


def test_it_is_dropped_without_a_subscriber():
    talk = Conversation(UNKEPT)
    list(talk.ask(Request("hello")))
    session = talk.session_id
    talk.close()

    Conversation(UNKEPT)  # whoever opens one has the others looked at

    with pytest.raises(UsageError, match="there is no session"):
        Conversation(SessionRequest(session_id=session))


def test_it_goes_on_when_its_host_has_died():
    talk = Conversation(UNKEPT)
    for question in ("write first", "write second"):
        list(talk.ask(Request(question, (Attachment("a.txt", "text"),))))
    kill_host()

    talk.rewind()
    assert "write first=first;" == recalled(talk)


def test_a_replaced_question_stays_as_a_version_in_memory():
    talk = Conversation(UNKEPT)
    for question in ("write first", "write after first"):
        list(talk.ask(Request(question, (Attachment("a.txt", "text"),))))
    talk.rewind(2)
    list(talk.ask(Request("fail")))
    talk.rewind()
    list(talk.ask(Request("write second")))

    [versions] = talk.versions().values()
    assert [3, talk.turns()[0].id] == [len(versions), versions[-1]]
    talk.select_version(0, 1)
    assert ["first", "after first"] == [turn.answer.text for turn in talk.turns()]
    assert "write first=first;write after first=after first;" == recalled(talk)
    talk.select_version(0, 2)
    assert ["failed"] == [turn.state for turn in talk.turns()]
    assert "" == recalled(talk)
    talk.select_version(0, 3)
    assert ["second"] == [turn.answer.text for turn in talk.turns()]
    assert ["first", "after first", "write first=first;write after first=after first;", "", "", "second"] == [
        turn.answer.text for turn in talk.all_turns()
    ]
    assert [] == talk.call("list_sessions")["sessions"]


def test_the_files_of_a_version_are_read_again_when_it_is_shown():
    talk = Conversation(UNKEPT)
    list(talk.ask(Request("write first", (Attachment("a.txt", "text"),))))
    talk.rewind()
    list(talk.ask(Request("write second")))
    talk.select_version(0, 1)

    assert [(Attachment("a.txt", "text"),)] == [turn.files for turn in talk.unsent_turns]


def test_a_session_of_another_kind_keeps_no_versions():
    """A server rewinds the same session for every request."""
    talk = Conversation(SessionRequest(is_stored=False, kind="serve"))
    for question in ("write first", "write second"):
        list(talk.ask(Request(question)))
        talk.rewind()

    assert [] == talk.all_turns()
