"""An answer or a completion from the client's side: its events, also when the host dies before or while it comes.

When the host died during an answer, the received part is stored through the next host.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from threading import Event as Flag

from specchat.chat.events import Event, Failed, Finished, Notice, Routed, Totals, Waiting
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.errors import HostError
from specchat.history.history_reader import StoredTurn
from specchat.host.event_batches import PartialAnswer
from specchat.host.host_connection import HostConnection
from specchat.host.host_lock import STOP_HINT, describe_host, no_answer_error
from specchat.host.host_session import POLL_SECONDS, HostSession
from specchat.host.protocol import (
    JsonObject,
    RpcError,
    RpcNotification,
    RpcResponse,
    events_from_json,
    new_id,
    request_to_json,
    turn_to_json,
)
from specchat.host.wire_values import to_json

SILENCE_SECONDS = 10.0
STUCK_SECONDS = 60.0  # for one step, which a slow machine computes in less
CANCEL_SECONDS = 3.0  # after a cancellation
UNANSWERED_SECONDS = 5.0  # until the user is told
GIVE_UP_SECONDS = 15.0


@dataclass
class SilenceWatch:
    """While no event comes: asks the host how long it has computed one step, and warns of one that may never end.

    A host that computes answers such a question at once. One that does not answer is suspended or broken, and the
    answer fails with a line that says how to end it, so that no front end waits forever. What takes long and ends, such
    as compiling or another answer, has events (`Stage`), and no advice to end it.
    """

    quiet_since: float = field(default_factory=time.monotonic)
    question_id: int | None = None  # of the question that the host has not answered yet
    asked_at: float = 0.0
    is_shown: bool = False  # the warning

    def on_event(self) -> None:
        self.quiet_since, self.is_shown = time.monotonic(), False

    def on_silence(self, connection: HostConnection, turn_id: str, *, is_cancelled: bool) -> Iterator[Event]:
        """Ask the host after a while; a Notice when it does not answer, and Failed when it still does not."""
        now = time.monotonic()
        if self.question_id is None:
            if now - self.quiet_since >= (CANCEL_SECONDS if is_cancelled else SILENCE_SECONDS):
                self.question_id, self.asked_at = connection.send("step_seconds", {"turn": turn_id}), now
        elif now - self.asked_at >= (CANCEL_SECONDS if is_cancelled else GIVE_UP_SECONDS):
            yield Failed.from_error(no_answer_error(now - self.quiet_since))
        elif now - self.asked_at >= UNANSWERED_SECONDS:
            yield from self._warn(f"{describe_host()} does not answer")

    def on_response(self, result: JsonObject) -> Iterator[Event]:
        seconds = float(result.get("seconds", 0.0))
        self.question_id, self.quiet_since = None, time.monotonic()
        if seconds >= STUCK_SECONDS:
            yield from self._warn(f"the engine process computes one step of an answer, for {seconds:.0f} s so far")

    def _warn(self, reason: str) -> Iterator[Event]:
        if not self.is_shown:
            self.is_shown = True
            yield Notice(f"{reason}; {STOP_HINT}")


class PendingAnswer:
    def __init__(self, session: HostSession, request: Request | FimRequest, cancelled: Flag) -> None:
        self._session, self._request, self._cancelled = session, request, cancelled
        self._turn_id, self._request_id = new_id(), 0
        self._can_retry, self._is_cancel_sent = True, False
        self._partial_answer, self._silence = PartialAnswer(), SilenceWatch()
        self._end: Finished | Failed | None = None

    def events(self) -> Iterator[Event]:
        """Ask, and yield what comes. Closing it cancels the answer. ConnectionError when there is no next host."""
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

    def to_turn(self, request: Request) -> StoredTurn:
        """The finished turn of this request, as the history would have it."""
        match self._end:
            case Finished(finish_reason=reason, totals=totals):
                state, numbers = reason, asdict(totals)
            case Failed(message=message):
                state, numbers = "failed", {"message": message}
            case None:
                state, numbers = "running", {}
        answer = self._partial_answer.to_stored()
        return StoredTurn(self._turn_id, None, request_to_json(request), answer, state, numbers, 0.0, None)

    def _send(self) -> None:
        session, request = self._session, self._request
        params: JsonObject = {"session": session.session_id, "turn": self._turn_id}
        if isinstance(request, FimRequest):
            self._request_id = session.connection.send("complete", params | to_json(request))
            return
        params |= {"request": request_to_json(request), "settings": session.settings.to_json()}
        if session.unsent_turns is not None:
            params["turns"] = list(map(turn_to_json, session.unsent_turns))
        self._request_id = session.connection.send("ask", params)

    def _receive(self) -> Iterator[Event]:
        try:
            if self._cancelled.is_set() and not self._is_cancel_sent:
                self._session.connection.send("cancel", {"turn": self._turn_id})
                self._is_cancel_sent = True
                if isinstance(self._request, FimRequest):  # the next one need not wait for its last step
                    yield self._record(Finished("cancelled", Totals()))
                    return
            message = self._session.connection.next_message(POLL_SECONDS)
            if message is None:
                yield from self._on_silence()
        except ConnectionError:
            yield from self._resume()
            return
        if isinstance(message, RpcResponse) and message.id == self._silence.question_id:
            yield from self._silence.on_response(message.result)
        if isinstance(message, RpcError) and message.id in (None, self._request_id):
            if message.id is None:  # what could not be read may have been a part of the answer
                self._cancel()
            yield self._record(Failed.from_error(message.to_exception()))
        elif isinstance(message, RpcNotification) and message.params.get("turn") == self._turn_id:
            yield from self._on_notification(message)

    def _on_notification(self, message: RpcNotification) -> Iterator[Event]:
        session = self._session
        for event in events_from_json(message.method, message.params):
            if isinstance(event, Routed):
                session.context_window = event.context_window or session.context_window
            self._silence.on_event()
            session.unsent_turns = None
            yield self._record(event)

    def _record(self, event: Event) -> Event:
        self._partial_answer.on_event(event)
        self._can_retry = self._can_retry and isinstance(event, Waiting)
        if isinstance(event, Finished | Failed):
            self._end = event
        return event

    def _on_silence(self) -> Iterator[Event]:
        connection, is_cancelled = self._session.connection, self._cancelled.is_set()
        for event in self._silence.on_silence(connection, self._turn_id, is_cancelled=is_cancelled):
            yield self._record(event) if isinstance(event, Failed) else event

    def _resume(self) -> Iterator[Event]:
        """Reconnect. With a new host, retry, or store the received part; the same one has the partial answer."""
        try:
            is_same_host, self._silence = self._session.reconnect(), SilenceWatch()
            if self._can_retry and not is_same_host:
                self._retry()
                return
            self._recover()
            how = "disconnected this client, which read too slowly" if is_same_host else "was killed"
            kept = "" if isinstance(self._request, FimRequest) else "the partial answer is stored, "
            yield self._record(Failed(f"the engine process {how}; {kept}ask again", HostError.exit_code))
        except (HostError, ConnectionError) as error:
            yield self._record(Failed(f"the engine process is gone: {error}", HostError.exit_code))

    def _retry(self) -> None:
        """Ask again after the host died before its first event; the old turn is removed."""
        self._session.reopen()
        if any(turn.id == self._turn_id for turn in self._session.turns()):
            self._session.call("rewind", {"count": 1})
        self._turn_id, self._can_retry, self._is_cancel_sent = new_id(), False, False
        self._send()

    def _recover(self) -> None:
        answer = self._partial_answer.to_stored()
        if isinstance(self._request, Request) and (answer.text or answer.tool_calls):
            self._session.connection.call("recover_answer", {"turn": self._turn_id, "answer": to_json(answer)})
        self._session.reopen()

    def _cancel(self) -> None:
        with suppress(OSError):  # without a host, there is nothing to cancel
            self._session.connection.send("cancel", {"turn": self._turn_id})
