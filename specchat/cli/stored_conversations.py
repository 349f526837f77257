"""Stored conversations, for commands that only read them."""

from __future__ import annotations

from specchat.chat.history import HistoryReader, Thread
from specchat.errors import UsageError
from specchat.host.spawn import history_path


def open_history() -> HistoryReader:
    """The history of this user. UsageError when there is none yet."""
    path = history_path()
    if not path.is_file():
        raise UsageError("no conversations yet")
    return HistoryReader(path)


def find_thread(history: HistoryReader, id: str) -> Thread:
    """The conversation with this id or beginning of an id; the last used one without an id."""
    if id:
        if thread := history.thread(id):
            return thread
        raise UsageError(f"no conversation {id!r}, or several begin with it; see 'specchat sessions list'")
    if not (threads := history.threads(kind="chat")):
        raise UsageError("no conversations yet")
    return threads[0]
