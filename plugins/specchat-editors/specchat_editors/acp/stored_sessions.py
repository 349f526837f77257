"""Lists, replays and deletes stored conversations, including those of other front ends.

The history of the engine process holds requests and answers. An edit runs in a session of its own, so its diff and the
user's decision are stored here; the calls of tools are in `stored_calls.py`. Everything here blocks shortly, so it runs
on a thread of its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any

from acp.schema import ToolCallStart

from specchat.app import updates
from specchat.chat.request import Attachment
from specchat.errors import UsageError
from specchat.history.history_reader import HistoryReader, StoredTurn, Thread
from specchat.host.client import connect
from specchat.host.protocol import JsonObject
from specchat.host.spawn import history_path
from specchat_editors.acp.client_requests import chunks
from specchat_editors.acp.session_log import SessionLog

MAX_EDIT_BYTES = 2**20  # a larger edit is stored without its diff
EDIT_LOG = SessionLog("acp-edits", max_lines=50)

OLD_FIELDS = {"after": "after_turn", "asked": "prompt", "said": "answer", "offer": "tool_call"}  # of earlier versions

PAGE_SIZE = 50
EDIT_OF = "edit of "  # begins the name of an attachment that the user did not attach
CLIENT = "acp"


@dataclass(frozen=True)
class LoggedEdit:
    """The prompt and the answer of an edit, the turn before it ("" for none), and the diff, if there was one.

    `tool_call` is a `tool_call` of the protocol in its last state.
    """

    after_turn: str
    prompt: str
    answer: str
    tool_call: JsonObject | None = None

    def replay(self) -> Iterator[JsonObject]:
        yield updates.chunk(updates.USER_CHUNK, self.prompt)
        if self.tool_call:
            yield self.tool_call
        yield from chunks(updates.ANSWER_CHUNK, self.answer)


def log_edit(session: str, edit: LoggedEdit) -> None:
    """Store one edit."""
    line = json.dumps(asdict(edit))
    if len(line) > MAX_EDIT_BYTES:
        line = json.dumps(asdict(LoggedEdit(edit.after_turn, edit.prompt, edit.answer)))
    EDIT_LOG.append(session, line)


def logged_edits(session: str) -> Sequence[LoggedEdit]:
    """All stored edits of a conversation, in order; unreadable ones are skipped."""
    return [edit for line in EDIT_LOG.lines(session) if (edit := _parse_record(line))]


def attached_edits(edits: Sequence[LoggedEdit], after_turn: str, max_characters: int) -> list[Attachment]:
    """What the edits after this turn changed, for the next question; of the longest only what was asked and answered.

    An edit runs in a session of its own, so the conversation does not hold it yet.
    """
    found = list[Attachment]()
    for edit in edits:
        diffs = _written_diffs(edit) if edit.after_turn == after_turn else []
        for diff in diffs:
            name = Path(str(diff["path"])).name
            old, new = (_lines(diff.get(key)) for key in ("oldText", "newText"))
            changes = "".join(unified_diff(old, new, name, name))
            max_characters -= len(changes)
            about = f"You were asked: {edit.prompt}\nYou changed the file {name}: {edit.answer}\n"
            found.append(Attachment(f"{EDIT_OF}{name}", f"{about}{changes if max_characters >= 0 else ''}"))
    return found


def _written_diffs(edit: LoggedEdit) -> list[dict[str, Any]]:
    call = edit.tool_call or {}
    is_written = call.get("status") == "completed"
    return [each for each in call.get("content") or () if is_written and each.get("type") == "diff"]


def _lines(text: str | None) -> list[str]:
    return [f"{line}\n" for line in (text or "").splitlines()]


def _parse_record(line: str) -> LoggedEdit | None:
    try:
        record: dict[str, Any] = json.loads(line)
        edit = LoggedEdit(**{OLD_FIELDS.get(name, name): value for name, value in record.items()})
        list(edit.replay())
        if edit.tool_call:
            ToolCallStart.model_validate(edit.tool_call)
    except (AttributeError, TypeError, ValueError):  # including pydantic's ValidationError
        return None
    return edit


def list_sessions(folder: str | None, cursor: str | None) -> JsonObject:
    """One page of conversations, of one folder or all, the last used first."""
    first = _page_start(cursor)
    folder = None if folder is None else str(Path(folder))
    path = _history_file()
    if not path.exists():
        return {"sessions": []}
    with closing(HistoryReader(path)) as history:
        threads = history.threads(folder=folder, kind="chat")
    page = threads[first : first + PAGE_SIZE]
    more = {"nextCursor": str(first + PAGE_SIZE)} if first + PAGE_SIZE < len(threads) else {}
    return {"sessions": [_session_info(thread) for thread in page], **more}


def find_session(session: str) -> Thread | None:
    """A conversation by its complete id, unless it is deleted."""
    path = _history_file()
    if not path.exists():
        return None
    with closing(HistoryReader(path)) as history:
        thread = history.thread(session)
    return thread if thread and thread.id == session and thread.deleted is None else None


def delete_session(session: str) -> None:
    """Mark it as deleted; `specchat chat` can restore it. An unknown id is not an error."""
    if find_session(session) and (connection := connect(CLIENT)):
        connection.call("delete", {"session": session})
        connection.close()


def replay_updates(
    turns: Sequence[StoredTurn], edits: Sequence[LoggedEdit], calls: Mapping[str, JsonObject]
) -> Iterator[JsonObject]:
    """The updates that show a conversation again, each edit after the turn that it followed. `calls` are by id."""
    turn_ids = ["", *(turn.id for turn in turns)]
    yield from _edits_after("", edits)
    for turn in turns:
        yield from _turn_updates(turn, calls)
        yield from _edits_after(turn.id, edits)
    for edit in edits:
        if edit.after_turn not in turn_ids:  # /undo removed its turn, not the edit
            yield from edit.replay()


def _edits_after(turn: str, edits: Sequence[LoggedEdit]) -> Iterator[JsonObject]:
    for edit in edits:
        if edit.after_turn == turn:
            yield from edit.replay()


def _turn_updates(turn: StoredTurn, calls: Mapping[str, JsonObject]) -> Iterator[JsonObject]:
    """A turn that only brings results of tools has no question: the results are shown with their calls."""
    names = [str(file.get("name", "")) for file in turn.request.get("files") or ()]
    files = [f"`{name}`" for name in names if not name.startswith(EDIT_OF)]
    question = "\n\n".join(filter(None, [str(turn.request.get("text", "")), " ".join(files)]))
    if question:
        yield updates.chunk(updates.USER_CHUNK, question, f"{turn.id}-question")
    yield from chunks(updates.THOUGHT_CHUNK, turn.answer.thinking)
    yield from chunks(updates.ANSWER_CHUNK, turn.answer.text, turn.id)
    yield from (calls[call.id] for call in turn.answer.tool_calls)


def _history_file() -> Path:
    """The history file of the running engine process, or the default one."""
    connection = connect(CLIENT, starts_host=False)
    if connection is None:
        return history_path()
    connection.close()
    return Path(str(connection.host_info["history_path"]))


def _session_info(thread: Thread) -> JsonObject:
    updated_at = datetime.fromtimestamp(thread.updated, UTC).isoformat().replace("+00:00", "Z")
    named = {"title": thread.name} if thread.name else {}
    return {"sessionId": thread.id, "cwd": thread.folder or "/", "updatedAt": updated_at, **named}


def _page_start(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal():
        raise UsageError("invalid cursor")
    return int(cursor)
