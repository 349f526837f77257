"""The history database: what is stored, also after faults of the disk."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

from specchat.errors import HostError
from specchat.history import history_reader as reading
from specchat.history.history_reader import StoredAnswer, Thread, pack_ids, unpack_ids
from specchat.history.history_schema import FIRST_VERSION, MIGRATIONS, migrate, schema_version
from specchat.history.history_writer import HistoryWriter

ANSWER = StoredAnswer(
    "Paris.", (4, 5, 2**31), b"\x00\x01\x00", ("target", "lookup"), "lookup", 2**64 - 1, (1, 2, 3), "<user>é"
)
THREAD = Thread("t1", "Capitals", folder="/home/me")


OPENED: list[reading.HistoryReader] = []


class History(HistoryWriter):
    def __init__(self, *given):
        super().__init__(*given)
        OPENED.append(self)


class HistoryReader(reading.HistoryReader):
    def __init__(self, path):
        super().__init__(path)
        OPENED.append(self)


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "history.db"
    while OPENED:
        OPENED.pop().close()


def look(path, sql):
    with closing(sqlite3.connect(path)) as database:
        return database.execute(sql).fetchone()[0]


def say(history: History, turn: str, parent: str | None, question: str, answer: str, thread: Thread = THREAD) -> None:
    history.start_turn(thread, turn, parent, {"text": question})
    history.finish_turn(turn, StoredAnswer(answer, (1,), b"\x00", ("target",)), "stop", {"tokens": 1})


def texts(history: HistoryReader, tip: str | None) -> list[tuple[str, str]]:
    return [(turn.request["text"], turn.answer.text) for turn in history.turns(tip)]


def test_a_turn_is_read_as_it_was_written(path):
    history = History(path)
    history.start_turn(THREAD, "a", None, {"text": "capital of France?", "files": []})
    history.finish_turn("a", ANSWER, "stop", {"tokens": 3})

    [turn] = HistoryReader(path).turns("a")

    assert ANSWER == turn.answer
    assert ("stop", {"tokens": 3}, {"text": "capital of France?", "files": []}) == (
        turn.state,
        turn.totals,
        turn.request,
    )


def test_the_question_is_stored_before_the_answer_starts(path):
    History(path).start_turn(THREAD, "a", None, {"text": "why?"})

    [turn] = HistoryReader(path).turns("a")

    assert ("running", "why?", "") == (turn.state, turn.request["text"], turn.answer.text)


def test_a_partial_answer_is_written_with_the_next_flush(path):
    history = History(path)
    history.start_turn(THREAD, "a", None, {"text": "why?"})
    history.update_answer("a", lambda: (StoredAnswer("Bec"), b""))
    history.update_answer("a", lambda: (StoredAnswer("Because"), b""))
    assert 0 <= history.seconds_until_flush() <= 1

    history.flush()

    assert "Because" == HistoryReader(path).turns("a")[0].answer.text
    assert history.seconds_until_flush() is None


def test_a_fork_shares_the_earlier_turns(path):
    history = History(path)
    say(history, "a", None, "one", "1")
    say(history, "b", "a", "two", "2")

    history.add_thread(Thread("t2", "Fork", tip="a", forked_from="t1"))
    say(history, "c", "a", "three", "3", Thread("t2", "Fork"))

    assert [("one", "1"), ("two", "2")] == texts(history, history.thread("t1").tip)
    assert [("one", "1"), ("three", "3")] == texts(history, history.thread("t2").tip)
    assert 6 == look(path, "SELECT count(*) FROM messages")


def test_equal_prefixes_are_stored_once(path):
    history = History(path)
    say(history, "a", None, "one", "1")
    say(history, "b", None, "one", "1", Thread("t2", "Again"))

    assert 2 == look(path, "SELECT count(*) FROM messages")


def test_search_finds_questions_and_answers_by_prefixes_of_words(path):
    history = History(path)
    say(history, "a", None, "capital of France", "It is Paris, of course")

    assert ["t1"] == [thread.id for thread, _ in HistoryReader(path).search("pari")]
    assert ["t1"] == [thread.id for thread, _ in HistoryReader(path).search('FRANCE "capital')]
    assert [] == HistoryReader(path).search("London")
    assert [] == HistoryReader(path).search('" * NEAR(')


def test_of_a_text_of_megabytes_only_the_beginning_is_searched(path):
    history = History(path)
    say(history, "1", None, "zebra " + "filler " * 10**6, "done")

    assert [THREAD.id] == [thread.id for thread, _ in history.search("zebra")]
    assert look(path, "SELECT length(question) FROM search") < 10**6
    assert texts(history, "1") == [("zebra " + "filler " * 10**6, "done")]


def test_a_deleted_thread_can_be_restored(path):
    history = History(path)
    say(history, "a", None, "one", "1")

    history.update_thread(replace(history.thread("t1"), deleted=5.0))
    assert ([], ["t1"]) == (history.threads(), [thread.id for thread in history.threads(deleted=True)])
    history.update_thread(replace(history.thread("t1"), deleted=None))

    assert ["t1"] == [thread.id for thread in history.threads(folder="/home/me", kind="chat")]
    assert [] == history.threads(folder="/tmp")


def test_a_thread_is_found_by_an_unambiguous_prefix_of_its_id(path):
    history = History(path)
    say(history, "a", None, "one", "1", Thread("abc1", "x"))
    say(history, "b", None, "one", "1", Thread("abd2", "y"))

    assert "abc1" == history.thread("abc").id
    assert history.thread("ab") is None
    assert history.thread("") is None


def test_turns_of_a_killed_host_are_closed_and_can_be_recovered(path):
    script = f"""if True:
        import os, pathlib
        from specchat.history.history_writer import *
        history = HistoryWriter(pathlib.Path({str(path)!r}))
        history.start_turn(Thread("t1", "x"), "a", None, {{"text": "why?"}})
        history.update_answer("a", lambda: (StoredAnswer("Bec", (1,), b"\\0", ("target",)), b""))
        history.flush()
        os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", script], check=False)

    history = History(path)
    [turn] = history.turns("a")
    assert ("interrupted", "Bec") == (turn.state, turn.answer.text)

    assert not history.recover_answer("a", StoredAnswer("Something else"))
    assert history.recover_answer("a", StoredAnswer("Because", (1, 2), b"\0\0", ("target",)))
    assert "Because" == history.turns("a")[0].answer.text


def test_a_file_that_is_no_database_is_moved_away(path):
    path.write_bytes(b"no database at all" * 1000)

    history = History(path)
    say(history, "a", None, "one", "1")

    assert "set aside" in history.warning
    assert [("one", "1")] == texts(HistoryReader(path), "a")
    assert b"no database" == next(path.parent.glob("*corrupt*")).read_bytes()[:11]


def test_after_a_corruption_all_later_turns_are_stored(path):
    history = History(path)
    for number in range(50):
        say(history, str(number), None, "x" * 3000, str(number))
    history.close()
    OPENED.clear()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 8192))

    history = History(path)
    say(history, "new", None, "still there?", "yes")
    history.flush()

    assert ("still there?", "yes") == texts(history, "new")[-1]


def test_a_full_disk_is_reported_and_the_write_is_repeated(path):
    history = History(path)
    say(history, "a", None, "one", "1")
    history._database.execute("PRAGMA max_page_count = 1")

    history.start_turn(THREAD, "b", "a", {"text": "x" * 100_000})
    history.finish_turn("b", StoredAnswer("y" * 100_000), "stop", {})
    assert "full" in history.warning
    assert history.seconds_until_flush() is not None
    history._database.execute("PRAGMA max_page_count = 100000")

    assert history.flush()
    assert "" == history.warning
    assert ["1", "y" * 100_000] == [answer for _, answer in texts(HistoryReader(path), "b")]


def test_without_write_access_the_history_stays_in_memory(path):
    history = History(path.parent / "missing" / "history.db")
    say(history, "a", None, "one", "1")

    assert "in memory only" in history.warning
    assert [("one", "1")] == texts(history, "a")


def test_an_older_schema_is_migrated(path):
    say(History(path), "a", None, "one", "1")
    newer = (*MIGRATIONS, "ALTER TABLE threads ADD COLUMN colour TEXT")

    history = History(path, newer)

    assert [("one", "1")] == texts(history, "a")
    assert FIRST_VERSION + 1 == look(path, "PRAGMA user_version")


def test_a_newer_schema_is_refused(path):
    History(path, (*MIGRATIONS, "SELECT 1"))
    before = path.read_bytes()

    spare = path.with_name("spare.db")
    history = History(path, MIGRATIONS, spare)
    say(history, "a", None, "one", "1")

    assert "newer specchat" in history.warning
    assert before == path.read_bytes()
    assert [("one", "1")] == texts(HistoryReader(spare), "a")


def test_a_file_of_an_unreleased_version_is_refused_in_one_line_and_stays_as_it_is(path):
    with closing(sqlite3.connect(path)) as old:
        old.executescript("CREATE TABLE threads (id TEXT); INSERT INTO threads VALUES ('t1'); PRAGMA user_version = 3")
    before, spare = path.read_bytes(), path.with_name("spare.db")

    history = History(path, MIGRATIONS, spare)
    say(history, "a", None, "one", "1")

    assert "an unreleased specchat wrote this file (schema 3); move it away" in history.warning
    assert [("one", "1")] == texts(HistoryReader(spare), "a")
    with pytest.raises(HostError, match=r"history\.db: an unreleased specchat wrote this file \(schema 3\)"):
        HistoryReader(path)
    assert before == path.read_bytes()


def test_a_migration_that_fails_leaves_the_file_as_it_was(path):
    migrations = [*MIGRATIONS, "CREATE TABLE further (x)", "no statement"]
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        with pytest.raises(sqlite3.OperationalError):
            migrate(database, migrations)
        database.rollback()

        assert schema_version(database) == 0
        assert database.execute("SELECT * FROM sqlite_schema").fetchall() == []


def test_a_reader_cannot_write(path):
    say(History(path), "a", None, "one", "1")

    with pytest.raises(HostError):
        HistoryReader(path)._query("DELETE FROM turns", [])


def test_a_file_of_a_host_that_was_killed_before_it_had_tables_is_an_empty_history(path):
    path.touch()

    with closing(reading.HistoryReader(path)) as reader:
        assert [] == reader.threads()
    assert path.read_bytes() == b""


def test_a_reader_without_a_file_is_an_error(path):
    with pytest.raises(HostError, match="cannot be read"):
        HistoryReader(path).threads()


def test_token_ids_of_four_bytes_are_packed():
    assert (0, 2**32 - 1) == unpack_ids(pack_ids((0, 2**32 - 1)))
    assert () == unpack_ids(None)


def test_steps_are_written_with_the_partial_answer(path):
    history = History(path)
    history.start_turn(THREAD, "a", None, {"text": "why?"})
    history.update_answer("a", lambda: (StoredAnswer("Bec"), b"\x01some"))
    history.flush()
    history.update_answer("a", lambda: (StoredAnswer("Because"), b"\x01more"))
    history.flush()

    assert HistoryReader(path).packed_steps("a") == b"\x01more"
