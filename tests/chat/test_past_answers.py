"""Texts of other conversations: newest last, files included, and never an error."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from specchat.history.history_reader import StoredAnswer, Thread, past_texts
from specchat.history.history_writer import HistoryWriter

THREAD = Thread("t1", "Capitals")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


def add_turn(history, thread, turn, parent, answer, files=()):
    request = {"text": "?", "files": [{"name": "a.py", "text": text} for text in files]}
    history.start_turn(thread, turn, parent, request)
    history.finish_turn(turn, StoredAnswer(answer), "stop", {})


@pytest.fixture
def history(path):
    with closing(HistoryWriter(path)) as history:
        add_turn(history, THREAD, "1", None, "Paris.", files=["import os"])
        add_turn(history, THREAD, "2", "1", "Rome.")
        add_turn(history, replace(THREAD, id="t2"), "3", None, "Oslo.", files=["import os"])
        yield history


def test_answers_and_files_are_unique_and_the_newest_come_last(history, path):
    assert ["Paris.", "Rome.", "import os", "Oslo."] == past_texts(path)


def test_the_newest_texts_are_taken_up_to_the_limit(history, path):
    assert ["impo", "Oslo."] == past_texts(path, max_characters=9)


def test_deleted_threads_are_left_out(history, path):
    thread = history.thread("t1")
    history.update_thread(replace(thread, deleted=1.0))

    assert ["import os", "Oslo."] == past_texts(path)


def test_a_running_answer_is_left_out(history, path):
    history.start_turn(THREAD, "4", "2", {"text": "?"})

    assert "" not in past_texts(path)


def test_an_unreadable_history_has_no_texts(tmp_path):
    (tmp_path / "broken.db").write_text("no database" * 100)

    assert [] == past_texts(tmp_path / "none.db")
    assert [] == past_texts(tmp_path / "broken.db")
