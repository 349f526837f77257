"""What version 0.1.0 stores is opened by the next one. `history_0.1.0.db.gz` is such a file, and stays as it is."""

from __future__ import annotations

import gzip
from contextlib import closing
from pathlib import Path

import pytest

from specchat.history.history_reader import StoredAnswer, Thread
from specchat.history.history_schema import FIRST_VERSION, MIGRATIONS, schema_version
from specchat.history.history_writer import HistoryWriter

STORED = Path(__file__).with_name("history_0.1.0.db.gz")


@pytest.mark.parametrize("migrations", [MIGRATIONS, (*MIGRATIONS, "ALTER TABLE threads ADD COLUMN colour TEXT")])
def test_a_history_of_the_first_version_is_opened_and_continued(tmp_path, migrations):
    path = tmp_path / "history.db"
    path.write_bytes(gzip.decompress(STORED.read_bytes()))

    with closing(HistoryWriter(path, migrations)) as history:
        history.start_turn(Thread("thread", "first questions"), "next", "turn", {"text": "And a lake?"})
        history.finish_turn("next", StoredAnswer("Water that stays."), "stop", {})
        answers = [(turn.request["text"], turn.answer.text) for turn in history.turns("next")]

        assert ("", path) == (history.warning, history.path)
        assert [("What is a river?", "Water that flows."), ("And a lake?", "Water that stays.")] == answers
        assert {"sampling.temperature": 0.3} == history.settings("thread")
        assert FIRST_VERSION + len(migrations) - 1 == schema_version(history._database)
