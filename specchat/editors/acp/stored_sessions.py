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
from specchat.editors.acp.edit_log import RememberedEdit, Told
from specchat.editors.acp.updates import message, question
from specchat.errors import UsageError
from specchat.host.client import connect
from specchat.host.spawn import history_path

PAGE = 50
CLIENT = "acp"


def listed(folder: str | None, cursor: str | None) -> ListSessionsResponse:
    """Conversations, of a folder or all, the last used first, a page at a time."""
    first = _place(cursor)
    wanted = None if folder is None else str(Path(folder))
    path = _history()
    if not path.exists():
        return ListSessionsResponse(sessions=[])
    with closing(HistoryReader(path)) as history:
        threads = history.threads(folder=wanted, kind="chat")
    page = threads[first : first + PAGE]
    following = str(first + PAGE) if first + PAGE < len(threads) else None
    return ListSessionsResponse(sessions=[_described(thread) for thread in page], next_cursor=following)


def known(session: str) -> Thread | None:
    """A conversation that was not deleted, by its whole id."""
    path = _history()
    if not path.exists():
        return None
    with closing(HistoryReader(path)) as history:
        thread = history.thread(session)
    return thread if thread and thread.id == session and thread.deleted is None else None


def delete(session: str) -> None:
    """Take it from every list; `specchat chat` can restore it. One that is not there is no trouble."""
    if known(session) and (line := connect(CLIENT)):
        line.call("delete", {"session": session})
        line.close()


def replayed(turns: Sequence[StoredTurn], edits: Sequence[RememberedEdit]) -> Iterator[Told]:
    """What was said, as it would have been heard, with every edit behind the turn that it came after."""
    known = ["", *(turn.id for turn in turns)]
    yield from _edits_behind("", edits)
    for turn in turns:
        yield from _told(turn)
        yield from _edits_behind(turn.id, edits)
    for edit in edits:
        if edit.after not in known:  # its turn was taken back; the file was not
            yield from edit.told()


def _edits_behind(turn: str, edits: Sequence[RememberedEdit]) -> Iterator[Told]:
    for edit in edits:
        if edit.after == turn:
            yield from edit.told()


def _told(turn: StoredTurn) -> Iterator[Told]:
    files = [f"`{file.get('name', '')}`" for file in turn.request.get("files") or ()]
    said = "\n\n".join(filter(None, [str(turn.request.get("text", "")), " ".join(files)]))
    yield question(said, f"{turn.id}-question")
    yield from message(turn.answered.text, turn.id)


def _history() -> Path:
    """The file that the engine process writes, or would write."""
    line = connect(CLIENT, start=False)
    if line is None:
        return history_path()
    line.close()
    return Path(str(line.hello["history"]))


def _described(thread: Thread) -> SessionInfo:
    return SessionInfo(
        session_id=thread.id, cwd=thread.folder or "/", title=thread.name or None,
        updated_at=datetime.fromtimestamp(thread.updated, UTC).isoformat().replace("+00:00", "Z"),
    )  # fmt: skip


def _place(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal():
        raise UsageError("this cursor is none of ours")
    return int(cursor)
