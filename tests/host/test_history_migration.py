"""A history database of schema 3, written by specchat at commit af8096e, is read and migrated without a loss."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest

from specchat.chat.events import CommittedToken, StepDone, Totals
from specchat.history.history_reader import HistoryReader, StoredAnswer
from specchat.history.history_schema import MIGRATIONS, migrate, schema_version
from specchat.history.history_writer import HistoryWriter
from specchat.host.protocol import request_from_json, request_to_json, totals_from_json
from specchat.profile import Profile
from specchat.profile.settings import Settings

ROWS = Path(__file__).with_name("history_schema_3.sql").read_text(encoding="utf-8")
ANSWER = StoredAnswer("Paris.", (4, 5), b"\x00\x01", ("lookup", "target"), "lookup", 2**64 - 1, (1, 2, 3), "<user>é")
STEP = StepDone(
    (5, 6), (0, 1), (CommittedToken(4, b"Pa", "lookup"), CommittedToken(5, b"ris.", "target")), 0.25, 0.5,
    (b"Pa", b" no"), ("lookup", "lookup"),
)  # fmt: skip
TOTALS = Totals(
    prompt_tokens=3, cached_tokens=1, completion_tokens=2, steps=1, draft_tokens=2, accepted_by_drafter={"lookup": 1},
    draft_seconds=0.25, verify_seconds=0.5, prefill_seconds=0.125, ttft_seconds=0.75,
)  # fmt: skip


NEWER_FIELDS = {  # than these databases
    "acceptance", "is_exact", "plain_decode_seconds", "plain_decode_error", "steps_by_drafter", "drafter_report",
    "estimates", "thinking_tokens", "thinking_seconds", "seconds", "queue_seconds", "other_seconds",
    "loading_seconds", "repeated_tokens", "compared_seconds",
}  # fmt: skip
OLDER_FIELDS = {"plain_step_seconds", "choice_reason"}  # no longer read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file as the old version left it."""
    path = tmp_path / "history.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(";".join(MIGRATIONS[:3]) + ";PRAGMA user_version = 3;" + ROWS)
    return path


@pytest.fixture(params=["reader", "writer"])
def history(request: pytest.FixtureRequest, path: Path) -> Iterator[HistoryReader]:
    """The old file, read before and after a host has migrated it."""
    opened = HistoryReader(path) if request.param == "reader" else HistoryWriter(path)
    yield opened
    opened.close()


def test_turns_keep_their_answers_requests_totals_and_steps(history: HistoryReader):
    first, second = history.turns(history.thread("t1").tip)

    assert first.answer == ANSWER
    assert totals_from_json(first.totals) == TOTALS
    assert set(first.totals) == {each.name for each in fields(Totals)} - NEWER_FIELDS | OLDER_FIELDS
    assert history.steps("a") == [STEP]
    assert (second.state, second.totals) == ("failed", {"message": "too long"})
    request = request_from_json(first.request)
    assert (request.file_to_rewrite, request.answer_format.value) == ("a.md", ["Paris.", "Rome."])
    newer = {"answer_prefix": "", "thinking": None}  # than these databases
    assert json.loads(json.dumps(request_to_json(request))) == {**first.request, **newer}


def test_threads_keep_their_places_and_search_finds_them(history: HistoryReader):
    assert {("t1", "b"), ("t2", "c")} == {(thread.id, thread.tip) for thread in history.threads()}
    assert ["t1"] == [thread.id for thread, _ in history.search("pari")]
    assert ["capital of France?", "why?"] == [turn.request["text"] for turn in history.turns("c")]


def test_settings_have_the_new_keys_and_values(history: HistoryReader):
    settings = history.settings("t1")["changes"]

    assert settings == {
        "speculation.acceptance_test": "rejection_sampling", "models.api_key_file": "/key", "limits.answer": 99,
    }  # fmt: skip
    assert Profile().override(settings).limits.answer == 99


def test_a_reader_leaves_an_old_file_as_it_is(path: Path):
    before = path.read_bytes()
    with closing(HistoryReader(path)) as history:
        assert history.threads()

    assert before == path.read_bytes()


def test_a_writer_migrates_the_file_and_closes_its_interrupted_turn(path: Path):
    with closing(HistoryWriter(path)) as history:
        assert ("interrupted", "Bec") == (history.turns("c")[-1].state, history.turns("c")[-1].answer.text)
        history.start_turn(history.thread("t1"), "d", "b", {"text": "really?"})
        history.finish_turn("d", StoredAnswer("yes"), "stop", {})

    with closing(HistoryReader(path)) as history:
        assert ["a", "b", "d"] == [turn.id for turn in history.turns(history.thread("t1").tip)]
    with closing(sqlite3.connect(path)) as database:
        assert schema_version(database) == len(MIGRATIONS)


def test_a_stored_profile_is_a_profile_again(path: Path):
    with closing(HistoryWriter(path)) as history:
        stored = history.settings("t1")

    profile = Settings.from_json(stored).profile

    assert profile.speculation.acceptance_test == "rejection_sampling"
    assert (profile.models.backend, profile.models.embedding_device) == ("builtin", "cpu")
    assert (profile.prompt.reference_corpus, profile.limits.answer) == ("book.jsonl", 99)
    [route], [order] = profile.routes, profile.drafter_orders
    assert (route.starts_with, route.contains, route.also_contains) == (("write",), ("snake",), ("game",))
    assert (route.excludes, route.min_words, route.max_words, route.temperature_above) == (("no",), 2, 9, 0.5)
    assert order.variants == ("lookup",)


def test_threads_keep_their_order_by_use(path: Path):
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE threads SET updated = CASE id WHEN 't1' THEN 7 ELSE 9 END")
        database.commit()

    with closing(HistoryWriter(path)) as history:
        assert ["t2", "t1"] == [thread.id for thread in history.threads()]


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path):
    migrations = [*MIGRATIONS, "CREATE TABLE further (x)", "no statement"]
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as database:
        with pytest.raises(sqlite3.OperationalError):
            migrate(database, migrations)
        database.rollback()

        assert schema_version(database) == 0
        assert database.execute("SELECT * FROM sqlite_schema").fetchall() == []
