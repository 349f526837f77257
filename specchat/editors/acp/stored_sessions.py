"""Conversations of yesterday, as an editor lists, replays and deletes them: the same that the other front ends show.

Everything here blocks for a moment and belongs on a thread of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from acp.schema import ListSessionsResponse, SessionInfo

from specchat.chat.history import HistoryReader, StoredTurn, Thread
from specchat.editors.acp.edit_log import LoggedEdit, ReplayUpdate
from specchat.editors.acp.session_updates import answer_chunks, user_message_chunk
from specchat.errors import UsageError
from specchat.host.client import connect
from specchat.host.spawn import history_path

PAGE_SIZE = 50
CLIENT = "acp"


def list_sessions(folder: str | None, cursor: str | None) -> ListSessionsResponse:
    """Conversations, of a folder or all, the last used first, a page at a time."""
    first = _page_start(cursor)
    wanted = None if folder is None else str(Path(folder))
    path = _history_file()
    if not path.exists():
        return ListSessionsResponse(sessions=[])
    with closing(HistoryReader(path)) as history:
        threads = history.threads(folder=wanted, kind="chat")
    page = threads[first : first + PAGE_SIZE]
    following = str(first + PAGE_SIZE) if first + PAGE_SIZE < len(threads) else None
    return ListSessionsResponse(sessions=[_session_info(thread) for thread in page], next_cursor=following)


def find_session(session: str) -> Thread | None:
    """A conversation that was not deleted, by its whole id."""
    path = _history_file()
    if not path.exists():
        return None
    with closing(HistoryReader(path)) as history:
        thread = history.thread(session)
    return thread if thread and thread.id == session and thread.deleted is None else None


def delete_session(session: str) -> None:
    """Take it from every list; `specchat chat` can restore it. One that is not there is no trouble."""
    if find_session(session) and (line := connect(CLIENT)):
        line.call("delete", {"session": session})
        line.close()


def replay_updates(turns: Sequence[StoredTurn], edits: Sequence[LoggedEdit]) -> Iterator[ReplayUpdate]:
    """What was said, as it would have been heard, with every edit behind the turn that it came after."""
    known = ["", *(turn.id for turn in turns)]
    yield from _edits_after("", edits)
    for turn in turns:
        yield from _turn_updates(turn)
        yield from _edits_after(turn.id, edits)
    for edit in edits:
        if edit.after_turn not in known:  # its turn was taken back; the file was not
            yield from edit.replay()


def _edits_after(turn: str, edits: Sequence[LoggedEdit]) -> Iterator[ReplayUpdate]:
    for edit in edits:
        if edit.after_turn == turn:
            yield from edit.replay()


def _turn_updates(turn: StoredTurn) -> Iterator[ReplayUpdate]:
    files = [f"`{file.get('name', '')}`" for file in turn.request.get("files") or ()]
    said = "\n\n".join(filter(None, [str(turn.request.get("text", "")), " ".join(files)]))
    yield user_message_chunk(said, f"{turn.id}-question")
    yield from answer_chunks(turn.answer.text, turn.id)


def _history_file() -> Path:
    """The file that the engine process writes, or would write."""
    line = connect(CLIENT, starts_host=False)
    if line is None:
        return history_path()
    line.close()
    return Path(str(line.host_info["history"]))


def _session_info(thread: Thread) -> SessionInfo:
    return SessionInfo(
        session_id=thread.id, cwd=thread.folder or "/", title=thread.name or None,
        updated_at=datetime.fromtimestamp(thread.updated, UTC).isoformat().replace("+00:00", "Z"),
    )  # fmt: skip


def _page_start(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal():
        raise UsageError("this cursor is none of ours")
    return int(cursor)
