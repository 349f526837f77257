"""Versions: other answers, or other questions, in one place of a conversation. None is lost, and each can be shown."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from specchat.app.chat_state import ChatState
from specchat.app.command_registry import run_line
from specchat.app.export import export_conversation
from specchat.chat.events import TextDelta
from specchat.errors import UsageError
from specchat.history.history_reader import HistoryReader
from specchat.history.history_schema import MIGRATIONS, schema_version
from specchat.history.history_writer import HistoryWriter
from specchat.host.client import Conversation, SessionRequest

SCHEMA_4 = Path(__file__).with_name("history_schema_4.sql")


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


@pytest.fixture
def old_file(tmp_path) -> Path:
    """A file as the version before this one left it: the second question has two answers, and a third one runs."""
    path = tmp_path / "history.db"
    with closing(sqlite3.connect(path)) as database:
        steps = ";".join(MIGRATIONS[:4])
        rows = SCHEMA_4.read_text(encoding="utf-8")
        for name, function in _converters().items():
            database.create_function(name, 1, function)
        database.executescript(f"{steps};PRAGMA user_version = 4;{rows}")
    return path


def _converters():
    names = ("rename_request_keys", "rename_totals_keys", "rename_setting_keys", "rename_profile_keys")
    return dict.fromkeys(names, lambda text: text)


@pytest.mark.parametrize("open_history", [HistoryReader, HistoryWriter])
def test_a_file_of_the_schema_before_has_its_versions_at_once(old_file, open_history):
    with closing(open_history(old_file)) as history:
        thread = history.thread("t1")
        assert {"a": ("a",), "c": ("b", "c"), "d": ("d",)} == history.versions(thread)
        assert ["a", "b", "c", "d"] == [turn.id for turn in history.all_turns(thread)]
        assert "b" == history.newest_after("b", "t1")
        assert ["Paris.", "Rome.", "Mad"] == [turn.answer.text for turn in history.turns(thread.tip)]
        assert ["", "", ""] == [turn.answer.model for turn in history.turns(thread.tip)]


def test_a_writer_brings_the_file_to_the_newest_schema_and_loses_nothing(old_file):
    with closing(HistoryWriter(old_file)) as history:
        assert "interrupted" == history.turns("d")[-1].state
        stored = {"name": "chat", "sampling": {"temperature": 0.5}}
        assert {"name": "chat", "changes": {"sampling.temperature": 0.5}, "profile": stored} == history.settings("t1")
    with closing(sqlite3.connect(old_file)) as database:
        assert schema_version(database) == len(MIGRATIONS)
