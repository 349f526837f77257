"""Reads the history: one SQLite file that only the host writes and every front end may read.

`history_schema.py` describes the tables; `history_writer.py` writes them. Knows no model, no socket and no screen.
"""

import json
import sqlite3
import zlib
from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specchat.chat.events import StepDone
from specchat.chat.tools import ToolCall
from specchat.errors import HostError
from specchat.history.history_schema import check_version, migrate, schema_version
from specchat.history.step_encoding import unpack_steps

BUSY_TIMEOUT_MILLISECONDS = 250
MAX_COPIED_CHARACTERS = 200_000
CHAT, ASK = LISTED_KINDS = ("chat", "ask")  # the kinds of threads that lists show: conversations, and single questions


@dataclass(frozen=True)
class Thread:
    id: str
    name: str
    kind: str = "chat"
    folder: str = ""
    profile: str = ""  # its name
    tip: str | None = None
    forked_from: str | None = None
    created: float = 0.0
    updated: float = 0.0
    deleted: float | None = None


@dataclass(frozen=True)
class ThreadDetails:
    """What a list shows of a conversation beside its name and day: its model, and how many questions it has."""

    model: str = ""  # as `models.target` names it; "" if no settings are stored
    turn_count: int = 0


@dataclass(frozen=True)
class StoredAnswer:
    """An answer, complete or partial: its text, its tokens, and the source of each (an index into `sources`)."""

    text: str = ""
    token_ids: Sequence[int] = ()
    source_indices: bytes = b""
    sources: Sequence[str] = ()
    variant: str = ""
    seed: int | None = None
    prompt_ids: Sequence[int] = ()
    rendered_prompt: str = ""  # the text of `prompt_ids`
    model: str = ""  # the target; "" in turns of older versions
    thinking: str = ""  # what the model thought before it answered
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class StoredTurn:
    """A stored turn. `state` is `running`, `interrupted`, `failed` or the finish reason."""

    id: str
    parent: str | None
    request: dict[str, Any]
    answer: StoredAnswer
    state: str
    totals: dict[str, Any]
    started: float
    ended: float | None


class HistoryReader:
    """Reads the history and never writes. It works while a host writes, and without a host."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _translate_errors(path):
            self._database = _open_reader(path)

    def threads(self, *, folder: str | None = None, kind: str | None = None, deleted: bool = False) -> list[Thread]:
        """All threads, or those of a folder or kind such as those of `LISTED_KINDS`; the last used first."""
        conditions, values = ["(deleted IS NOT NULL) = ?"], list[Any]([deleted])
        for column, value in (("folder", folder), ("kind", kind)):
            if value is not None:
                conditions.append(f"{column} = ?")
                values.append(value)
        rows = self._query(
            f"SELECT {THREAD_COLUMNS} FROM threads WHERE {' AND '.join(conditions)} ORDER BY use_number DESC", values
        )
        return [Thread(*row) for row in rows]

    def thread(self, id: str) -> Thread | None:
        """One thread, deleted or not, by its id or an unambiguous prefix of it."""
        rows = self._query(f"SELECT {THREAD_COLUMNS} FROM threads WHERE substr(id, 1, length(?)) = ? LIMIT 2", [id, id])
        exact = [row for row in rows if row[0] == id]
        return Thread(*(exact or rows)[0]) if id and len(exact or rows) == 1 else None

    def details(self) -> dict[str, ThreadDetails]:
        """The details of all threads, by id. Turns that a fork shares with its source count for both."""
        counts = self._query(
            """WITH RECURSIVE path (thread_id, id) AS (
                    SELECT id, last_turn_id FROM threads WHERE last_turn_id IS NOT NULL UNION ALL
                    SELECT path.thread_id, parent_id FROM path JOIN turns USING (id) WHERE parent_id IS NOT NULL)
                SELECT threads.id, count(path.id), coalesce(json_extract(settings_json, '$.profile.models.target'), '')
                FROM threads LEFT JOIN path ON path.thread_id = threads.id
                LEFT JOIN settings ON settings.thread_id = threads.id GROUP BY threads.id""",
            (),
        )
        return {id: ThreadDetails(str(model), count) for id, count, model in counts}

    def turns(self, tip: str | None) -> list[StoredTurn]:
        """The turns up to this one, in order."""
        rows = self._query(
            f"""WITH RECURSIVE {PATH_TO_TIP}
                SELECT {TURN_COLUMNS} FROM path JOIN turns USING (id) {JOINED_TEXTS}
                ORDER BY depth DESC""",
            [tip],
        )
        return [_to_turn(row) for row in rows]

    def versions(self, thread: Thread) -> dict[str, tuple[str, ...]]:
        """For each shown turn the ids of its versions, itself among them, the oldest first.

        A version is another answer, or another question, in the same place of this conversation. Where a killed host
        had not begun to answer, there is no version.
        """
        rows = self._query(
            f"""WITH RECURSIVE {PATH_TO_TIP}
                SELECT shown.id, other.id FROM path JOIN turns AS shown USING (id)
                JOIN turns AS other ON other.parent_id IS shown.parent_id AND other.thread_id IN (shown.thread_id, ?)
                LEFT JOIN messages AS a ON a.hash = other.answer_hash
                WHERE other.state != 'interrupted' OR coalesce(other.partial, a.content, '') != ''
                ORDER BY other.started, other.id""",
            [thread.tip, thread.id],
        )
        versions: dict[str, tuple[str, ...]] = {}
        for shown, other in rows:
            versions[shown] = (*versions.get(shown, ()), other)
        return versions

    def newest_after(self, turn_id: str, thread_id: str) -> str:
        """The last turn of the branch that begins with this turn: the one that was asked last."""
        rows = self._query(
            """WITH RECURSIVE below (id) AS (
                   SELECT ? UNION ALL
                   SELECT turns.id FROM below JOIN turns ON parent_id = below.id
                   WHERE thread_id IN (?, (SELECT thread_id FROM turns WHERE id = ?)))
               SELECT turns.id FROM below JOIN turns USING (id) ORDER BY started DESC, id DESC LIMIT 1""",
            [turn_id, thread_id, turn_id],
        )
        return rows[0][0] if rows else turn_id

    def all_turns(self, thread: Thread) -> list[StoredTurn]:
        """The turns of all branches of this conversation; each version is followed by what was asked after it."""
        rows = self._query(
            f"""WITH RECURSIVE {PATH_TO_TIP}
                SELECT {TURN_COLUMNS} FROM turns {JOINED_TEXTS}
                WHERE thread_id = ? OR turns.id IN (SELECT id FROM path) ORDER BY started, turns.id""",
            [thread.tip, thread.id],
        )
        turns = [_to_turn(row) for row in rows]
        known = {turn.id for turn in turns}
        after: dict[str | None, list[StoredTurn]] = {}
        for turn in turns:
            after.setdefault(turn.parent if turn.parent in known else None, []).append(turn)
        ordered: list[StoredTurn] = []
        waiting = list(reversed(after.get(None, [])))
        while waiting:
            ordered.append(waiting.pop())
            waiting += reversed(after.get(ordered[-1].id, []))
        return ordered

    def settings(self, thread_id: str) -> dict[str, Any]:
        """The settings of a thread as `profile/settings.py` writes them; empty when there are none."""
        rows = self._query("SELECT settings_json FROM settings WHERE thread_id = ?", [thread_id])
        return json.loads(rows[0][0]) if rows else {}

    def has_turn(self, turn_id: str) -> bool:
        """Whether any conversation has a turn with this id."""
        return bool(self._query("SELECT 1 FROM turns WHERE id = ?", [turn_id]))

    def packed_steps(self, turn: str) -> bytes:
        """The steps of a turn, packed by `step_encoding.py`; empty for a turn of an old specchat version."""
        rows = self._query("SELECT packed FROM steps WHERE turn_id = ?", [turn])
        return rows[0][0] if rows else b""

    def steps(self, turn: str) -> list[StepDone]:
        return unpack_steps(self.packed_steps(turn))

    def search(self, search_text: str) -> list[tuple[Thread, str]]:
        """Threads that contain these words, each with a snippet; prefixes of words match."""
        query = " ".join(f'"{word.replace(chr(34), chr(34) * 2)}"*' for word in search_text.split())
        if not query:
            return []
        rows = self._query(
            f"""SELECT {", ".join("threads." + name.strip() for name in THREAD_COLUMNS.split(","))},
                       snippet(search, -1, '', '', '...', 12)
                FROM search JOIN turns ON turns.id = search.turn_id JOIN threads ON threads.id = turns.thread_id
                WHERE search MATCH ? AND deleted IS NULL ORDER BY rank LIMIT 50""",
            [query],
        )
        return [(Thread(*row[:-1]), row[-1]) for row in rows]

    def close(self) -> None:
        self._database.close()

    def _query(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with _translate_errors(self.path):
            return self._database.execute(sql, values).fetchall()


def _open_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection."""
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    database.execute("PRAGMA query_only = 1")
    database.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}")
    try:
        check_version(version := schema_version(database))
    except HostError as error:
        database.close()
        raise HostError(f"{path}: {error}") from error
    if version == 0:  # a host has not made its tables yet, or was killed before
        database.close()
        database = sqlite3.connect(":memory:", isolation_level=None)
        migrate(database)
    return database


PATH_TO_TIP = """path (id, depth) AS (
                    SELECT ?, 0 UNION ALL
                    SELECT parent_id, depth + 1 FROM path JOIN turns USING (id) WHERE parent_id IS NOT NULL)"""
THREAD_COLUMNS = "id, name, kind, folder, profile, last_turn_id, forked_from, created, updated, deleted"
ANSWER_COLUMNS = (
    "answer_ids", "source_indices", "sources", "variant", "seed", "prompt_ids", "rendered_prompt", "model", "thinking",
    "tool_calls",
)  # fmt: skip
TURN_COLUMNS = f"""turns.id, parent_id, q.content, state, totals, started, ended,
           coalesce(turns.partial, a.content, ''), {", ".join(ANSWER_COLUMNS)}"""
JOINED_TEXTS = "LEFT JOIN messages AS q ON q.hash = question_hash LEFT JOIN messages AS a ON a.hash = answer_hash"


def _to_turn(row: Sequence[Any]) -> StoredTurn:
    id, parent, request, state, totals, started, ended, text, *columns = row
    answer = unpack_answer(text, columns)
    return StoredTurn(
        id, parent, json.loads(request or "{}"), answer, state, json.loads(totals or "{}"), started, ended
    )


def pack_answer(answer: StoredAnswer) -> list[Any]:
    """The values of ANSWER_COLUMNS; a seed is stored as text, because it may need all 64 bits."""
    return [
        pack_ids(answer.token_ids), zlib.compress(answer.source_indices), json.dumps(list(answer.sources)),
        answer.variant, None if answer.seed is None else str(answer.seed), pack_ids(answer.prompt_ids),
        zlib.compress(answer.rendered_prompt.encode()), answer.model, answer.thinking,
        json.dumps([asdict(call) for call in answer.tool_calls]) if answer.tool_calls else None,
    ]  # fmt: skip


def unpack_answer(text: str, columns: Sequence[Any]) -> StoredAnswer:
    ids, kinds, sources, variant, seed, prompt_ids, rendered, model, thinking, calls = columns
    return StoredAnswer(
        text, unpack_ids(ids), zlib.decompress(kinds or EMPTY_BLOB), tuple(json.loads(sources or "[]")), variant or "",
        int(seed) if seed else None, unpack_ids(prompt_ids), zlib.decompress(rendered or EMPTY_BLOB).decode(),
        model or "", thinking or "", tuple(ToolCall(**call) for call in json.loads(calls or "[]")),
    )  # fmt: skip


EMPTY_BLOB = zlib.compress(b"")


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids, four bytes each, compressed."""
    return zlib.compress(array("I", ids).tobytes())


def unpack_ids(packed: bytes | None) -> tuple[int, ...]:
    return tuple(array("I", zlib.decompress(packed))) if packed else ()


@contextmanager
def _translate_errors(path: Path) -> Generator[None]:
    """Raise a HostError with one line of text for a database error."""
    try:
        yield
    except sqlite3.Error as error:
        raise HostError(f"the history {path} cannot be read: {error}") from error


def past_texts(path: Path, max_characters: int = MAX_COPIED_CHARACTERS) -> list[str]:
    """The newest answers and attached files, up to about `max_characters`, the newest last; none when unreadable.

    Copying drafters may propose tokens from them. Deleted conversations are not read.
    """
    texts = dict[str, None]()
    try:
        with closing(HistoryReader(path)) as reader:
            for text in _newest_first(reader):
                texts.setdefault(text[:max_characters])
                max_characters -= len(text)
                if max_characters <= 0:
                    break
    except HostError:
        return []
    return list(texts)[::-1]


def _newest_first(reader: HistoryReader) -> Iterator[str]:
    for thread in reader.threads():
        for turn in reversed(reader.turns(thread.tip)):
            files = (str(file["text"]) for file in turn.request.get("files") or ())
            yield from filter(None, (turn.answer.text, *files))
