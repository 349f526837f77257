"""From the events of the engine thread to clients and history: the answers that wait or run.

Runs on the I/O thread. Reads no settings, and knows no engine.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from specchat.chat.events import Event, Failed, Finished, Routed, StepDone, TextDelta
from specchat.history.history_reader import ASK, StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter, TurnSnapshot
from specchat.history.step_encoding import StepPacker
from specchat.host.connection import ClientConnection
from specchat.host.event_feed import EventBatcher, EventFeed, PartialAnswer
from specchat.host.protocol import (
    COMPLETION_TEXT,
    EVENT_METHODS,
    REQUEST_FAILED,
    JsonObject,
    RequestId,
    RpcError,
    RpcNotification,
    RpcResponse,
    encode,
    event_to_json,
)
from specchat.host.queue import TurnQueue
from specchat.host.queued_work import TurnEvent
from specchat.host.session_turns import SessionTurns
from specchat.profile import Profile
from specchat.profile.settings import Settings

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 30.0


@dataclass(eq=False)
class LiveTurn:
    """A waiting or running turn. Its owner gets the final response; without an owner it is cancelled later."""

    owner: ClientConnection | None
    request_id: RequestId
    batcher: EventBatcher = field(default_factory=EventBatcher)
    partial_answer: PartialAnswer = field(default_factory=PartialAnswer)
    steps: StepPacker = field(default_factory=StepPacker)
    disconnected_at: float | None = None  # when the host disconnected the slow owner

    def snapshot(self) -> TurnSnapshot:
        return TurnSnapshot(self.partial_answer.to_stored(), self.steps.packed())


@dataclass(eq=False)
class LiveCompletion:
    """A waiting or running completion. It is never stored."""

    owner: ClientConnection
    request_id: RequestId
    is_streamed: bool = False
    text_parts: list[str] = field(default_factory=list)


@dataclass(eq=False)
class OpenSession:
    """A session in memory.

    A session with `is_stored` False is never written to the history; it is dropped when it has no subscriber.
    """

    thread: Thread
    feed: EventFeed
    turns: SessionTurns
    settings: Settings
    is_stored: bool = True
    are_settings_stored: bool = False
    live_turns: dict[str, LiveTurn] = field(default_factory=dict)
    last_routed: Routed | None = None

    @property
    def profile(self) -> Profile:
        return self.settings.profile


class AnswerDelivery:
    """Routes the events of the engine thread to the feeds of these sessions and to the history."""

    def __init__(self, sessions: Mapping[str, OpenSession], history: HistoryWriter, queue: TurnQueue) -> None:
        self._sessions, self._history, self._queue = sessions, history, queue
        self.live_completions: dict[str, LiveCompletion] = {}
        self.last_used_at = time.monotonic()

    @property
    def is_busy(self) -> bool:
        return bool(self.live_completions) or any(session.live_turns for session in self._sessions.values())

    def cancel_all(self) -> None:
        turn_ids = [turn_id for session in self._sessions.values() for turn_id in session.live_turns]
        for turn_id in [*self.live_completions, *turn_ids]:
            self._queue.cancel(turn_id)

    def on_disconnect(self, client: ClientConnection, *, was_slow: bool) -> None:
        """Cancel the turns of a disconnected client. The turns of a slow client wait RECONNECT_SECONDS for it."""
        for completion_id in [id for id, each in self.live_completions.items() if each.owner is client]:
            self._queue.cancel(completion_id)
            del self.live_completions[completion_id]
        for session in self._sessions.values():
            for turn_id, turn in session.live_turns.items():
                if turn.owner is not client:
                    continue
                turn.owner = None
                if was_slow:
                    turn.disconnected_at = time.monotonic()
                else:
                    self._queue.cancel(turn_id)

    @staticmethod
    def on_reconnect(session: OpenSession, client: ClientConnection) -> None:
        """Give a reconnected client the turns of the session that have no owner."""
        for turn in session.live_turns.values():
            if turn.owner is None:
                turn.owner, turn.disconnected_at = client, None

    def on_event(self, turn_event: TurnEvent, now: float) -> None:
        """Route an event. One that cannot be sent or stored ends its own turn, and no other."""
        self.last_used_at = now
        session = self._sessions.get(turn_event.session_id)
        try:
            if completion := self.live_completions.get(turn_event.turn_id or ""):
                self._on_completion_event(completion, turn_event)
            elif turn_event.turn_id is None:
                self._on_loading(turn_event.event)
            elif session is not None:
                self._on_turn_event(session, turn_event, now)
        except Exception as error:  # noqa: BLE001 - the edge: values of plugins, and memory
            self._end_broken_turn(session, turn_event.turn_id, error)

    def _on_loading(self, event: Event) -> None:
        """Tell the sessions that wait for no answer; the others are told of their turns."""
        for session in self._sessions.values():
            if all(turn.partial_answer.routed for turn in session.live_turns.values()):
                session.feed.emit(None, RpcNotification(EVENT_METHODS[type(event)], event_to_json(event)))

    def _on_turn_event(self, session: OpenSession, turn_event: TurnEvent, now: float) -> None:
        assert turn_event.turn_id is not None
        turn = session.live_turns.get(turn_event.turn_id)
        if turn is None:
            return  # a turn that was ended because one of its events could not be sent
        turn.partial_answer.on_event(turn_event.event)
        if isinstance(turn_event.event, StepDone):
            turn.steps.add(turn_event.event)
        if isinstance(turn_event.event, Finished) and turn_event.event.totals.repeated_tokens:
            turn.steps.cut(turn_event.event.totals.completion_tokens)
        if isinstance(turn_event.event, Routed):
            session.last_routed = turn_event.event
        is_kept = not (isinstance(turn_event.event, Failed) and _is_question_without_answer(session, turn))
        if session.is_stored and is_kept:
            self._store_answer(turn, turn_event)
        for notification in turn.batcher.add(turn_event.event, now):
            session.feed.emit(turn_event.turn_id, notification)
        if isinstance(turn_event.event, Finished | Failed):
            if not is_kept:
                self._forget_question(session, turn_event.turn_id)
            self._send_final_response(session, turn, turn_event)
            del session.live_turns[turn_event.turn_id]

    def _end_broken_turn(self, session: OpenSession | None, turn_id: str | None, error: Exception) -> None:
        """End a turn or a completion with an error, for its client and in the history."""
        log.error("turn %s cannot be sent or stored", turn_id, exc_info=error)
        if turn_id is None:
            return
        self._queue.cancel(turn_id)
        failed = Failed(f"the answer could not be sent: {type(error).__name__}: {error}; see the log of the host")
        if completion := self.live_completions.pop(turn_id, None):
            completion.owner.queue_message(RpcError(completion.request_id, REQUEST_FAILED, failed.message))
        turn = session.live_turns.pop(turn_id, None) if session else None
        if session is None or turn is None:
            return
        if session.is_stored:
            text = "".join(turn.partial_answer.text_parts)
            self._history.finish_turn(turn_id, StoredAnswer(text), "failed", {"message": failed.message})
        session.feed.emit(turn_id, RpcNotification(EVENT_METHODS[Failed], event_to_json(failed)))
        self._send_final_response(session, turn, TurnEvent(session.thread.id, turn_id, failed))

    def _send_final_response(self, session: OpenSession, turn: LiveTurn, turn_event: TurnEvent) -> None:
        if turn.request_id is not None and turn.owner is not None:
            session.feed.append(encode(_final_response(turn.request_id, turn_event)), recipient=turn.owner)

    def _on_completion_event(self, completion: LiveCompletion, turn_event: TurnEvent) -> None:
        """Collect the text of a completion; its client gets all of it in the final response, and pieces if it likes."""
        assert turn_event.turn_id is not None
        match turn_event.event:
            case TextDelta(text=text):
                completion.text_parts.append(text)
                if text and completion.is_streamed:
                    params = {"turn": turn_event.turn_id, "text": text}
                    completion.owner.queue_message(RpcNotification(COMPLETION_TEXT, params))
            case Finished() | Failed():
                del self.live_completions[turn_event.turn_id]
                response = _final_response(completion.request_id, turn_event)
                if isinstance(response, RpcResponse):
                    response.result["text"] = "".join(completion.text_parts)
                completion.owner.queue_message(response)
            case _:
                pass

    def tick(self, now: float) -> None:
        """Emit due notifications, cancel abandoned turns, and flush the history."""
        for session in self._sessions.values():
            for turn_id, turn in list(session.live_turns.items()):
                try:
                    for notification in turn.batcher.take_due(now):
                        session.feed.emit(turn_id, notification)
                except Exception as error:  # noqa: BLE001 - the edge: as in on_event
                    self._end_broken_turn(session, turn_id, error)
                if turn.disconnected_at is not None and now - turn.disconnected_at > RECONNECT_SECONDS:
                    self._queue.cancel(turn_id)
        if self._history.seconds_until_flush() == 0.0:
            self._history.flush()

    def next_due_at(self, now: float) -> float | None:
        """When `tick` is due next; None when nothing is pending."""
        turns = [turn for session in self._sessions.values() for turn in session.live_turns.values()]
        times = [due for turn in turns if (due := turn.batcher.due_at()) is not None]
        times += [turn.disconnected_at + RECONNECT_SECONDS for turn in turns if turn.disconnected_at is not None]
        if (flush := self._history.seconds_until_flush()) is not None:
            times.append(now + flush)
        return min(times, default=None)

    def _forget_question(self, session: OpenSession, turn_id: str) -> None:
        session.turns.remove_last(1)
        session.thread, session.are_settings_stored = replace(session.thread, name="", tip=None), False
        if session.is_stored:
            self._history.forget_thread(session.thread.id, turn_id)

    def _store_answer(self, turn: LiveTurn, turn_event: TurnEvent) -> None:
        """Store the answer: the complete one at the end of the turn, before that a snapshot with the next flush."""
        assert turn_event.turn_id is not None
        if not isinstance(turn_event.event, Finished | Failed):
            self._history.update_answer(turn_event.turn_id, turn.snapshot)
            return
        answer, completed, steps = turn.partial_answer.to_stored(), turn_event.completed_turn, turn.steps.packed()
        if completed is not None:
            answer = replace(
                answer, token_ids=completed.answer_ids, prompt_ids=completed.prompt_ids,
                rendered_prompt=completed.rendered_prompt, model=completed.model,
            )  # fmt: skip
        match turn_event.event:
            case Finished(finish_reason=reason, totals=totals):
                if completed is not None and totals.repeated_tokens:
                    answer = replace(answer, thinking=completed.thinking)
                self._history.finish_turn(turn_event.turn_id, answer, reason, asdict(totals), steps)
            case Failed(message=message):
                self._history.finish_turn(turn_event.turn_id, answer, "failed", {"message": message}, steps)


def _is_question_without_answer(session: OpenSession, turn: LiveTurn) -> bool:
    """Whether a single question got nothing, as for a model that cannot be loaded: there is nothing to continue."""
    return session.thread.kind == ASK and len(session.turns.ids) == 1 and not turn.partial_answer.text_parts


def _final_response(request_id: RequestId, turn_event: TurnEvent) -> RpcResponse | RpcError:
    if isinstance(turn_event.event, Failed):
        return RpcError(request_id, REQUEST_FAILED, turn_event.event.message)
    result: JsonObject = {"turn": turn_event.turn_id, **event_to_json(turn_event.event)}
    return RpcResponse(request_id, result)
