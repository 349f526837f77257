"""A session of the host from the client's side, which goes on with the next host, and its turns with all versions.

For one thread. Only the cancellation flag of an answer may be set from other threads.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from specchat.chat.transcript import Turn
from specchat.errors import UsageError
from specchat.history.history_reader import HistoryReader, StoredTurn, Thread
from specchat.host.host_connection import HostConnection, connect
from specchat.host.protocol import JsonObject
from specchat.host.session_turns import turn_of_stored
from specchat.profile.settings import Settings, read_settings

Result = TypeVar("Result")
POLL_SECONDS = 0.02  # how often what waits checks for cancellation


@dataclass(frozen=True)
class SessionRequest:
    """Selects a session: a stored one by id, or a new one. Without settings: the stored ones, or those of `chat`."""

    session_id: str = ""
    settings: Settings | None = None
    kind: str = "chat"
    folder: str = ""  # "": the current folder
    is_stored: bool = True  # False: not in the history; only the client has its turns
    text_scope: str = ""  # sessions that are not stored share what an engine computed for their texts within a scope

    def to_params(self) -> JsonObject:
        if self.session_id:
            return {"session": self.session_id, **({"settings": self.settings.to_json()} if self.settings else {})}
        folder, settings = self.folder or str(Path.cwd()), self.settings or read_settings()
        return {
            "kind": self.kind, "folder": folder, "is_stored": self.is_stored, "text_scope": self.text_scope,
            "settings": settings.to_json(),
        }  # fmt: skip


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


class HostSession:
    def __init__(self, session_request: SessionRequest = SessionRequest(), client_name: str = "specchat") -> None:
        self.client_name, self._session_request = client_name, replace(session_request, session_id="", settings=None)
        self.kind = session_request.kind
        self.private_turns = PrivateTurns()  # of a session that is not stored
        self.unsent_turns: list[Turn] | None = None  # what the model reads of them, while the host does not have it
        params = session_request.to_params()
        self.connection = _connect(client_name)
        self.switch_session(self.connection.call("open_session", params))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A stored session stays in the history."""
        self.connection.close()

    @property
    def warning(self) -> str:
        """The warning of the host about its history database; "" for none."""
        return str(self.connection.host_info.get("warning", ""))

    @property
    def profile(self) -> str:
        return self.settings.name

    @property
    def model(self) -> str:
        return self.settings.profile.models.target

    @property
    def window_tokens(self) -> int:
        """The context window; the limit of the profile while that of the model is not known."""
        return self.context_window or self.settings.profile.limits.context

    def use(self, settings: Settings) -> JsonObject:
        """Take these settings from the next turn on, also for new sessions. They stay with the conversation."""
        info = self.call("set_settings", {"settings": settings.to_json()})
        self.settings, self.context_window = settings, int(info.get("context_window", 0))
        return info

    def change(self, values: Mapping[str, Any]) -> JsonObject:
        """Change keys of the settings, such as {"sampling.temperature": 0.7}; None gives a key back to the profile."""
        return self.use(self.settings.changed(values))

    def turns(self) -> list[StoredTurn]:
        """The turns up to the tip, the oldest first."""
        if not self.is_stored:
            return self.private_turns.shown()
        return self.read_history(lambda history, thread: history.turns(thread.tip), [])

    def read_history(self, read: Callable[[HistoryReader, Thread], Result], unknown: Result) -> Result:
        """What the history has of this session; `unknown` while it has nothing."""
        with closing(HistoryReader(Path(self.connection.host_info["history_path"]))) as history:
            thread = history.thread(self.session_id)
            return read(history, thread) if thread else unknown

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> JsonObject:
        """Call a method of the host, for this session unless `params` names another one."""
        return self._call_again(lambda: self.connection.call(method, {"session": self.session_id, **(params or {})}))

    def open_new_session(self) -> JsonObject:
        """Open a new session with the same settings; pass the result to `switch_session`."""
        params = replace(self._session_request, settings=self.settings).to_params()
        return self._call_again(lambda: self.connection.call("open_session", params))

    def _call_again(self, call: Callable[[], JsonObject]) -> JsonObject:
        """Call, and once more when the connection is gone: with the next host."""
        try:
            return call()
        except ConnectionError:
            self.renew()
            return call()

    def switch_session(self, session_info: JsonObject) -> None:
        """Continue in the session that `open_session` or `fork` returned."""
        self.private_turns, self.unsent_turns = PrivateTurns(), None
        self._use_session(session_info)

    def renew(self) -> None:
        """Connect again, and open the session again."""
        self.reconnect()
        self.reopen()

    def reconnect(self) -> bool:
        """Connect again; whether it is the same host. For another one, `reopen` the session."""
        instance_id = self.connection.host_info["instance_id"]
        self.connection.close()
        self.connection = _connect(self.client_name)
        return self.connection.host_info["instance_id"] == instance_id

    def reopen(self) -> None:
        """Open the same session again, or a new one if it was never stored; the next question brings its turns."""
        try:
            params = SessionRequest(self.session_id, self.settings).to_params()
            self._use_session(self.connection.call("open_session", params))
        except UsageError:
            self._use_session(self.open_new_session())
            if not self.is_stored and self.unsent_turns is None:
                self.unsent_turns = self.private_turns.read()

    def _use_session(self, session_info: JsonObject) -> None:
        self.session_id, self.name = str(session_info["session"]), str(session_info["name"])
        self.settings = Settings.from_json(session_info["settings"])
        self.is_stored = bool(session_info.get("is_stored", True))
        self.context_window = int(session_info.get("context_window", 0))  # in tokens; 0: not known yet


def _connect(client_name: str) -> HostConnection:
    connection = connect(client_name)
    assert connection is not None
    return connection
