"""What other conversations left to be copied: newest last, files included, and never an error."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from specchat.chat.history import StoredAnswer, Thread
from specchat.chat.past_answers import past_texts
from specchat.host.history_writer import HistoryWriter

THREAD = Thread("t1", "Capitals")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


def say(history, thread, turn, parent, answer, files=()):
    request = {"text": "?", "files": [{"name": "a.py", "text": text} for text in files]}
    history.begin(thread, turn, parent, request)
    history.finish(turn, StoredAnswer(answer), "stop", {})


@pytest.fixture
def history(path):
    with closing(HistoryWriter(path)) as history:
        say(history, THREAD, "1", None, "Paris.", files=["import os"])
        say(history, THREAD, "2", "1", "Rome.")
        say(history, replace(THREAD, id="t2"), "3", None, "Oslo.", files=["import os"])
        yield history


def test_answers_and_files_come_back_the_newest_last_and_each_once(history, path):
    assert ["Paris.", "Rome.", "import os", "Oslo."] == past_texts(path)


def test_the_newest_are_taken_when_there_is_too_much(history, path):
    assert ["impo", "Oslo."] == past_texts(path, max_characters=9)


def test_what_was_deleted_is_not_said_again(history, path):
    thread = history.thread("t1")
    history.update(replace(thread, deleted=1.0))

    assert ["import os", "Oslo."] == past_texts(path)


def test_a_running_answer_is_no_past(history, path):
    history.begin(THREAD, "4", "2", {"text": "?"})

    assert "" not in past_texts(path)


def test_a_history_that_cannot_be_read_holds_nothing(tmp_path):
    (tmp_path / "broken.db").write_text("no database" * 100)

    assert [] == past_texts(tmp_path / "none.db")
    assert [] == past_texts(tmp_path / "broken.db")
