"""The tables of the history database, and how an older file becomes a new one. Knows no reader and no writer.

messages   one text of a conversation, addressed by its content and its parent: shared beginnings are stored once
turns      one question and its answer: model, seed, thinking, tool calls as JSON, token ids, the drafter of each
           token, totals, and the turn before it; turns with the same turn before them are versions of each other
threads    a name for the last turn of a conversation; a fork is a second thread, and nothing is copied. `use_number`
           orders them by use: the clock of a machine may be set back, so `updated` is only shown
search     the full-text index of questions and answers
settings   the settings of a thread, as a JSON object of `profile/settings.py`
steps      the decoding steps of a turn, packed by `step_encoding.py`
"""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specchat.errors import HostError

JsonObject = dict[str, Any]

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
    """
    ALTER TABLE messages RENAME COLUMN parent TO parent_hash;
    ALTER TABLE threads RENAME COLUMN tip TO last_turn_id;
    ALTER TABLE turns RENAME COLUMN thread TO thread_id;
    ALTER TABLE turns RENAME COLUMN parent TO parent_id;
    ALTER TABLE turns RENAME COLUMN question TO question_hash;
    ALTER TABLE turns RENAME COLUMN answer TO answer_hash;
    ALTER TABLE turns RENAME COLUMN rendered TO rendered_prompt;
    ALTER TABLE turns RENAME COLUMN kinds TO source_indices;
    ALTER TABLE turns RENAME COLUMN writer TO writer_pid;
    ALTER TABLE profiles RENAME COLUMN thread TO thread_id;
    ALTER TABLE profiles RENAME COLUMN packed TO profile_json;
    ALTER TABLE steps RENAME COLUMN turn TO turn_id;
    ALTER TABLE search RENAME TO old_search;
    CREATE VIRTUAL TABLE search USING fts5 (question, answer, turn_id UNINDEXED);
    INSERT INTO search SELECT question, answer, turn FROM old_search;
    DROP TABLE old_search;
    UPDATE messages SET content = rename_request_keys(content) WHERE role = 'user';
    UPDATE turns SET totals = rename_totals_keys(totals) WHERE totals IS NOT NULL;
    UPDATE threads SET settings = rename_setting_keys(settings) WHERE settings != '{}';
    UPDATE profiles SET profile_json = rename_profile_keys(profile_json);
    """,
    """
    ALTER TABLE threads ADD COLUMN use_number INTEGER NOT NULL DEFAULT 0;
    UPDATE threads SET use_number = ranked.number
        FROM (SELECT id, row_number() OVER (ORDER BY updated, id) AS number FROM threads) AS ranked
        WHERE ranked.id = threads.id;
    CREATE INDEX threads_by_use ON threads (use_number);
    """,
    """
    ALTER TABLE turns ADD COLUMN model TEXT;
    CREATE INDEX turns_by_parent ON turns (parent_id);
    """,
    "ALTER TABLE turns ADD COLUMN thinking TEXT",
    "ALTER TABLE turns ADD COLUMN tool_calls TEXT",
    """
    ALTER TABLE profiles RENAME TO settings;
    ALTER TABLE settings RENAME COLUMN profile_json TO settings_json;
    DELETE FROM settings WHERE NOT json_valid(settings_json) OR thread_id NOT IN (SELECT id FROM threads);
    UPDATE threads SET settings = '{}' WHERE NOT json_valid(settings);
    INSERT INTO settings SELECT id, '{}' FROM threads WHERE id NOT IN (SELECT thread_id FROM settings);
    UPDATE settings SET settings_json = (
        SELECT json_object('name', profile, 'changes', json(settings), 'profile', json(settings_json))
        FROM threads WHERE id = thread_id);
    UPDATE threads SET settings = '{}';
    """,
)

# The names of version 3 and those of version 4. An empty name drops the key.
REQUEST_KEYS = {"rewrites": "file_to_rewrite", "structure": ""}
TOTALS_KEYS = {
    "reused_tokens": "cached_tokens",
    "tokens": "completion_tokens",
    "drafted": "draft_tokens",
    "accepted": "accepted_by_drafter",
    "first_token_seconds": "ttft_seconds",
    "plain_seconds": "plain_step_seconds",
    "why": "choice_reason",
}
SETTING_KEYS = {
    "models.embedding": "models.embedding_device",
    "models.key_file": "models.api_key_file",
    "speculation.rule": "speculation.acceptance_test",
    "prompt.reference": "prompt.reference_corpus",
}
SETTING_VALUES = {
    ("models.backend", "own"): "builtin",
    ("speculation.rule", "dice"): "shared_noise",
    ("speculation.rule", "classic"): "rejection_sampling",
}
ROUTE_KEYS = {
    "begins": "starts_with",
    "words": "contains",
    "also": "also_contains",
    "without": "excludes",
    "shortest": "min_words",
    "longest": "max_words",
    "hotter": "temperature_above",
}


def migrate(database: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring a database to the newest version, or leave it as it is; HostError when a newer specchat wrote it."""
    version = schema_version(database)
    if version > len(migrations):
        raise HostError(f"a newer specchat wrote this file (schema {version}); upgrade specchat to use it")
    for name, convert in CONVERTERS.items():
        database.create_function(name, 1, _on_json(convert), deterministic=True)
    # One transaction, because each waits for the disk.
    if missing := ";".join(migrations[version:]):
        database.executescript(f"BEGIN IMMEDIATE;{missing};PRAGMA user_version = {len(migrations)};COMMIT;")


def schema_version(database: sqlite3.Connection) -> int:
    """The number of migrations that the database has."""
    return database.execute("PRAGMA user_version").fetchone()[0]


def _renamed(values: JsonObject, names: Mapping[str, str]) -> JsonObject:
    return {new: value for name, value in values.items() if (new := names.get(name, name))}


def _rename_setting_keys(settings: JsonObject) -> JsonObject:
    values = {path: SETTING_VALUES.get((path, str(value)), value) for path, value in settings.items()}
    return _renamed(values, SETTING_KEYS)


def _rename_profile_keys(profile: JsonObject) -> JsonObject:
    for table in ("models", "speculation", "prompt"):
        flat = {f"{table}.{name}": value for name, value in profile.get(table, {}).items()}
        profile[table] = {path.removeprefix(f"{table}."): value for path, value in _rename_setting_keys(flat).items()}
    profile["routes"] = [_renamed(route, ROUTE_KEYS) for route in profile.get("routes", ())]
    return _renamed(profile, {"orders": "drafter_orders"})


CONVERTERS: Mapping[str, Callable[[JsonObject], JsonObject]] = {
    "rename_request_keys": lambda request: _renamed(request, REQUEST_KEYS),
    "rename_totals_keys": lambda totals: _renamed(totals, TOTALS_KEYS),
    "rename_setting_keys": _rename_setting_keys,
    "rename_profile_keys": _rename_profile_keys,
}


def _on_json(convert: Callable[[JsonObject], JsonObject]) -> Callable[[str], str]:
    """The conversion of a JSON text. A text that is not a JSON object stays as it is."""

    def converted(text: str) -> str:
        try:
            value = json.loads(text)
        except ValueError:
            return text
        return json.dumps(convert(value)) if isinstance(value, dict) else text

    return converted
