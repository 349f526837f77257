-- The tables of FIRST_VERSION; `history_schema.py` says what they hold. Later versions are changes of these.
CREATE TABLE messages (
    hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT NOT NULL, content TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE threads (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, folder TEXT NOT NULL, profile TEXT NOT NULL,
    settings TEXT NOT NULL, last_turn_id TEXT, forked_from TEXT, created REAL NOT NULL, updated REAL NOT NULL,
    deleted REAL, use_number INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE turns (
    id TEXT PRIMARY KEY, thread_id TEXT NOT NULL, parent_id TEXT, question_hash TEXT NOT NULL, answer_hash TEXT,
    partial TEXT, state TEXT NOT NULL, variant TEXT, seed TEXT, totals TEXT, prompt_ids BLOB, rendered_prompt BLOB,
    answer_ids BLOB, source_indices BLOB, sources TEXT, writer_pid INTEGER NOT NULL, started REAL NOT NULL,
    ended REAL, model TEXT, thinking TEXT, tool_calls TEXT
) WITHOUT ROWID;
CREATE TABLE settings (thread_id TEXT PRIMARY KEY, settings_json TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE steps (turn_id TEXT PRIMARY KEY, packed BLOB NOT NULL);
CREATE INDEX turns_by_thread ON turns (thread_id, started);
CREATE INDEX turns_by_state ON turns (state) WHERE state = 'running';
CREATE INDEX turns_by_parent ON turns (parent_id);
CREATE INDEX threads_by_use ON threads (use_number);
CREATE VIRTUAL TABLE search USING fts5 (question, answer, turn_id UNINDEXED);
