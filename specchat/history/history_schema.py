"""The tables of the history database (`history_schema.sql`), and which files have them. Knows no reader and no writer.

messages   one text of a conversation, addressed by its content and its parent: shared beginnings are stored once
turns      one question and its answer: model, seed, thinking, tool calls as JSON, token ids, the drafter of each
           token, totals, and the turn before it; turns with the same turn before them are versions of each other
threads    a name for the last turn of a conversation; a fork is a second thread, and nothing is copied. `use_number`
           orders them by use: the clock of a machine may be set back, so `updated` is only shown
search     the full-text index of questions and answers
settings   the settings of a thread, as a JSON object of `profile/settings.py`
steps      the decoding steps of a turn, packed by `step_encoding.py`
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from specchat.errors import HostError

FIRST_VERSION = 9  # what released versions wrote at first; lower numbers are those of unreleased ones
# to FIRST_VERSION and, one each, to the versions after it
MIGRATIONS = (Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"),)


def migrate(database: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring a database to the newest version, or leave it as it is; HostError for one of another specchat."""
    version, newest = schema_version(database), FIRST_VERSION + len(migrations) - 1
    if version > newest:
        raise HostError(f"a newer specchat wrote this file (schema {version}); upgrade specchat to use it")
    check_version(version)
    # One transaction, because each waits for the disk.
    if missing := ";".join(migrations[max(0, version - FIRST_VERSION + 1) :]):
        database.executescript(f"BEGIN IMMEDIATE;{missing};PRAGMA user_version = {newest};COMMIT;")


def check_version(version: int) -> None:
    """HostError for a file of an unreleased version; 0 is a new file."""
    if 0 < version < FIRST_VERSION:
        raise HostError(f"an unreleased specchat wrote this file (schema {version}); move it away for a new history")


def schema_version(database: sqlite3.Connection) -> int:
    """The version of the tables in a database; 0 without any."""
    return database.execute("PRAGMA user_version").fetchone()[0]
