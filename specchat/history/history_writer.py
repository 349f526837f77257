"""The only writer of the history database. `history/history_schema.py` describes the tables.

Writing never raises for a disk error. The writer keeps rejected statements in memory, retries them every second, and
reports the error in `warning`. It renames a file that is not a database and starts a new one. It stores a question
before the answer starts, and the partial answer every second.
"""

import errno
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from specchat.errors import HostError
from specchat.file_lock import try_lock, unlock_byte
from specchat.history.history_reader import (
    ANSWER_COLUMNS,
    BUSY_TIMEOUT_MILLISECONDS,
    HistoryReader,
    StoredAnswer,
    Thread,
    pack_answer,
)
from specchat.history.history_schema import MIGRATIONS, migrate

log = logging.getLogger(__name__)

FLUSH_INTERVAL_SECONDS = 1.0
MAX_SEARCHED_CHARACTERS = 256 * 2**10  # of a text: indexing takes seconds for 30 MB, and every client waits


Snapshot = Callable[[], tuple[StoredAnswer, bytes]]  # the answer so far, and its packed steps


class HistoryWriter(HistoryReader):
    """Writes and reads the database. For one thread; disk errors go to `warning`."""

    def __init__(self, path: Path, migrations: Sequence[str] = MIGRATIONS, fallback_path: Path | None = None) -> None:
        self.path, self._fallback_path = path, fallback_path
        self.warning = ""
        self._migrations = migrations
        self._pending = PendingWrites()
        self._answer_hashes: dict[str, str] = {}  # by turn id
        self._running_questions: dict[str, tuple[str, str]] = {}  # by id of a running turn: hash and text
        self._flushed_at = 0.0
        self._database = self._open()
        self._writer_locks: WriterLocks | None = None
        try:
            self._writer_locks = None if self.path == IN_MEMORY else WriterLocks(self.path)
        except OSError as error:  # without file locks, no host counts as dead
            self.warning = f"{self.path}: {error.strerror}; unfinished answers of killed hosts stay open"
        self._close_interrupted_turns()

    def start_turn(self, thread: Thread, turn_id: str, parent_id: str | None, request: dict[str, Any]) -> None:
        """Store a question and its thread, before the engine computes anything."""
        now = time.time()
        question = self._add_message(self._answer_hash(parent_id), "user", json.dumps(request))
        self._running_questions[turn_id] = question, request["text"]
        self._add_statement(ADD_THREAD, *_thread_values(replace(thread, tip=turn_id), now))
        self._add_statement(
            "INSERT OR IGNORE INTO turns "
            "(id, thread_id, parent_id, question_hash, partial, state, writer_pid, started) "
            "VALUES (?, ?, ?, ?, '', 'running', ?, ?)",
            turn_id, thread.id, parent_id, question, os.getpid(), now,
        )  # fmt: skip
        self.flush()

    def update_answer(self, turn_id: str, snapshot: Snapshot) -> None:
        """Register a partial answer; the next flush calls `snapshot` and writes the result."""
        self._pending.snapshots[turn_id] = snapshot

    def finish_turn(
        self, turn_id: str, answer: StoredAnswer, state: str, totals: dict[str, Any], packed_steps: bytes = b""
    ) -> None:
        """Store a complete answer, once; `packed_steps` comes from `history/step_encoding.py`."""
        columns, totals_json = pack_answer(answer), json.dumps(totals)
        self._pending.snapshots.pop(turn_id, None)
        if (question := self._running_questions.pop(turn_id, None)) is None:
            return
        if packed_steps:
            self._add_statement(SET_STEPS, turn_id, packed_steps)
        self._store_answer(turn_id, *question, answer.text)
        self._add_statement(
            f"UPDATE turns SET partial = NULL, state = ?, totals = ?, ended = ?, {SET_ANSWER} WHERE id = ?",
            state, totals_json, time.time(), *columns, turn_id,
        )  # fmt: skip
        self.flush()

    def forget_thread(self, thread_id: str, turn_id: str) -> None:
        """Remove a thread whose only turn got no answer."""
        self._pending.snapshots.pop(turn_id, None)
        question, _ = self._running_questions.pop(turn_id, ("", ""))
        self._add_statement("DELETE FROM turns WHERE id = ?", turn_id)
        self._add_statement("DELETE FROM steps WHERE turn_id = ?", turn_id)
        self._add_statement("DELETE FROM settings WHERE thread_id = ?", thread_id)
        self._add_statement("DELETE FROM threads WHERE id = ?", thread_id)
        self._add_statement(
            "DELETE FROM messages WHERE hash = ? AND hash NOT IN (SELECT question_hash FROM turns)", question
        )
        self.flush()

    def recover_answer(self, turn_id: str, answer: StoredAnswer) -> bool:
        """Replace an interrupted answer with a longer one from a client. False for an unrelated answer."""
        stored = next((turn for turn in self.turns(turn_id) if turn.id == turn_id), None)
        if stored is None or stored.state != "interrupted" or not answer.text.startswith(stored.answer.text):
            return False
        question_hash = self._query("SELECT question_hash FROM turns WHERE id = ?", [turn_id])[0][0]
        self._store_answer(turn_id, question_hash, stored.request.get("text", ""), answer.text)
        self._add_statement(f"UPDATE turns SET {SET_ANSWER} WHERE id = ?", *pack_answer(answer), turn_id)
        return self.flush()

    def add_thread(self, thread: Thread) -> None:
        """Store a thread that has no turn of its own yet."""
        self._add_statement(ADD_THREAD, *_thread_values(thread, time.time()))
        self.flush()

    def update_thread(self, thread: Thread) -> None:
        self._add_statement(
            "UPDATE threads SET name = ?, profile = ?, last_turn_id = ?, deleted = ? WHERE id = ?",
            thread.name, thread.profile, thread.tip, thread.deleted, thread.id,
        )  # fmt: skip
        self.flush()

    def store_settings(self, thread_id: str, settings: dict[str, Any]) -> None:
        """Write them with the next flush."""
        self._add_statement("INSERT OR REPLACE INTO settings VALUES (?, ?)", thread_id, json.dumps(settings))

    def seconds_until_flush(self) -> float | None:
        """Seconds until `flush` is due; None when there is nothing to write."""
        if not self._pending:
            return None
        return max(0.0, self._flushed_at + FLUSH_INTERVAL_SECONDS - time.monotonic())

    def flush(self) -> bool:
        """Write everything in one transaction; False when the disk refuses and everything stays in memory."""
        self._flushed_at = time.monotonic()
        try:
            self._pending.write(self._database)
        except sqlite3.OperationalError as error:
            self.warning = f"{self.path}: {error}; new messages stay in memory, and writing is retried"
            return False
        except sqlite3.DatabaseError as error:
            self._replace_corrupt_database(error)
            return False
        self._pending = PendingWrites()
        if self.warning.startswith(f"{self.path}: ") and self.warning.endswith("writing is retried"):
            self.warning = ""
        return True

    def close(self) -> None:
        self.flush()
        super().close()
        if self._writer_locks:
            self._writer_locks.close()

    def _add_statement(self, sql: str, *values: Any) -> None:
        self._pending.statements.append((sql, values))

    def _add_message(self, parent_hash: str | None, role: str, content: str) -> str:
        """Store a text once; its hash covers the text and all texts before it."""
        key = json.dumps([parent_hash, role, content]).encode()
        message_hash = blake2b(key, digest_size=16).hexdigest()
        values = message_hash, parent_hash, role, content
        self._add_statement("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?)", *values)
        return message_hash

    def _store_answer(self, turn_id: str, question_hash: str, question_text: str, answer_text: str) -> None:
        self._answer_hashes[turn_id] = self._add_message(question_hash, "assistant", answer_text)
        self._add_statement("UPDATE turns SET answer_hash = ? WHERE id = ?", self._answer_hashes[turn_id], turn_id)
        self._add_statement("DELETE FROM search WHERE turn_id = ?", turn_id)
        texts = question_text[:MAX_SEARCHED_CHARACTERS], answer_text[:MAX_SEARCHED_CHARACTERS]
        self._add_statement("INSERT INTO search VALUES (?, ?, ?)", *texts, turn_id)

    def _answer_hash(self, turn_id: str | None) -> str | None:
        """The hash of a turn's answer; None before the first turn."""
        if turn_id is not None and turn_id not in self._answer_hashes:
            rows = self._query("SELECT answer_hash FROM turns WHERE id = ?", [turn_id])
            self._answer_hashes[turn_id] = (rows[0][0] if rows else None) or turn_id
        return None if turn_id is None else self._answer_hashes[turn_id]

    def _open(self) -> sqlite3.Connection:
        try:
            return _open_writer(self.path, self._migrations)
        except (HostError, sqlite3.OperationalError) as error:
            fallback, self._fallback_path = self._fallback_path or IN_MEMORY, None
            location = "in memory only" if fallback == IN_MEMORY else f"in {fallback}"
            self.warning = f"{self.path}: {error}; new conversations are stored {location}"
        except sqlite3.DatabaseError:
            self.warning = _move_corrupt_files(self.path)
            return self._open()
        self.path = fallback
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
        self.warning = _move_corrupt_files(self.path)
        self._database = self._open()

    def _close_interrupted_turns(self) -> None:
        """Mark the running turns of dead hosts as interrupted, with their partial answers."""
        for turn_id, question_hash, partial, writer_pid in self._query(SELECT_RUNNING, []):
            if self._writer_locks and not self._writer_locks.is_alive(writer_pid):
                rows = self._query("SELECT content FROM messages WHERE hash = ?", [question_hash])
                question_text = json.loads(rows[0][0])["text"] if rows else ""
                self._store_answer(turn_id, question_hash, question_text, partial or "")
                self._add_statement("UPDATE turns SET state = 'interrupted', partial = NULL WHERE id = ?", turn_id)
        if self._pending:
            self.flush()


IN_MEMORY = Path(":memory:")
SELECT_RUNNING = "SELECT id, question_hash, partial, writer_pid FROM turns WHERE state = 'running'"
SET_STEPS = "INSERT OR REPLACE INTO steps VALUES (?, ?)"
SET_ANSWER = ", ".join(f"{column} = ?" for column in ANSWER_COLUMNS)


ADD_THREAD = (
    "INSERT INTO threads "
    "(id, name, kind, folder, profile, settings, last_turn_id, forked_from, created, updated, use_number) "
    "SELECT ?, ?, ?, ?, ?, '{}', ?, ?, ?, ?, coalesce(max(use_number), 0) + 1 FROM threads WHERE TRUE "
    "ON CONFLICT (id) DO UPDATE SET "
    "last_turn_id = excluded.last_turn_id, updated = excluded.updated, use_number = excluded.use_number"
)


def _thread_values(thread: Thread, now: float) -> Sequence[Any]:
    return (
        thread.id, thread.name, thread.kind, thread.folder, thread.profile, thread.tip, thread.forked_from,
        thread.created or now, now,
    )  # fmt: skip


@dataclass
class PendingWrites:
    """Statements and partial answers that are not written yet. They stay until the disk takes all of them."""

    statements: list[tuple[str, Sequence[Any]]] = field(default_factory=list[tuple[str, Sequence[Any]]])
    snapshots: dict[str, Snapshot] = field(default_factory=dict[str, Snapshot])

    def __bool__(self) -> bool:
        return bool(self.statements or self.snapshots)

    def write(self, database: sqlite3.Connection) -> None:
        database.execute("BEGIN IMMEDIATE")
        try:
            for sql, values in self.statements:
                _execute_or_skip(database, sql, values)
            for turn_id, take_snapshot in self.snapshots.items():
                try:
                    answer, packed_steps = take_snapshot()
                    packed = pack_answer(answer)
                except (TypeError, ValueError, OverflowError, MemoryError):
                    log.exception("the partial answer of turn %s cannot be stored", turn_id)
                    continue
                values = [answer.text, *packed, turn_id]
                _execute_or_skip(database, f"UPDATE turns SET partial = ?, {SET_ANSWER} WHERE id = ?", values)
                if packed_steps:
                    _execute_or_skip(database, SET_STEPS, [turn_id, packed_steps])
            database.execute("COMMIT")
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")


def _execute_or_skip(database: sqlite3.Connection, sql: str, values: Sequence[Any]) -> None:
    """Skip a statement with a value that the database has no type for: it would hold up all others for ever."""
    try:
        database.execute(sql, values)
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError, TypeError, ValueError, OverflowError):
        log.exception("not stored: %s", sql)


def _move_corrupt_files(path: Path) -> str:
    """Set a database aside that is not readable; a warning that says so."""
    new_path = path.with_name(f"{path.name}.corrupt-{time.time_ns()}")
    for suffix in ("", "-wal", "-shm", "-journal"):
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.rename(f"{new_path}{suffix}")
    return f"{path} is not readable and was set aside as {new_path.name}; a new history starts"


class WriterLocks:
    """Tells which writers of a file are alive: each locks the byte at its process id, and the kernel releases the lock.

    A process id alone is not enough: a killed host may stay as a zombie, and the kernel reuses ids.
    """

    def __init__(self, path: Path) -> None:
        locks = path.with_name(path.name + ".writer-locks")
        _make_private(locks)
        self._file = locks.open("a+b", buffering=0)
        if not try_lock(self._file, os.getpid()):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def is_alive(self, process_id: int) -> bool:
        """Whether another process with this id writes the file."""
        if process_id == os.getpid():
            return False
        try:
            if not try_lock(self._file, process_id):
                return True
        except OSError:
            return True
        unlock_byte(self._file, process_id)
        return False

    def close(self) -> None:
        self._file.close()


def _open_writer(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    if path != IN_MEMORY:
        _make_private(path)
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}")
        migrate(database, migrations)
        _choose_journal(database)
    except (sqlite3.Error, HostError):
        database.close()
        raise
    return database


def _make_private(path: Path) -> None:
    """Create the file, or make it one that only its user may read. SQLite gives its other files the same mode."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError as error:
        log.warning("%s: %s", path, error)  # SQLite reports what it cannot open


def _choose_journal(database: sqlite3.Connection) -> None:
    """Use a write-ahead log where the file system supports shared memory, else a rollback journal."""
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
