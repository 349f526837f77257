"""Versions: other answers, or other questions, in one place of a conversation. None is lost, and each can be shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specchat.app.chat_state import ChatState
from specchat.app.command_registry import run_line
from specchat.app.export import export_conversation
from specchat.chat.events import TextDelta
from specchat.errors import UsageError
from specchat.host.client import Conversation, SessionRequest


def ask(conversation: Conversation, text: str) -> str:
    return "".join(event.text for event in conversation.ask(text) if isinstance(event, TextDelta))


def shown(conversation: Conversation) -> list[str]:
    return [turn.answer.text for turn in conversation.turns()]


@pytest.fixture
def conversation(runtime):
    """Two turns; the first question was edited afterwards, and then asked once more."""
    conversation = Conversation()
    ask(conversation, "write one")
    ask(conversation, "write after one")
    for text in ("write two", "write three"):
        conversation.rewind(len(conversation.turns()))
        ask(conversation, text)
    return conversation


def test_the_versions_of_a_turn_are_known_in_their_order(conversation):
    [versions] = conversation.versions().values()

    assert ["three"] == shown(conversation)
    assert 3 == len(versions)
    assert versions[-1] == conversation.turns()[0].id


def test_another_version_comes_with_what_was_asked_after_it(conversation):
    conversation.select_version(0, 1)
    assert ["one", "after one"] == shown(conversation)
    conversation.select_version(0, 2)
    assert ["two"] == shown(conversation)


def test_the_model_reads_the_shown_version_also_after_the_host_was_replaced(conversation):
    conversation.select_version(0, 1)
    assert ask(conversation, "recall") == "write one=one;write after one=after one;"
    conversation.select_version(0, 2)
    assert ask(conversation, "recall") == "write two=two;"

    with Conversation(SessionRequest(session_id=conversation.session_id)) as reopened:
        assert ["two", "write two=two;"] == shown(reopened)


def test_a_version_that_is_none_is_refused(conversation):
    for number in (0, 4):
        with pytest.raises(UsageError, match="no version"):
            conversation.select_version(0, number)
    with pytest.raises(UsageError, match="is no version of a turn"):
        conversation.call("select_version", {"turn": "elsewhere"})

    assert ["three"] == shown(conversation)


def test_a_fork_has_versions_of_its_own_and_leaves_the_original_alone(conversation):
    original = conversation.session_id
    conversation.switch_session(conversation.call("fork"))
    conversation.rewind()
    ask(conversation, "write four")
    assert ["four"] == shown(conversation)

    conversation.switch_session(conversation.call("open_session", {"session": original}))
    assert 3 == len(next(iter(conversation.versions().values())))


def test_an_export_has_the_shown_version_or_all_of_them(conversation, tmp_path):
    markdown = export_conversation(Path("x.md"), "t", conversation.turns())
    assert "three" in markdown
    assert "one" not in markdown
    assert "Version" not in markdown

    everything = export_conversation(Path("x.md"), "t", conversation.all_turns())
    places = [everything.index(text) for text in ("Version 1 of 3", "after one", "Version 2 of 3", "Version 3 of 3")]
    assert sorted(places) == places

    chat, path = ChatState(conversation), tmp_path / "all.json"
    run_line(chat, f"/export {path} --all")
    rows = json.loads(path.read_text())["turns"]
    assert ["one", "after one", "two", "three"] == [row["answer"] for row in rows]
    assert [None, rows[0]["id"], None, None] == [row["parent"] for row in rows]


def test_the_line_mode_shows_a_version_and_continues_with_it(conversation):
    chat = ChatState(conversation)
    assert run_line(chat, "/version").text.startswith("version 3 of 3")
    assert "> write two\ntwo" in run_line(chat, "/version 2").text
    with pytest.raises(UsageError, match="needs a number"):
        run_line(chat, "/version last")

    assert ["two"] == shown(conversation)


def test_retry_keeps_the_earlier_answer(runtime):
    chat = ChatState(Conversation())
    first = ask(chat.conversation, "hello")
    second = "".join(
        event.text for event in chat.conversation.ask(run_line(chat, "/retry").request) if isinstance(event, TextDelta)
    )
    assert first != second
    run_line(chat, "/version 1")

    assert [first] == shown(chat.conversation)
