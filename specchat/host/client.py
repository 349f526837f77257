"""A conversation with the host, as a front end sees it: ask, and hear the same events as in one process.

What can go wrong between two processes ends here: a host that must be started or replaced, a connection that was cut
because its reader was slow (what was missed is heard again), a host that was killed in the middle of an answer (what
was shown is given to the next one to keep).
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event as Flag
from typing import Any

from specchat import __version__
from specchat.chat.events import Event, Failed, Finished, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.history import HistoryReader, StoredTurn
from specchat.chat.request import Request
from specchat.chat.transcript import Exchange
from specchat.errors import HostError, InputError, UsageError
from specchat.host.event_feed import PartialAnswer
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
)
from specchat.host.spawn import configuration_hash, find_host, find_or_start_host
from specchat.profile import configuration_folder

POLL_SECONDS = 0.02  # how often a waiting `ask` looks whether it was cancelled
MIN_POLL_SECONDS = 0.001
RESPONSE_TIMEOUT_SECONDS = 30.0
READ_BYTES = 2**18


class HostConnection:
    """A connection to the host: calls out, replies in. Raises ConnectionError when the host is gone."""

    def __init__(self, sock: socket.socket, client_name: str) -> None:
        self._sock = sock
        self._line_reader = LineReader()
        self._received: deque[RpcNotification | RpcResponse | RpcError] = deque()
        self._last_request_id = 0
        self.host_info = self.call("hello", {"client": client_name, "version": __version__})

    def call(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Ask for something and wait for it; what is told meanwhile is kept for `next_notice`."""
        number = self.send(method, params)
        until = time.monotonic() + RESPONSE_TIMEOUT_SECONDS
        told: list[RpcNotification | RpcResponse | RpcError] = []
        while True:
            reply = self.next_message(until - time.monotonic())
            if reply is None:
                raise HostError(f"the engine process did not answer {method!r} within {RESPONSE_TIMEOUT_SECONDS:.0f} s")
            if isinstance(reply, RpcNotification) or reply.id != number:
                told.append(reply)
                continue
            self._received.extendleft(reversed(told))
            if isinstance(reply, RpcError):
                raise reply.to_exception()
            return reply.result

    def send(self, method: str, params: Mapping[str, Any]) -> int:
        """Ask for something; the number of the call."""
        self._last_request_id += 1
        line = encode(RpcRequest(self._last_request_id, method, dict(params)))
        if len(line) > MAX_LINE_BYTES:
            raise InputError(
                f"this is too much at once: {len(line) / 2**20:.0f} MiB on the wire, at most 32; attach less"
            )
        self._sock.settimeout(RESPONSE_TIMEOUT_SECONDS)
        try:
            self._sock.sendall(line)
        except TimeoutError:
            raise HostError(
                f"the engine process took nothing for {RESPONSE_TIMEOUT_SECONDS:.0f} s; 'specchat host stop' ends it"
            ) from None
        return self._last_request_id

    def next_message(self, timeout_seconds: float) -> RpcNotification | RpcResponse | RpcError | None:
        """What is told next, None when nothing is within this time."""
        until = time.monotonic() + timeout_seconds
        while not self._received:
            self._sock.settimeout(max(MIN_POLL_SECONDS, until - time.monotonic()))
            try:
                received = self._sock.recv(READ_BYTES)
            except TimeoutError:
                return None
            if not received:
                raise ConnectionResetError("the host hung up")
            self._received.extend(decode_host_messages(self._line_reader.feed(received)))
        return self._received.popleft()

    def close(self) -> None:
        """Hang up."""
        self._sock.close()


def connect(client_name: str, *, starts_host: bool = True) -> HostConnection | None:
    """A line to a host that speaks as we do. One that does not, and is idle, is replaced."""
    for _ in range(3):
        peer = find_or_start_host() if starts_host else find_host()
        if peer is None:
            return None
        try:
            line = HostConnection(peer, client_name)
            if not starts_host or _is_compatible(line.host_info):
                return line
            line.call("shutdown", {})
            _wait_for_exit(line)
        except ConnectionError:
            peer.close()
            continue  # it was just about to end
    raise HostError("the engine process ends as soon as it begins; 'specchat host status' may say why")


def _is_compatible(host_info: JsonObject) -> bool:
    """Same version, same configuration? HostError when it is not and must not be replaced."""
    version = str(host_info.get("version"))
    if version == __version__ and host_info.get("configuration") == configuration_hash():
        return True
    if host_info.get("busy"):
        what = f"is version {version}" if version != __version__ else "was started with another configuration"
        raise HostError(f"the running engine process {what} and is busy; wait for it, or 'specchat host stop'")
    if _version_numbers(version) > _version_numbers(__version__):
        raise HostError(
            f"the running engine process is newer ({version}) than this specchat; upgrade, or 'specchat host stop'"
        )
    return False


def _version_numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def _wait_for_exit(connection: HostConnection) -> None:
    try:
        until = time.monotonic() + RESPONSE_TIMEOUT_SECONDS
        while time.monotonic() < until:
            connection.next_message(1.0)
    except ConnectionError:
        connection.close()
        return
    raise HostError("the old engine process does not end; 'specchat host stop' ends it")


@dataclass(frozen=True)
class SessionRequest:
    """Which conversation somebody wants: a known one, the last one of this folder, or a new one."""

    session_id: str = ""
    continues_last: bool = False
    profile: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "chat"
    folder: str = ""  # "" for the one of this process
    is_stored: bool = True  # in the history; one that is not ends with its host

    def to_params(self) -> JsonObject:
        """What `open` is told."""
        folder = self.folder or str(Path.cwd())
        params: JsonObject = {
            "kind": self.kind,
            "folder": folder,
            "continue": self.continues_last,
            "kept": self.is_stored,
        }
        if self.session_id:
            params["session"] = self.session_id
        if self.profile:
            params["profile"] = _profile_for_host(self.profile)
        if self.overrides:
            params["overrides"] = dict(self.overrides)
        return params


def _profile_for_host(name: str) -> str:
    """A profile of ours under a name that the host understands: it has another folder and another environment."""
    is_file = name.endswith(".toml") or "/" in name
    path = Path(name).expanduser() if is_file else configuration_folder() / "profiles" / f"{name}.toml"
    return str(path.absolute()) if is_file or path.is_file() else name


@dataclass(frozen=True)
class CompletionResult:
    """What was written into a gap, and why it ended: `stop`, `lines`, `length`, `late`, `cancelled`,
    `loading`, `unable`.
    """

    text: str
    finish_reason: str
    totals: Totals = Totals()


class Conversation(AbstractContextManager["Conversation"]):
    """One session of the host. The next ask continues where the last one ended, also after a host was replaced.

    For one thread; only the flag that cancels an answer may be set from another.
    """

    def __init__(self, session_request: SessionRequest = SessionRequest(), client_name: str = "specchat") -> None:
        self.client_name, self._session_request = client_name, session_request
        self._connection = self._connect()
        self._use_session(self._connection.call("open", session_request.to_params()))

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def warning(self) -> str:
        """What the host has to complain of, in one line."""
        return str(self._connection.host_info.get("trouble", ""))

    def ask(self, request: Request | str, cancelled: Flag | None = None) -> Iterator[Event]:
        """Answer, one event at a time. Set `cancelled` from any thread to end within a step; the partial stays."""
        hearing = _PendingAnswer(Request(request) if isinstance(request, str) else request, cancelled or Flag())
        self._send_ask_with_retry(hearing)
        try:
            while not hearing.is_finished:
                yield from self._receive_events(hearing)
        finally:
            if not hearing.is_finished:
                self._cancel(hearing)

    def complete(self, gap: FimRequest, cancelled: Flag | None = None) -> CompletionResult:
        """Have a gap filled by the models of this session, beside what is said in it. Waits for no model to load.

        Set `cancelled` from any thread to be answered at once. HostError when the engine fails.
        """
        try:
            return self._complete(gap, cancelled or Flag())
        except ConnectionError:
            self._reconnect()
        try:
            return self._complete(gap, cancelled or Flag())
        except ConnectionError as error:
            raise HostError(f"the engine process is gone: {error}") from None

    def turns(self) -> list[StoredTurn]:
        """What was said so far."""
        history = HistoryReader(Path(self._connection.host_info["history"]))
        try:
            thread = history.thread(self.session_id)
            return history.turns(thread.tip) if thread else []
        finally:
            history.close()

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> JsonObject:
        """Any other method, for this session unless `params` name another."""
        try:
            return self._connection.call(method, {"session": self.session_id, **(params or {})})
        except ConnectionError:
            self._reconnect()
            return self._connection.call(method, {"session": self.session_id, **(params or {})})

    def rewind(self, count: int = 1, replacement_turns: Sequence[Exchange] = ()) -> None:
        """Take back the last turns, to ask again or otherwise. One that is not kept may go on from others instead."""
        self.call("rewind", {"count": count, "turns": [asdict(each) for each in replacement_turns]})

    def open_new_session(self) -> JsonObject:
        """A new session like this one, for `switch`."""
        return self._connection.call("open", replace(self._session_request, session="", is_last=False).to_params())

    def switch_session(self, session_info: JsonObject) -> None:
        """Go on in the session that an `open` or `fork` answered with."""
        self._use_session(session_info)

    def close(self) -> None:
        """Hang up; the session stays in the history."""
        self._connection.close()

    def _complete(self, gap: FimRequest, cancelled: Flag) -> CompletionResult:
        turn = new_id()
        call = self._connection.send("complete", {"session": self.session_id, "turn": turn, **asdict(gap)})
        while not cancelled.is_set():
            reply = self._connection.next_message(POLL_SECONDS)
            if isinstance(reply, RpcError) and reply.id == call:
                raise reply.to_exception()
            if isinstance(reply, RpcResponse) and reply.id == call:
                result = reply.result
                return CompletionResult(str(result["text"]), str(result["reason"]), totals_from_json(result["totals"]))
        self._connection.send("cancel", {"turn": turn})
        return CompletionResult("", "cancelled")

    def _connect(self) -> HostConnection:
        line = connect(self.client_name)
        assert line is not None
        return line

    def _use_session(self, session_info: JsonObject) -> None:
        self.session_id, self.name, self.profile = (
            str(session_info["session"]),
            str(session_info["name"]),
            str(session_info["profile"]),
        )
        self.context_window = int(
            session_info.get("window", 0)
        )  # tokens that the conversation may have; 0: not known yet
        self._next_sequence_number = int(session_info["next"])

    def _reconnect(self) -> None:
        self._connection.close()
        self._connection = self._connect()
        self._use_session(self._reopen_session())

    def _reopen_session(self) -> JsonObject:
        """The same session; one that nothing was asked in was never stored, and is begun anew.

        HostError for one that is not kept: what was said in it is gone.
        """
        try:
            return self._connection.call("open", {"session": self.session_id})
        except UsageError:
            if not self._session_request.is_stored:
                raise HostError("the engine process has ended, and this conversation with it; ask again") from None
            return self.open_new_session()

    def _send_ask_with_retry(self, pending: _PendingAnswer) -> None:
        try:
            self._send_ask(pending)
        except ConnectionError:
            self._reconnect()
            self._send_ask(pending)

    def _send_ask(self, pending: _PendingAnswer) -> None:
        params = {"session": self.session_id, "turn": pending.turn_id, "request": request_to_json(pending.request)}
        pending.request_id = self._connection.send("ask", params)

    def _receive_events(self, pending: _PendingAnswer) -> Iterator[Event]:
        """The events of one look at the line."""
        try:
            if pending.cancelled.is_set() and not pending.is_cancel_sent:
                self._connection.send("cancel", {"turn": pending.turn_id})
                pending.is_cancel_sent = True
            reply = self._connection.next_message(POLL_SECONDS)
        except ConnectionError:
            yield from self._resume(pending)
            return
        if isinstance(reply, RpcError) and reply.id == pending.request_id:
            error = reply.to_exception()
            yield pending.record(Failed.from_error(error))
        elif isinstance(reply, RpcNotification):
            self._next_sequence_number = int(reply.params.get("number", self._next_sequence_number)) + 1
            if reply.params.get("turn") == pending.turn_id:
                for event in events_from_json(reply.method, reply.params):
                    yield pending.record(event)

    def _resume(self, pending: _PendingAnswer) -> Iterator[Event]:
        """Take up a cut connection where it was cut; after a killed host, save what was heard, or ask again."""
        instance = self._connection.host_info["instance"]
        try:
            self._connection.close()
            self._connection = self._connect()
            if self._connection.host_info["instance"] == instance:
                self._connection.call("subscribe", {"session": self.session_id, "from": self._next_sequence_number})
            elif pending.can_retry:
                self._retry_ask(pending)
            else:
                self._recover_answer(pending)
                message = "the engine process was killed; what was said so far is kept, ask again"
                yield pending.record(Failed(message, HostError.exit_code))
        except (HostError, ConnectionError) as error:
            yield pending.record(Failed(f"the engine process is gone: {error}", HostError.exit_code))

    def _retry_ask(self, pending: _PendingAnswer) -> None:
        """The host ended before it said anything: the same question, as if it had never been asked."""
        self._use_session(self._reopen_session())
        if any(turn.id == pending.turn_id for turn in self.turns()):
            self.rewind()
        pending.turn_id, pending.can_retry, pending.is_cancel_sent = new_id(), False, False
        self._send_ask(pending)

    def _recover_answer(self, pending: _PendingAnswer) -> None:
        """Give the new host what the old one told and had not yet stored."""
        heard = pending.partial_answer.to_stored()
        params = {
            "turn": pending.turn_id, "text": heard.text, "ids": list(heard.token_ids), "kinds": list(heard.source_indices),
            "sources": list(heard.sources), "variant": heard.variant, "seed": heard.seed,
        }  # fmt: skip
        if heard.text:
            self._connection.call("mend", params)
        self._use_session(self._reopen_session())

    def _cancel(self, pending: _PendingAnswer) -> None:
        """Nobody listens any more."""
        try:
            self._connection.send("cancel", {"turn": pending.turn_id})
        except OSError:
            pass  # then there is nothing left to cancel


@dataclass(eq=False)
class _PendingAnswer:
    """An answer on its way."""

    request: Request
    cancelled: Flag
    turn_id: str = field(default_factory=new_id)
    request_id: int = 0
    can_retry: bool = True
    is_cancel_sent: bool = False
    is_finished: bool = False
    partial_answer: PartialAnswer = field(default_factory=PartialAnswer)

    def record(self, event: Event) -> Event:
        """Note what is passed on."""
        self.partial_answer.on_event(event)
        self.can_retry = False
        self.is_finished = self.is_finished or isinstance(event, Finished | Failed)
        return event
