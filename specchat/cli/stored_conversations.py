"""Conversations of before, for commands that only read them."""

from __future__ import annotations

from specchat.chat.history import HistoryReader, Thread
from specchat.errors import UsageError
from specchat.host.spawn import history_path


def open_history() -> HistoryReader:
    """The history of this person; UsageError when there is none yet."""
    path = history_path()
    if not path.is_file():
        raise UsageError("nothing was answered yet")
    return HistoryReader(path)


def find_thread(history: HistoryReader, id: str) -> Thread:
    """The conversation with this id or beginning of one; the one that was used last if none is said."""
    if id:
        if thread := history.thread(id):
            return thread
        raise UsageError(f"there is no conversation {id!r}, or several begin so; 'specchat sessions list' lists them")
    if not (threads := history.threads(kind="chat")):
        raise UsageError("nothing was answered yet")
    return threads[0]
