"""The turns of a conversation with all their versions: of one that is stored, and of one that is not."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from specchat.chat.transcript import Turn
from specchat.history.history_reader import HistoryReader, StoredTurn, Thread
from specchat.host.session_turns import turn_of_stored

Result = TypeVar("Result")


class HistoryTurns:
    """Those of a stored conversation."""

    def __init__(self, path: Path, session_id: str) -> None:
        self._path, self._session_id = path, session_id

    def shown(self) -> list[StoredTurn]:
        """The turns up to the tip, the oldest first."""
        return self._read(lambda history, thread: history.turns(thread.tip), [])

    def all_turns(self) -> list[StoredTurn]:
        """The turns of all branches; each version is followed by what was asked after it."""
        return self._read(HistoryReader.all_turns, [])

    def versions(self) -> dict[str, tuple[str, ...]]:
        """For each shown turn the ids of its versions, itself among them, the oldest first."""
        return self._read(HistoryReader.versions, {})

    def _read(self, read: Callable[[HistoryReader, Thread], Result], unknown: Result) -> Result:
        with closing(HistoryReader(self._path)) as history:
            thread = history.thread(self._session_id)
            return read(history, thread) if thread else unknown


class PrivateTurns:
    """The tree of the history, in memory. The client keeps it, because a host forgets such a conversation with its last
    client. Nothing of it reaches a disk.
    """

    def __init__(self) -> None:
        self._turns: dict[str, StoredTurn] = {}  # in the order in which they were asked
        self._tip: str | None = None

    def shown(self) -> list[StoredTurn]:
        """The turns up to the tip, the oldest first."""
        path, id = list[StoredTurn](), self._tip
        while id is not None:
            path.append(self._turns[id])
            id = self._turns[id].parent
        return path[::-1]

    def read(self) -> list[Turn]:
        """What the model reads of the shown turns."""
        return [turn for each in self.shown() if (turn := turn_of_stored(each)) is not None]

    def all_turns(self) -> list[StoredTurn]:
        """The turns of all branches; each version is followed by what was asked after it."""
        return list(self._below(None))

    def add(self, turn: StoredTurn) -> None:
        self._turns[turn.id] = replace(turn, parent=self._tip)
        self._tip = turn.id

    def rewind(self, count: int) -> None:
        """Go back by so many turns; they stay as a version."""
        for turn in self.shown()[::-1][:count]:
            self._tip = turn.parent

    def forget(self, count: int) -> None:
        """Go back by so many turns, and drop all that is not shown then."""
        self.rewind(count)
        self._turns = {turn.id: turn for turn in self.shown()}

    def versions(self) -> dict[str, tuple[str, ...]]:
        """For each shown turn the ids of its versions, itself among them, the oldest first."""
        return {
            shown.id: tuple(turn.id for turn in self._turns.values() if turn.parent == shown.parent)
            for shown in self.shown()
        }

    def select(self, turn_id: str) -> None:
        """Show this version, and after it what was asked last."""
        below = {turn_id}
        self._tip = turn_id
        for turn in self._turns.values():
            if turn.parent in below:
                below.add(turn.id)
                self._tip = turn.id

    def _below(self, parent: str | None) -> Iterator[StoredTurn]:
        for turn in self._turns.values():
            if turn.parent == parent:
                yield turn
                yield from self._below(turn.id)
