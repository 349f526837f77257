"""A session of the host from the client's side, which goes on with the next host, and its completions.

For one thread. Only the cancellation flag of an answer may be set from other threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event as Flag
from typing import Any, Self, TypeVar

from specchat.chat.events import TextDelta, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.transcript import Turn
from specchat.errors import HostError, UsageError
from specchat.host.conversation_turns import HistoryTurns, PrivateTurns
from specchat.host.host_connection import HostConnection, connect
from specchat.host.protocol import JsonObject, RpcError, RpcNotification, RpcResponse, new_id, totals_from_json
from specchat.host.silence import no_answer_error
from specchat.profile.settings import Settings, read_settings

POLL_SECONDS = 0.02  # how often what waits checks for cancellation
COMPLETION_TIMEOUT_SECONDS = 30.0

Result = TypeVar("Result")


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


@dataclass(frozen=True)
class CompletionResult:
    """The completion of a gap.

    `finish_reason`: stop, lines, block, inside_line, length, timeout, cancelled, model_loading. `explanation` says what
    the user should know about completions of this model, or what it waits for if it cannot be loaded yet.
    """

    text: str
    finish_reason: str
    totals: Totals = Totals()
    explanation: str = ""


class HostSession:
    def __init__(self, session_request: SessionRequest = SessionRequest(), client_name: str = "specchat") -> None:
        self.client_name, self._session_request = client_name, replace(session_request, session_id="", settings=None)
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
    def kind(self) -> str:
        return self._session_request.kind

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

    def complete(self, fim_request: FimRequest, cancelled: Flag | None = None) -> CompletionResult:
        """Complete a gap with the models of this session. Never waits for a model to load.

        Setting `cancelled` returns at once. HostError when the engine fails. The conversation does not change.
        """
        return _result_of(self._complete(fim_request, cancelled or Flag(), is_streamed=False))

    def stream_completion(
        self, fim_request: FimRequest, cancelled: Flag
    ) -> Generator[TextDelta, None, CompletionResult]:
        """The same, with the text in pieces as it is generated."""
        return self._complete(fim_request, cancelled, is_streamed=True)

    def _complete(
        self, fim_request: FimRequest, cancelled: Flag, *, is_streamed: bool
    ) -> Generator[TextDelta, None, CompletionResult]:
        """Ask once more when the engine process has died before it sent any text."""
        has_begun = False
        work = self._receive_completion(fim_request, cancelled, is_streamed=is_streamed)
        try:
            while True:
                yield next(work)
                has_begun = True
        except StopIteration as end:
            return end.value
        except ConnectionError as error:
            if has_begun:
                raise HostError(f"the engine process is gone: {error}") from None
        self.renew()
        try:
            return (yield from self._receive_completion(fim_request, cancelled, is_streamed=is_streamed))
        except ConnectionError as error:
            raise HostError(f"the engine process is gone: {error}") from None

    def _receive_completion(
        self, fim_request: FimRequest, cancelled: Flag, *, is_streamed: bool = False
    ) -> Generator[TextDelta, None, CompletionResult]:
        turn_id = new_id()
        params = {"session": self.session_id, "turn": turn_id, "is_streamed": is_streamed, **asdict(fim_request)}
        request_id = self.connection.send("complete", params)
        deadline = time.monotonic() + max(fim_request.timeout_seconds, COMPLETION_TIMEOUT_SECONDS)
        while not cancelled.is_set():
            message = self.connection.next_message(POLL_SECONDS)
            if message is None and time.monotonic() > deadline:
                self.connection.send("cancel", {"turn": turn_id})
                raise no_answer_error(COMPLETION_TIMEOUT_SECONDS)
            if isinstance(message, RpcNotification) and message.params.get("turn") == turn_id:
                yield TextDelta(str(message.params["text"]))
            if isinstance(message, RpcError) and message.id == request_id:
                raise message.to_exception()
            if isinstance(message, RpcResponse) and message.id == request_id:
                text, finish_reason = str(message.result["text"]), str(message.result["finish_reason"])
                totals, explanation = totals_from_json(message.result["totals"]), message.result.get("explanation")
                return CompletionResult(text, finish_reason, totals, str(explanation or ""))
        self.connection.send("cancel", {"turn": turn_id})
        return CompletionResult("", "cancelled")

    def _connect(self) -> HostConnection:
        connection = connect(self.client_name)
        assert connection is not None
        return connection

    def _use_session(self, session_info: JsonObject) -> None:
        self.session_id, self.name = str(session_info["session"]), str(session_info["name"])
        self.settings = Settings.from_json(session_info["settings"])
        self.is_stored = bool(session_info.get("is_stored", True))
        self.context_window = int(session_info.get("context_window", 0))  # in tokens; 0: not known yet
        self.next_sequence_number = int(session_info["next_sequence_number"])


def _result_of(work: Generator[object, None, Result]) -> Result:
    """What a generator returns; its values are dropped."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
