"""A session of the host from the client's side, which goes on with the next host.

For one thread. Only the cancellation flag of an answer may be set from other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from specchat.chat.transcript import Turn
from specchat.errors import UsageError
from specchat.host.conversation_turns import HistoryTurns, PrivateTurns
from specchat.host.host_connection import HostConnection, connect
from specchat.host.protocol import JsonObject
from specchat.profile.settings import Settings, read_settings

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


class HostSession:
    def __init__(self, session_request: SessionRequest = SessionRequest(), client_name: str = "specchat") -> None:
        self.client_name, self._session_request = client_name, replace(session_request, session_id="", settings=None)
        self.kind = session_request.kind
        self.private_turns = PrivateTurns()  # of a session that is not stored
        self.unsent_turns: list[Turn] | None = None  # what the model reads of them, while the host does not have it
        params = session_request.to_params()
        self.connection = self._connect()
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

    @property
    def shown_turns(self) -> HistoryTurns | PrivateTurns:
        """The turns with their versions: of the history, or in memory if the session is not stored."""
        if not self.is_stored:
            return self.private_turns
        return HistoryTurns(Path(self.connection.host_info["history_path"]), self.session_id)

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
        self.connection = self._connect()
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

    def _connect(self) -> HostConnection:
        connection = connect(self.client_name)
        assert connection is not None
        return connection

    def _use_session(self, session_info: JsonObject) -> None:
        self.session_id, self.name = str(session_info["session"]), str(session_info["name"])
        self.settings = Settings.from_json(session_info["settings"])
        self.is_stored = bool(session_info.get("is_stored", True))
        self.context_window = int(session_info.get("context_window", 0))  # in tokens; 0: not known yet
