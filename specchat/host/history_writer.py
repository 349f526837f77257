"""The one writer of the history.

Writing never fails towards the caller. What the disk refuses stays in memory and is tried again each second, and
`trouble` says so in one line; a file that is no database is set aside and a new one begun. A question is stored before
its answer begins, the partial answer every second. `chat/history.py` says what is kept.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from specchat.chat.history import (
    ANSWER_COLUMNS,
    BUSY_TIMEOUT_MILLISECONDS,
    HistoryReader,
    StoredAnswer,
    Thread,
    pack_answer,
)
from specchat.errors import HostError

MIGRATIONS = (
    """
    CREATE TABLE messages (
        hash TEXT PRIMARY KEY, parent TEXT, role TEXT NOT NULL, content TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE threads (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, folder TEXT NOT NULL, profile TEXT NOT NULL,
        settings TEXT NOT NULL, tip TEXT, forked_from TEXT, created REAL NOT NULL, updated REAL NOT NULL, deleted REAL
    ) WITHOUT ROWID;
    CREATE TABLE turns (
        id TEXT PRIMARY KEY, thread TEXT NOT NULL, parent TEXT, question TEXT NOT NULL, answer TEXT, partial TEXT,
        state TEXT NOT NULL, variant TEXT, seed TEXT, totals TEXT, prompt_ids BLOB, rendered BLOB, answer_ids BLOB,
        kinds BLOB, sources TEXT, writer INTEGER NOT NULL, started REAL NOT NULL, ended REAL
    ) WITHOUT ROWID;
    CREATE INDEX turns_by_thread ON turns (thread, started);
    CREATE INDEX turns_by_state ON turns (state) WHERE state = 'running';
    CREATE VIRTUAL TABLE search USING fts5 (question, answer, turn UNINDEXED);
    """,
    "CREATE TABLE profiles (thread TEXT PRIMARY KEY, packed TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE steps (turn TEXT PRIMARY KEY, packed BLOB NOT NULL)",
)

FLUSH_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True)
class TurnSnapshot:
    """An answer that grows, and what was guessed in its steps so far."""

    answered: StoredAnswer
    steps: bytes = b""


class HistoryWriter(HistoryReader):
    """The writer. One thread only, and no exception for what a disk may do."""

    def __init__(self, path: Path, migrations: Sequence[str] = MIGRATIONS, fallback_path: Path | None = None) -> None:
        self.path, self._fallback_path = path, fallback_path
        self.warning = ""
        self._migrations = migrations
        self._pending_statements: list[tuple[str, Sequence[Any]]] = []
        self._snapshots: dict[str, Callable[[], TurnSnapshot]] = {}
        self._answer_hashes: dict[str, str] = {}  # by turn: the address of its answer
        self._running_questions: dict[
            str, tuple[str, str]
        ] = {}  # by running turn: the address and the text of its question
        self._flushed_at = 0.0
        self._database = self._open()
        self._writer_locks = self._lock_as_writer()
        self._close_interrupted_turns()

    def start_turn(self, thread: Thread, turn_id: str, parent_id: str | None, request: dict[str, Any]) -> None:
        """Store a question, and its thread with it, before anything is computed."""
        now = time.time()
        question = self._add_message(self._answer_hash(parent_id), "user", json.dumps(request))
        self._running_questions[turn_id] = question, request["text"]
        self._add_thread_statement(replace(thread, tip=turn_id), now)
        self._add_statement(
            "INSERT OR IGNORE INTO turns (id, thread, parent, question, partial, state, writer, started) "
            "VALUES (?, ?, ?, ?, '', 'running', ?, ?)",
            turn_id, thread.id, parent_id, question, os.getpid(), now,
        )  # fmt: skip
        self.flush()

    def update_answer(self, turn_id: str, snapshot: Callable[[], TurnSnapshot]) -> None:
        """Note that a partial answer grew; it is asked for when the next flush writes it."""
        self._snapshots[turn_id] = snapshot

    def finish_turn(
        self, turn_id: str, answered: StoredAnswer, state: str, totals: dict[str, Any], packed_steps: bytes = b""
    ) -> None:
        """Store a whole answer with all that is known of it; `steps` as `record.py` packs them."""
        self._snapshots.pop(turn_id, None)
        if packed_steps:
            self._add_statement(SET_STEPS, turn_id, packed_steps)
        self._store_answer(turn_id, *self._running_questions.pop(turn_id), answered.text)
        self._add_statement(
            f"UPDATE turns SET partial = NULL, state = ?, totals = ?, ended = ?, {SET_ANSWER} WHERE id = ?",
            state, json.dumps(totals), time.time(), *pack_answer(answered), turn_id,
        )  # fmt: skip
        self.flush()

    def recover_answer(self, turn_id: str, answered: StoredAnswer) -> bool:
        """Replace an interrupted answer by a longer one that its reader had; False when it is another one."""
        found = [each for each in self.turns(turn_id) if each.id == turn_id]
        if not found or found[0].state != "interrupted" or not answered.text.startswith(found[0].answer.text):
            return False
        question = self._query("SELECT question FROM turns WHERE id = ?", [turn_id])[0][0]
        self._store_answer(turn_id, question, found[0].request.get("text", ""), answered.text)
        self._add_statement(f"UPDATE turns SET {SET_ANSWER} WHERE id = ?", *pack_answer(answered), turn_id)
        return self.flush()

    def add_thread(self, thread: Thread) -> None:
        """Store a thread before anything is asked in it."""
        self._add_thread_statement(thread, time.time())
        self.flush()

    def update_thread(self, thread: Thread) -> None:
        """Store what may change of a thread."""
        self._add_statement(
            "UPDATE threads SET name = ?, profile = ?, settings = ?, tip = ?, deleted = ? WHERE id = ?",
            thread.name, thread.profile, json.dumps(thread.settings), thread.tip, thread.deleted, thread.id,
        )  # fmt: skip
        self.flush()

    def store_profile(self, thread_id: str, packed: dict[str, Any]) -> None:
        """Store the profile that a thread is answered with, with the next flush."""
        if packed:
            self._add_statement("INSERT OR REPLACE INTO profiles VALUES (?, ?)", thread_id, json.dumps(packed))

    def stored_profile(self, thread_id: str) -> dict[str, Any]:
        """What was kept; empty when nothing was."""
        rows = self._query("SELECT packed FROM profiles WHERE thread = ?", [thread_id])
        return json.loads(rows[0][0]) if rows else {}

    def seconds_until_flush(self) -> float | None:
        """Seconds until `flush` should be called, None when nothing waits."""
        if not (self._pending_statements or self._snapshots):
            return None
        return max(0.0, self._flushed_at + FLUSH_INTERVAL_SECONDS - time.monotonic())

    def flush(self) -> bool:
        """One transaction with all that waits; False when the disk refused and everything waits on."""
        self._flushed_at = time.monotonic()
        try:
            self._write()
        except sqlite3.OperationalError as error:
            self.warning = f"{self.path}: {error}; what is said stays in memory and is tried again"
            return False
        except sqlite3.DatabaseError as error:
            self._replace_corrupt_database(error)
            return False
        self._pending_statements.clear()
        self._snapshots.clear()
        if self.warning.startswith(f"{self.path}: ") and self.warning.endswith("tried again"):
            self.warning = ""
        return True

    def close(self) -> None:
        """Write what waits and let go of the file."""
        self.flush()
        super().close()
        if self._writer_locks:
            self._writer_locks.close()

    def _write(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            for sql, values in self._pending_statements:
                self._database.execute(sql, values)
            for turn, partial in self._snapshots.items():
                grown = partial()
                values = [grown.answered.text, *pack_answer(grown.answered), turn]
                self._database.execute(f"UPDATE turns SET partial = ?, {SET_ANSWER} WHERE id = ?", values)
                if grown.steps:
                    self._database.execute(SET_STEPS, [turn, grown.steps])
            self._database.execute("COMMIT")
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def _add_statement(self, sql: str, *values: Any) -> None:
        self._pending_statements.append((sql, values))

    def _add_thread_statement(self, thread: Thread, now: float) -> None:
        self._add_statement(
            "INSERT INTO threads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL) "
            "ON CONFLICT (id) DO UPDATE SET tip = excluded.tip, updated = excluded.updated",
            thread.id, thread.name, thread.kind, thread.folder, thread.profile, json.dumps(thread.settings),
            thread.tip, thread.forked_from, thread.created or now, now,
        )  # fmt: skip

    def _add_message(self, parent: str | None, role: str, content: str) -> str:
        address = _message_hash(parent, role, content)
        self._add_statement("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?)", address, parent, role, content)
        return address

    def _store_answer(self, turn_id: str, question_hash: str, question_text: str, answer_text: str) -> None:
        self._answer_hashes[turn_id] = self._add_message(question_hash, "assistant", answer_text)
        self._add_statement("UPDATE turns SET answer = ? WHERE id = ?", self._answer_hashes[turn_id], turn_id)
        self._add_statement("DELETE FROM search WHERE turn = ?", turn_id)
        self._add_statement("INSERT INTO search VALUES (?, ?, ?)", question_text, answer_text, turn_id)

    def _answer_hash(self, turn_id: str | None) -> str | None:
        """The address of a turn's answer, None for the beginning of a conversation."""
        if turn_id is not None and turn_id not in self._answer_hashes:
            rows = self._query("SELECT answer FROM turns WHERE id = ?", [turn_id])
            self._answer_hashes[turn_id] = (rows[0][0] if rows else None) or turn_id
        return None if turn_id is None else self._answer_hashes[turn_id]

    def _open(self) -> sqlite3.Connection:
        try:
            return _open_writer(self.path, self._migrations)
        except (HostError, sqlite3.OperationalError) as error:
            spare, self._fallback_path = self._fallback_path or IN_MEMORY, None
            where = "in memory only" if spare == IN_MEMORY else f"in {spare}"
            self.warning = f"{self.path}: {error}; what is said now is kept {where}"
        except sqlite3.DatabaseError:
            self._move_corrupt_files()
            return self._open()
        self.path = spare
        return self._open()

    def _query(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            return super()._query(sql, values)
        except HostError as error:
            if isinstance(error.__cause__, sqlite3.OperationalError):
                raise
            self._replace_corrupt_database(error.__cause__)
            return []

    def _replace_corrupt_database(self, error: BaseException | None) -> None:
        if getattr(error, "sqlite_errorcode", None) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise error or AssertionError("no error")
        self._database.close()
        self._move_corrupt_files()
        self._database = self._open()

    def _move_corrupt_files(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.unreadable-{time.time_ns()}")
        for end in ("", "-wal", "-shm", "-journal"):
            part = self.path.with_name(self.path.name + end)
            if part.exists():
                part.rename(f"{aside}{end}")
        self.warning = f"{self.path} could not be read and was set aside as {aside.name}; a new history begins"

    def _close_interrupted_turns(self) -> None:
        for turn, question, partial, writer in self._query(SELECT_RUNNING, []):
            if self._writer_locks and not self._writer_locks.is_alive(writer):
                asked = self._query("SELECT content FROM messages WHERE hash = ?", [question])
                self._store_answer(turn, question, json.loads(asked[0][0])["text"] if asked else "", partial or "")
                self._add_statement("UPDATE turns SET state = 'interrupted', partial = NULL WHERE id = ?", turn)
        if self._pending_statements:
            self.flush()

    def _lock_as_writer(self) -> WriterLocks | None:
        try:
            return None if self.path == IN_MEMORY else WriterLocks(self.path)
        except OSError as error:  # a file system without locks: nobody is declared dead there
            self.warning = f"{self.path}: {error.strerror}; answers that a killed host left are not closed"
            return None


IN_MEMORY = Path(":memory:")
SELECT_RUNNING = "SELECT id, question, partial, writer FROM turns WHERE state = 'running'"
SET_STEPS = "INSERT OR REPLACE INTO steps VALUES (?, ?)"
SET_ANSWER = ", ".join(f"{column} = ?" for column in ANSWER_COLUMNS)


def _message_hash(parent: str | None, role: str, content: str) -> str:
    return blake2b(json.dumps([parent, role, content]).encode(), digest_size=16).hexdigest()


class WriterLocks:
    """Which writers of a file live: each locks the byte with the number of its process, and the system lets go of it.

    A process id alone would not tell: a killed host may stay as a zombie, and numbers are used again.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.with_name(path.name + ".writers").open("a+b", buffering=0)
        fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, os.getpid())

    def is_alive(self, process_id: int) -> bool:
        """Does this process write, and is it not ourselves?"""
        if process_id == os.getpid():
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, process_id)
        except OSError:
            return True
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, process_id)
        return False

    def close(self) -> None:
        """Write no longer."""
        self._file.close()


def _open_writer(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    """A database at the newest schema, with the best journal that its file system offers."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > len(migrations):
            raise HostError(f"written by a newer specchat (schema {version}); upgrade to go on with it")
        _choose_journal(database)
        for number, script in enumerate(migrations[version:], start=version + 1):
            database.executescript(f"BEGIN IMMEDIATE;{script};PRAGMA user_version = {number};COMMIT;")
    except (sqlite3.Error, HostError):
        database.close()
        raise
    return database


def _choose_journal(database: sqlite3.Connection) -> None:
    """A write-ahead log where the file system has shared memory, else a plain rollback journal."""
    try:
        mode = database.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        database.execute("BEGIN IMMEDIATE")
        database.execute("COMMIT")
    except sqlite3.OperationalError:
        mode = "none"
    if mode == "wal":
        database.execute("PRAGMA synchronous = NORMAL")
    else:
        database.execute("PRAGMA journal_mode = TRUNCATE")
