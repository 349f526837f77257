"""The client side of the host: connections, and conversations that survive a restart of the host.

A `Conversation` yields the same events as an engine in the same process. It starts or replaces the host, reconnects
after the host disconnected a slow client (and receives the missed events), and, when the host died during an answer,
stores the received part through the next host.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event as Flag
from typing import Any, TypeVar

from specchat import __version__
from specchat.chat.events import Event, Failed, Finished, Routed, TextDelta, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.chat.transcript import Turn
from specchat.errors import HostError, InputError, SpecchatError, UsageError
from specchat.history.history_reader import CHAT, HistoryReader, StoredTurn
from specchat.host.event_feed import PartialAnswer
from specchat.host.private_turns import PrivateTurns
from specchat.host.protocol import (
    MAX_LINE_BYTES,
    JsonObject,
    LineReader,
    RpcError,
    RpcNotification,
    RpcRequest,
    RpcResponse,
    decode_host_messages,
    encode,
    events_from_json,
    new_id,
    request_to_json,
    totals_from_json,
    turn_to_json,
)
from specchat.host.session_turns import turn_of_stored
from specchat.host.silence import SilenceWatch, no_answer_error
from specchat.host.spawn import configuration_hash, find_host, find_or_start_host
from specchat.profile.settings import Settings, read_settings

POLL_SECONDS = 0.02  # how often a waiting `ask` checks for cancellation
MIN_POLL_SECONDS = 0.001
HELLO_TIMEOUT_SECONDS = 5.0  # the host answers at once, also while it computes
RESPONSE_TIMEOUT_SECONDS = 15.0
COMPLETION_TIMEOUT_SECONDS = 30.0
READ_BYTES = 2**18

Result = TypeVar("Result")


class HostConnection:
    """A connection to the host. Raises ConnectionError when the host closes it."""

    def __init__(self, sock: socket.socket, client_name: str) -> None:
        self._sock = sock
        self._line_reader = LineReader()
        self._received: deque[RpcNotification | RpcResponse | RpcError] = deque()
        self._last_request_id = 0
        self.host_info = self.call("hello", {"client": client_name, "version": __version__}, HELLO_TIMEOUT_SECONDS)

    def call(self, method: str, params: Mapping[str, Any], timeout_seconds: float | None = None) -> JsonObject:
        """Send a request and wait for its response. Other messages stay queued for `next_message`."""
        request_id = self.send(method, params)
        timeout_seconds = RESPONSE_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + timeout_seconds
        others: list[RpcNotification | RpcResponse | RpcError] = []
        while True:
            message = self.next_message(deadline - time.monotonic())
            if message is None:
                raise no_answer_error(timeout_seconds)
            if isinstance(message, RpcError) and message.id is None:
                raise message.to_exception()  # about the connection: the host sends it and disconnects
            if isinstance(message, RpcNotification) or message.id != request_id:
                others.append(message)
                continue
            self._received.extendleft(reversed(others))
            if isinstance(message, RpcError):
                raise message.to_exception()
            return message.result

    def send(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a request; returns its id."""
        self._last_request_id += 1
        line = encode(RpcRequest(self._last_request_id, method, dict(params)))
        if len(line) > MAX_LINE_BYTES:
            size, limit = len(line) / 2**20, MAX_LINE_BYTES // 2**20
            raise InputError(f"the request is too large: {size:.0f} MiB on the wire, at most {limit}; attach less")
        self._sock.settimeout(RESPONSE_TIMEOUT_SECONDS)
        try:
            self._sock.sendall(line)
        except TimeoutError:
            raise no_answer_error(RESPONSE_TIMEOUT_SECONDS) from None
        except BrokenPipeError as error:  # of the socket; one of stdout means something else
            self._raise_farewell()
            raise ConnectionResetError("the host closed the connection") from error
        return self._last_request_id

    def _raise_farewell(self) -> None:
        """Raise the reason that the host gave before it closed the connection, if any."""
        with suppress(ConnectionError):
            while (message := self.next_message(0.0)) is not None:
                if isinstance(message, RpcError) and message.id is None:
                    raise message.to_exception()

    def next_message(self, timeout_seconds: float) -> RpcNotification | RpcResponse | RpcError | None:
        deadline = time.monotonic() + timeout_seconds
        while not self._received:
            self._sock.settimeout(max(MIN_POLL_SECONDS, deadline - time.monotonic()))
            try:
                received = self._sock.recv(READ_BYTES)
            except TimeoutError:
                return None
            if not received:
                raise ConnectionResetError("the host closed the connection")
            self._received.extend(decode_host_messages(self._line_reader.feed(received)))
        return self._received.popleft()

    def close(self) -> None:
        self._sock.close()


def connect(client_name: str, *, starts_host: bool = True) -> HostConnection | None:
    """Connect to the host, and start one when none runs. Replaces an idle host that is not compatible."""
    for _ in range(3):
        sock = find_or_start_host() if starts_host else find_host()
        if sock is None:
            return None
        try:
            connection = HostConnection(sock, client_name)
            if not starts_host or _is_compatible(connection.host_info):
                return connection
            connection.call("shutdown", {})
            _wait_for_exit(connection)
        except ConnectionError:
            sock.close()
            continue  # the host was exiting
        except SpecchatError:
            sock.close()
            raise
    raise HostError("the engine process exits right after its start; 'specchat host status' may show the reason")


def _is_compatible(host_info: JsonObject) -> bool:
    """Whether version and configuration are equal. HostError for another host that is busy or newer."""
    version = str(host_info.get("version"))
    if version == __version__ and host_info.get("configuration_hash") == configuration_hash():
        return True
    if host_info.get("is_busy"):
        difference = f"is version {version}" if version != __version__ else "has another configuration"
        raise HostError(f"the running engine process {difference} and is busy; wait, or run 'specchat host stop'")
    if _version_numbers(version) > _version_numbers(__version__):
        message = f"the running engine process is newer ({version}) than this specchat"
        raise HostError(f"{message}; upgrade, or run 'specchat host stop'")
    return False


def _version_numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def _wait_for_exit(connection: HostConnection) -> None:
    try:
        deadline = time.monotonic() + RESPONSE_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            connection.next_message(1.0)
    except ConnectionError:
        connection.close()
        return
    raise HostError("the old engine process does not exit; run 'specchat host stop'")


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


class Conversation(AbstractContextManager["Conversation"]):
    """One session of the host. Each `ask` continues the conversation, also after the host was replaced.

    For one thread. Only the cancellation flag of an answer may be set from other threads.
    """

    def __init__(self, session_request: SessionRequest = SessionRequest(), client_name: str = "specchat") -> None:
        self.client_name, self._session_request = client_name, replace(session_request, session_id="", settings=None)
        self._private_turns = PrivateTurns()  # of a session that is not stored
        self._unsent_turns: list[Turn] | None = None  # what the model reads of them, while the host does not have it
        params = session_request.to_params()
        self._connection = self._connect()
        self.switch_session(self._connection.call("open_session", params))

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def warning(self) -> str:
        """The warning of the host about its history database; "" for none."""
        return str(self._connection.host_info.get("warning", ""))

    def ask(
        self, request: Request | str, cancelled: Flag | None = None, turns: Sequence[Turn] | None = None
    ) -> Iterator[Event]:
        """Yield the events of an answer. Setting `cancelled` ends it within a step and keeps the partial answer.

        A caller that keeps the turns itself gives them with each question, in a session that is not stored.
        """
        pending = _PendingAnswer(Request(request) if isinstance(request, str) else request, cancelled or Flag())
        self._unsent_turns = list(turns) if turns is not None else self._unsent_turns
        try:
            self._send_ask(pending)
        except ConnectionError:
            self._reconnect()
            self._send_ask(pending)
        try:
            while not pending.is_finished:
                yield from self._receive_events(pending)
            if not self.is_stored and turns is None:
                self._private_turns.add(pending.to_turn())
        finally:
            if not pending.is_finished:
                self._cancel(pending)

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
        self._reconnect()
        try:
            return (yield from self._receive_completion(fim_request, cancelled, is_streamed=is_streamed))
        except ConnectionError as error:
            raise HostError(f"the engine process is gone: {error}") from None

    def turns(self) -> list[StoredTurn]:
        """The turns of this conversation, from the history database, or from memory if it is not stored."""
        if not self.is_stored:
            return self._private_turns.shown()
        with self._open_history() as history:
            thread = history.thread(self.session_id)
            return history.turns(thread.tip) if thread else []

    def versions(self) -> dict[str, tuple[str, ...]]:
        """For each turn the ids of its versions, the oldest first."""
        if not self.is_stored:
            return self._private_turns.versions()
        with self._open_history() as history:
            thread = history.thread(self.session_id)
            return history.versions(thread) if thread else {}

    def all_turns(self) -> list[StoredTurn]:
        """The turns of all branches."""
        if not self.is_stored:
            return self._private_turns.all_turns()
        with self._open_history() as history:
            thread = history.thread(self.session_id)
            return history.all_turns(thread) if thread else self.turns()

    def _open_history(self) -> AbstractContextManager[HistoryReader]:
        return closing(HistoryReader(Path(self._connection.host_info["history_path"])))

    def select_version(self, position: int, number: int) -> None:
        """Continue with another version of the turn at this position; numbers count from 1."""
        turn = self.turns()[position].id
        versions = self.versions().get(turn, (turn,))
        if not 1 <= number <= len(versions):
            raise UsageError(f"there is no version {number} of this answer; it has {len(versions)}")
        if self.is_stored:
            self.call("select_version", {"turn": versions[number - 1]})
            return
        self._private_turns.select(versions[number - 1])
        self._unsent_turns = self._read_private_turns()

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> JsonObject:
        """Call a method of the host, for this session unless `params` names another one."""
        try:
            return self._connection.call(method, {"session": self.session_id, **(params or {})})
        except ConnectionError:
            self._reconnect()
            return self._connection.call(method, {"session": self.session_id, **(params or {})})

    def rewind(self, count: int = 1) -> None:
        """Remove the last turns; in a chat they stay as a version."""
        if self._unsent_turns is None:
            self.call("rewind", {"count": count})
        go_back = self._private_turns.rewind if self._session_request.kind == CHAT else self._private_turns.forget
        go_back(count)
        if self._unsent_turns is not None:
            self._unsent_turns = self._read_private_turns()

    def _read_private_turns(self) -> list[Turn]:
        """What the model reads of the shown turns."""
        return [turn for each in self._private_turns.shown() if (turn := turn_of_stored(each)) is not None]

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

    def open_new_session(self) -> JsonObject:
        """Open a new session with the same settings; pass the result to `switch_session`."""
        params = replace(self._session_request, settings=self.settings).to_params()
        try:
            return self._connection.call("open_session", params)
        except ConnectionError:
            self._reconnect()
            return self._connection.call("open_session", params)

    def open_beside(self) -> Conversation:
        """An empty conversation with the settings of this one, which is not stored; close it after its use."""
        return Conversation(SessionRequest(settings=self.settings, is_stored=False), self.client_name)

    def switch_session(self, session_info: JsonObject) -> None:
        """Continue in the session that `open_session` or `fork` returned."""
        self._private_turns, self._unsent_turns = PrivateTurns(), None
        self._use_session(session_info)

    def _use_session(self, session_info: JsonObject) -> None:
        self.session_id, self.name = str(session_info["session"]), str(session_info["name"])
        self.settings = Settings.from_json(session_info["settings"])
        self.is_stored = bool(session_info.get("is_stored", True))
        self.context_window = int(session_info.get("context_window", 0))  # in tokens; 0: not known yet
        self._next_sequence_number = int(session_info["next_sequence_number"])

    def close(self) -> None:
        """Close the connection. A stored session stays in the history."""
        self._connection.close()

    def _receive_completion(
        self, fim_request: FimRequest, cancelled: Flag, *, is_streamed: bool = False
    ) -> Generator[TextDelta, None, CompletionResult]:
        turn_id = new_id()
        params = {"session": self.session_id, "turn": turn_id, "is_streamed": is_streamed, **asdict(fim_request)}
        request_id = self._connection.send("complete", params)
        deadline = time.monotonic() + max(fim_request.timeout_seconds, COMPLETION_TIMEOUT_SECONDS)
        while not cancelled.is_set():
            message = self._connection.next_message(POLL_SECONDS)
            if message is None and time.monotonic() > deadline:
                self._connection.send("cancel", {"turn": turn_id})
                raise no_answer_error(COMPLETION_TIMEOUT_SECONDS)
            if isinstance(message, RpcNotification) and message.params.get("turn") == turn_id:
                yield TextDelta(str(message.params["text"]))
            if isinstance(message, RpcError) and message.id == request_id:
                raise message.to_exception()
            if isinstance(message, RpcResponse) and message.id == request_id:
                text, finish_reason = str(message.result["text"]), str(message.result["finish_reason"])
                totals, explanation = totals_from_json(message.result["totals"]), message.result.get("explanation")
                return CompletionResult(text, finish_reason, totals, str(explanation or ""))
        self._connection.send("cancel", {"turn": turn_id})
        return CompletionResult("", "cancelled")

    def _connect(self) -> HostConnection:
        connection = connect(self.client_name)
        assert connection is not None
        return connection

    def _reconnect(self) -> None:
        self._connection.close()
        self._connection = self._connect()
        self._reopen_session()

    def _reopen_session(self) -> None:
        """Open the same session again, or a new one if it was never stored; the next question brings its turns."""
        try:
            params = SessionRequest(self.session_id, self.settings).to_params()
            self._use_session(self._connection.call("open_session", params))
        except UsageError:
            self._use_session(self.open_new_session())
            if not self.is_stored and self._unsent_turns is None:
                self._unsent_turns = self._read_private_turns()

    def _send_ask(self, pending: _PendingAnswer) -> None:
        params = {
            "session": self.session_id, "turn": pending.turn_id, "request": request_to_json(pending.request),
            "settings": self.settings.to_json(),
        }  # fmt: skip
        unsent = {} if self._unsent_turns is None else {"turns": list(map(turn_to_json, self._unsent_turns))}
        pending.request_id = self._connection.send("ask", params | unsent)

    def _receive_events(self, pending: _PendingAnswer) -> Iterator[Event]:
        try:
            if pending.cancelled.is_set() and not pending.is_cancel_sent:
                self._connection.send("cancel", {"turn": pending.turn_id})
                pending.is_cancel_sent = True
            message = self._connection.next_message(POLL_SECONDS)
            if message is None:
                yield from self._on_silence(pending)
        except ConnectionError:
            yield from self._resume(pending)
            return
        if isinstance(message, RpcResponse) and message.id == pending.silence.question_id:
            yield from pending.silence.on_reason(message.result)
        if isinstance(message, RpcError) and message.id == pending.request_id:
            yield pending.record(Failed.from_error(message.to_exception()))
        elif isinstance(message, RpcNotification):
            # a piece of an earlier completion has no number
            last_sequence_number = message.params.get("sequence_number", self._next_sequence_number - 1)
            self._next_sequence_number = int(last_sequence_number) + 1
            if message.params.get("turn") == pending.turn_id:
                for event in events_from_json(message.method, message.params):
                    if isinstance(event, Routed):
                        self.context_window = event.context_window or self.context_window
                    pending.silence.on_event(event)
                    self._unsent_turns = None
                    yield pending.record(event)

    def _on_silence(self, pending: _PendingAnswer) -> Iterator[Event]:
        is_cancelled = pending.cancelled.is_set()
        for event in pending.silence.on_silence(self._connection, pending.turn_id, is_cancelled=is_cancelled):
            yield pending.record(event) if isinstance(event, Failed) else event

    def _resume(self, pending: _PendingAnswer) -> Iterator[Event]:
        """Reconnect. The same host continues the answer; with a new host, retry, or store the received part."""
        instance_id = self._connection.host_info["instance_id"]
        try:
            self._connection.close()
            self._connection, pending.silence = self._connect(), SilenceWatch()
            if self._connection.host_info["instance_id"] == instance_id:
                params = {"session": self.session_id, "from_sequence_number": self._next_sequence_number}
                self._connection.call("subscribe", params)
            elif pending.can_retry:
                self._retry_ask(pending)
            else:
                self._recover_answer(pending)
                message = "the engine process was killed; the partial answer is stored, ask again"
                yield pending.record(Failed(message, HostError.exit_code))
        except (HostError, ConnectionError) as error:
            yield pending.record(Failed(f"the engine process is gone: {error}", HostError.exit_code))

    def _retry_ask(self, pending: _PendingAnswer) -> None:
        """Ask again after the host died before its first event; the old turn is removed."""
        self._reopen_session()
        if any(turn.id == pending.turn_id for turn in self.turns()):
            self.rewind()
        pending.turn_id, pending.can_retry, pending.is_cancel_sent = new_id(), False, False
        self._send_ask(pending)

    def _recover_answer(self, pending: _PendingAnswer) -> None:
        answer = pending.partial_answer.to_stored()
        params = {
            "turn": pending.turn_id, "text": answer.text, "token_ids": list(answer.token_ids),
            "source_indices": list(answer.source_indices), "sources": list(answer.sources), "variant": answer.variant,
            "seed": answer.seed, "thinking": answer.thinking,
            "tool_calls": [asdict(call) for call in answer.tool_calls],
        }  # fmt: skip
        if answer.text or answer.tool_calls:
            self._connection.call("recover_answer", params)
        self._reopen_session()

    def _cancel(self, pending: _PendingAnswer) -> None:
        try:
            self._connection.send("cancel", {"turn": pending.turn_id})
        except OSError:
            pass  # without a host, there is nothing to cancel


@dataclass(eq=False)
class _PendingAnswer:
    request: Request
    cancelled: Flag
    turn_id: str = field(default_factory=new_id)
    request_id: int = 0
    can_retry: bool = True
    is_cancel_sent: bool = False
    partial_answer: PartialAnswer = field(default_factory=PartialAnswer)
    silence: SilenceWatch = field(default_factory=SilenceWatch)
    end: Finished | Failed | None = None

    def record(self, event: Event) -> Event:
        self.partial_answer.on_event(event)
        self.can_retry = False
        if isinstance(event, Finished | Failed):
            self.end = event
        return event

    @property
    def is_finished(self) -> bool:
        return self.end is not None

    def to_turn(self) -> StoredTurn:
        """The finished turn, as the history would have it."""
        match self.end:
            case Finished(finish_reason=reason, totals=totals):
                state, numbers = reason, asdict(totals)
            case Failed(message=message):
                state, numbers = "failed", {"message": message}
            case None:
                state, numbers = "running", {}
        answer = self.partial_answer.to_stored()
        return StoredTurn(self.turn_id, None, request_to_json(self.request), answer, state, numbers, 0.0, None)


def _result_of(work: Generator[object, None, Result]) -> Result:
    """What a generator returns; its values are dropped."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
