"""An answer from the client's side: its events, also when the host dies before or while it comes.

The host disconnects a slow client, which reconnects and receives the missed events. When the host died during an
answer, the received part is stored through the next host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from threading import Event as Flag

from specchat.chat.events import Event, Failed, Finished, Routed
from specchat.chat.request import Request
from specchat.errors import HostError
from specchat.history.history_reader import StoredTurn
from specchat.host.event_feed import PartialAnswer
from specchat.host.host_session import POLL_SECONDS, HostSession
from specchat.host.protocol import (
    RpcError,
    RpcNotification,
    RpcResponse,
    events_from_json,
    new_id,
    request_to_json,
    turn_to_json,
)
from specchat.host.silence import SilenceWatch


class PendingAnswer:
    def __init__(self, session: HostSession, request: Request, cancelled: Flag) -> None:
        self._session, self._request, self._cancelled = session, request, cancelled
        self._turn_id, self._request_id = new_id(), 0
        self._can_retry, self._is_cancel_sent = True, False
        self._partial_answer, self._silence = PartialAnswer(), SilenceWatch()
        self._end: Finished | Failed | None = None

    def events(self) -> Iterator[Event]:
        """Ask, and yield what comes. Closing it cancels the answer."""
        try:
            self._send()
        except ConnectionError:
            self._session.renew()
            self._send()
        try:
            while self._end is None:
                yield from self._receive()
        finally:
            if self._end is None:
                self._cancel()

    def to_turn(self) -> StoredTurn:
        """The finished turn, as the history would have it."""
        match self._end:
            case Finished(finish_reason=reason, totals=totals):
                state, numbers = reason, asdict(totals)
            case Failed(message=message):
                state, numbers = "failed", {"message": message}
            case None:
                state, numbers = "running", {}
        answer = self._partial_answer.to_stored()
        return StoredTurn(self._turn_id, None, request_to_json(self._request), answer, state, numbers, 0.0, None)

    def _send(self) -> None:
        session = self._session
        params = {
            "session": session.session_id, "turn": self._turn_id, "request": request_to_json(self._request),
            "settings": session.settings.to_json(),
        }  # fmt: skip
        unsent = {} if session.unsent_turns is None else {"turns": list(map(turn_to_json, session.unsent_turns))}
        self._request_id = session.connection.send("ask", params | unsent)

    def _receive(self) -> Iterator[Event]:
        try:
            if self._cancelled.is_set() and not self._is_cancel_sent:
                self._session.connection.send("cancel", {"turn": self._turn_id})
                self._is_cancel_sent = True
            message = self._session.connection.next_message(POLL_SECONDS)
            if message is None:
                yield from self._on_silence()
        except ConnectionError:
            yield from self._resume()
            return
        if isinstance(message, RpcResponse) and message.id == self._silence.question_id:
            yield from self._silence.on_reason(message.result)
        if isinstance(message, RpcError) and message.id == self._request_id:
            yield self._record(Failed.from_error(message.to_exception()))
        elif isinstance(message, RpcNotification):
            yield from self._on_notification(message)

    def _on_notification(self, message: RpcNotification) -> Iterator[Event]:
        session = self._session
        # a piece of an earlier completion has no number
        last_sequence_number = message.params.get("sequence_number", session.next_sequence_number - 1)
        session.next_sequence_number = int(last_sequence_number) + 1
        if message.params.get("turn") != self._turn_id:
            return
        for event in events_from_json(message.method, message.params):
            if isinstance(event, Routed):
                session.context_window = event.context_window or session.context_window
            self._silence.on_event(event)
            session.unsent_turns = None
            yield self._record(event)

    def _record(self, event: Event) -> Event:
        self._partial_answer.on_event(event)
        self._can_retry = False
        if isinstance(event, Finished | Failed):
            self._end = event
        return event

    def _on_silence(self) -> Iterator[Event]:
        connection, is_cancelled = self._session.connection, self._cancelled.is_set()
        for event in self._silence.on_silence(connection, self._turn_id, is_cancelled=is_cancelled):
            yield self._record(event) if isinstance(event, Failed) else event

    def _resume(self) -> Iterator[Event]:
        """Reconnect. The same host continues the answer; with a new host, retry, or store the received part."""
        session = self._session
        try:
            is_same_host, self._silence = session.reconnect(), SilenceWatch()
            if is_same_host:
                params = {"session": session.session_id, "from_sequence_number": session.next_sequence_number}
                session.connection.call("subscribe", params)
            elif self._can_retry:
                self._retry()
            else:
                self._recover()
                message = "the engine process was killed; the partial answer is stored, ask again"
                yield self._record(Failed(message, HostError.exit_code))
        except (HostError, ConnectionError) as error:
            yield self._record(Failed(f"the engine process is gone: {error}", HostError.exit_code))

    def _retry(self) -> None:
        """Ask again after the host died before its first event; the old turn is removed."""
        self._session.reopen()
        if any(turn.id == self._turn_id for turn in self._session.shown_turns.shown()):
            self._session.call("rewind", {"count": 1})
        self._turn_id, self._can_retry, self._is_cancel_sent = new_id(), False, False
        self._send()

    def _recover(self) -> None:
        answer = self._partial_answer.to_stored()
        params = {
            "turn": self._turn_id, "text": answer.text, "token_ids": list(answer.token_ids),
            "source_indices": list(answer.source_indices), "sources": list(answer.sources), "variant": answer.variant,
            "seed": answer.seed, "thinking": answer.thinking,
            "tool_calls": [asdict(call) for call in answer.tool_calls],
        }  # fmt: skip
        if answer.text or answer.tool_calls:
            self._session.connection.call("recover_answer", params)
        self._session.reopen()

    def _cancel(self) -> None:
        try:
            self._session.connection.send("cancel", {"turn": self._turn_id})
        except OSError:
            pass  # without a host, there is nothing to cancel
