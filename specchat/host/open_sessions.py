"""The sessions in memory: their turns, their events, and what the history stores of them.

Runs on the I/O thread; `TurnQueue` passes the turns to the engine thread. Knows no torch and no sockets.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from specchat.chat.events import Failed, Finished, Routed, StepDone, TextDelta
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.chat.tools import ANY_TOOL
from specchat.chat.transcript import Exchange
from specchat.errors import UsageError
from specchat.history.history_reader import ASK, StoredAnswer, StoredTurn, Thread
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
    new_id,
    request_to_json,
)
from specchat.host.queue import QueuedCompletion, QueuedTurn, TurnEvent, TurnQueue
from specchat.paths import remove_kv_files
from specchat.profile import Profile
from specchat.profile.settings import Settings

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 30.0
MAX_IDLE_SESSIONS = 16
MAX_NAME_CHARS = 60


@dataclass(frozen=True)
class SessionCallbacks:
    """Conversions that depend on profiles and engines.

    `read_settings` checks the settings of a client, or makes those of an old file whole; `restore_turn` makes the
    engine's turn of a stored one, or None. `context_window` is the limit of a profile in tokens; 0 when it is known
    only after the model is loaded.
    """

    read_settings: Callable[[JsonObject], Settings]
    restore_turn: Callable[[StoredTurn], Any]
    context_window: Callable[[Profile], int] = lambda _profile: 0


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
    """A session in memory. `turns_in_engine` has the turn ids in order, and whether the engine has each turn.

    A session with `is_stored` False is never written to the history; it is dropped when it has no subscriber.
    """

    thread: Thread
    feed: EventFeed
    turns_in_engine: dict[str, bool]
    settings: Settings
    is_stored: bool = True
    are_settings_stored: bool = False
    live_turns: dict[str, LiveTurn] = field(default_factory=dict)
    last_routed: Routed | None = None

    @property
    def profile(self) -> Profile:
        return self.settings.profile

    @property
    def last_turn_id(self) -> str | None:
        return next(reversed(self.turns_in_engine), None)


class OpenSessions:
    """All sessions in memory. Routes the events of the engine thread to feeds and history."""

    def __init__(self, callbacks: SessionCallbacks, history: HistoryWriter, queue: TurnQueue) -> None:
        self.callbacks, self.history, self.queue = callbacks, history, queue
        self.by_id: dict[str, OpenSession] = {}
        self.live_completions: dict[str, LiveCompletion] = {}
        self.last_used_at = time.monotonic()

    @property
    def is_busy(self) -> bool:
        return bool(self.live_completions) or any(session.live_turns for session in self.by_id.values())

    def memory_bytes(self) -> dict[str, int]:
        """Memory use in bytes, by component: models, conversations, events for late clients; empty without models."""
        models = self.queue.memory_bytes()
        events = sum(session.feed.retained_bytes for session in list(self.by_id.values()))
        return {**models, "events": events} if models else {}

    def find(self, session_id: str, settings: Settings | None = None) -> OpenSession:
        """A session by its id, from now on with these settings, if any."""
        thread = self.thread(session_id)
        session = self.by_id.get(thread.id)
        if session is None:
            return self.load_thread(thread, settings)
        if settings is not None:
            self.use(session, settings)
        return session

    def thread(self, session_id: str) -> Thread:
        """The thread of a session, in memory or not; UsageError when there is none."""
        thread = self.by_id[session_id].thread if session_id in self.by_id else self.history.thread(session_id)
        if thread is None:
            raise UsageError(f"there is no session {session_id!r}; 'specchat sessions list' lists them")
        return thread

    def use(self, session: OpenSession, settings: Settings) -> None:
        """Take the settings of the next turns from the client, store them, and start loading the models."""
        if settings == session.settings:
            return
        session.settings = settings
        if session.are_settings_stored:
            self.history.store_settings(session.thread.id, settings.to_json())
        self.update_thread(replace(session.thread, profile=settings.name))
        self.queue.open_session(session.thread.id, settings.profile, [])

    def update_thread(self, thread: Thread) -> None:
        self.history.update_thread(thread)
        if thread.id in self.by_id:
            self.by_id[thread.id].thread = thread

    def queue_turn(self, session: OpenSession, turn_id: str, request: Request, live: LiveTurn) -> None:
        self._check_is_new(turn_id)
        request.check_size(self.callbacks.context_window(session.profile))
        if not session.thread.name:
            session.thread = replace(session.thread, name=short_name(request.text))
        if session.is_stored:
            self._store_question(session, turn_id, request)
        session.turns_in_engine[turn_id] = False
        session.thread = replace(session.thread, tip=turn_id)
        session.live_turns[turn_id] = live
        self.last_used_at = time.monotonic()
        self.queue.enqueue(QueuedTurn(turn_id, session.thread.id, request))

    def queue_completion(
        self, session: OpenSession, completion_id: str, fim_request: FimRequest, live: LiveCompletion
    ) -> None:
        """Queue a completion, and cancel earlier completions of the same client."""
        self._check_is_new(completion_id)
        for earlier_id, earlier in self.live_completions.items():
            if earlier.owner is live.owner:
                self.queue.cancel(earlier_id)
        self.live_completions[completion_id] = live
        self.last_used_at = time.monotonic()
        self.queue.enqueue_completion(QueuedCompletion(completion_id, session.thread.id, fim_request))

    def _check_is_new(self, turn_id: str) -> None:
        """UsageError for an id that any session has: it would take the events of the other turn."""
        is_in_memory = turn_id in self.live_completions or any(
            turn_id in session.turns_in_engine for session in self.by_id.values()
        )
        if is_in_memory or self.history.has_turn(turn_id):
            raise UsageError(f"turn {turn_id} exists already")

    def rewind(self, session: OpenSession, count: int, replacement_turns: Sequence[Exchange] = ()) -> None:
        """Remove the last turns; the history keeps them as a branch.

        A session that is not stored may continue from `replacement_turns`.
        """
        if session.live_turns:
            raise UsageError("an answer is running; stop it first")
        if replacement_turns and session.is_stored:
            raise UsageError("only a conversation that is not stored can continue from other turns")
        turns = [self.callbacks.restore_turn(_to_stored_turn(each)) for each in replacement_turns]
        removed = [session.turns_in_engine.popitem() for _ in range(min(count, len(session.turns_in_engine)))]
        session.turns_in_engine |= {new_id(): turn is not None for turn in turns}
        held = [turn for turn in turns if turn is not None]
        self.queue.rewind(session.thread.id, sum(is_in_engine for _, is_in_engine in removed), held)
        self.update_thread(replace(session.thread, tip=session.last_turn_id))

    def select_version(self, session: OpenSession, turn_id: str) -> None:
        """Show another version of one of the turns, with what was asked after it; the next question continues there."""
        if session.live_turns:
            raise UsageError("an answer is running; stop it first")
        if not any(turn_id in versions for versions in self.history.versions(session.thread).values()):
            raise UsageError(f"turn {turn_id} is no version of a turn of this conversation")
        tip = self.history.newest_after(turn_id, session.thread.id)
        turns = [(stored.id, self.callbacks.restore_turn(stored)) for stored in self.history.turns(tip)]
        held = sum(session.turns_in_engine.values())
        session.turns_in_engine = {id: turn is not None for id, turn in turns}
        self.queue.rewind(session.thread.id, held, [turn for _, turn in turns if turn is not None])
        self.update_thread(replace(session.thread, tip=tip))

    def delete(self, thread: Thread) -> None:
        """Mark a session as deleted, which removes it from the lists, and remove its KV cache from the disk."""
        self.update_thread(replace(thread, deleted=time.time()))
        self.queue.forget_kv(thread.id)
        remove_kv_files(thread.id)

    def store(self, session: OpenSession, name: str) -> None:
        """Store a session without turns, with this name if it has none."""
        if not session.thread.name:
            session.thread = replace(session.thread, name=short_name(name))
        self._store_settings(session)
        self.history.add_thread(session.thread)

    def fork(self, source: Thread, turn_id: str | None) -> OpenSession:
        """Open a copy of a session, up to this turn or up to its last one."""
        if source.id in self.by_id and not self.by_id[source.id].is_stored:
            raise UsageError("this conversation is not stored, so it cannot be forked")
        turns = [stored.id for stored in self.history.turns(source.tip)]
        if turn_id is not None and turn_id not in turns:
            raise UsageError(f"there is no turn {turn_id} in session {source.id}")
        tip = turn_id or source.tip
        forked = replace(source, id=new_id(), tip=tip, forked_from=source.id, created=0.0, deleted=None)
        self.history.store_settings(forked.id, self.history.settings(source.id))
        self.history.add_thread(forked)
        return self.load_thread(forked)

    def cancel_all(self) -> None:
        turn_ids = [turn_id for session in self.by_id.values() for turn_id in session.live_turns]
        for turn_id in [*self.live_completions, *turn_ids]:
            self.queue.cancel(turn_id)

    def on_disconnect(self, client: ClientConnection, *, was_slow: bool) -> None:
        """Cancel the turns of a disconnected client. The turns of a slow client wait RECONNECT_SECONDS for it."""
        for completion_id in [id for id, each in self.live_completions.items() if each.owner is client]:
            self.queue.cancel(completion_id)
            del self.live_completions[completion_id]
        for session in self.by_id.values():
            for turn_id, turn in session.live_turns.items():
                if turn.owner is not client:
                    continue
                turn.owner = None
                if was_slow:
                    turn.disconnected_at = time.monotonic()
                else:
                    self.queue.cancel(turn_id)

    def on_reconnect(self, session: OpenSession, client: ClientConnection) -> None:
        """Give a reconnected client the turns of the session that have no owner."""
        for turn in session.live_turns.values():
            if turn.owner is None:
                turn.owner, turn.disconnected_at = client, None

    def on_event(self, turn_event: TurnEvent, now: float) -> None:
        """Route an event. One that cannot be sent or stored ends its own turn, and no other."""
        self.last_used_at = now
        session = self.by_id.get(turn_event.session_id)
        try:
            if completion := self.live_completions.get(turn_event.turn_id or ""):
                self._on_completion_event(completion, turn_event)
            elif session is not None and turn_event.turn_id is None:
                event = turn_event.event
                session.feed.emit(None, RpcNotification(EVENT_METHODS[type(event)], event_to_json(event)))
            elif session is not None:
                self._on_turn_event(session, turn_event, now)
        except Exception as error:  # noqa: BLE001 - the edge: values of plugins, and memory
            self._end_broken_turn(session, turn_event.turn_id, error)

    def _on_turn_event(self, session: OpenSession, turn_event: TurnEvent, now: float) -> None:
        assert turn_event.turn_id is not None
        turn = session.live_turns.get(turn_event.turn_id)
        if turn is None:
            if isinstance(turn_event.event, Finished | Failed) and turn_event.turn_id in session.turns_in_engine:
                session.turns_in_engine[turn_event.turn_id] = turn_event.completed_turn is not None
            return  # a turn that was ended because one of its events could not be sent
        turn.partial_answer.on_event(turn_event.event)
        if isinstance(turn_event.event, StepDone):
            turn.steps.add(turn_event.event)
        if isinstance(turn_event.event, Routed):
            session.last_routed = turn_event.event
        is_kept = not (isinstance(turn_event.event, Failed) and _is_question_without_answer(session, turn))
        if session.is_stored and is_kept:
            self._store_answer(turn, turn_event)
        for notification in turn.batcher.add(turn_event.event, now):
            session.feed.emit(turn_event.turn_id, notification)
        if isinstance(turn_event.event, Finished | Failed):
            session.turns_in_engine[turn_event.turn_id] = turn_event.completed_turn is not None
            if not is_kept:
                self._forget_question(session, turn_event.turn_id)
            self._send_final_response(session, turn, turn_event)
            del session.live_turns[turn_event.turn_id]

    def _end_broken_turn(self, session: OpenSession | None, turn_id: str | None, error: Exception) -> None:
        """End a turn or a completion with an error, for its client and in the history."""
        log.error("turn %s cannot be sent or stored", turn_id, exc_info=error)
        if turn_id is None:
            return
        self.queue.cancel(turn_id)
        failed = Failed(f"the answer could not be sent: {type(error).__name__}: {error}; see the log of the host")
        if completion := self.live_completions.pop(turn_id, None):
            completion.owner.queue_message(RpcError(completion.request_id, REQUEST_FAILED, failed.message))
        turn = session.live_turns.pop(turn_id, None) if session else None
        if session is None or turn is None:
            return
        if session.is_stored:
            text = "".join(turn.partial_answer.text_parts)
            self.history.finish_turn(turn_id, StoredAnswer(text), "failed", {"message": failed.message})
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
        for session in self.by_id.values():
            for turn_id, turn in list(session.live_turns.items()):
                try:
                    for notification in turn.batcher.take_due(now):
                        session.feed.emit(turn_id, notification)
                except Exception as error:  # noqa: BLE001 - the edge: as in on_event
                    self._end_broken_turn(session, turn_id, error)
                if turn.disconnected_at is not None and now - turn.disconnected_at > RECONNECT_SECONDS:
                    self.queue.cancel(turn_id)
        if self.history.seconds_until_flush() == 0.0:
            self.history.flush()

    def next_due_at(self, now: float) -> float | None:
        """When `tick` is due next; None when nothing is pending."""
        turns = [turn for session in self.by_id.values() for turn in session.live_turns.values()]
        times = [due for turn in turns if (due := turn.batcher.due_at()) is not None]
        times += [turn.disconnected_at + RECONNECT_SECONDS for turn in turns if turn.disconnected_at is not None]
        if (flush := self.history.seconds_until_flush()) is not None:
            times.append(now + flush)
        return min(times, default=None)

    def _store_question(self, session: OpenSession, turn_id: str, request: Request) -> None:
        self._store_settings(session)
        # Tools are named with every request, and are not read again: they would be most of the file.
        stored = replace(request, tools=(), tool_choice=ANY_TOOL, compacts=False)
        self.history.start_turn(session.thread, turn_id, session.last_turn_id, request_to_json(stored))

    def _forget_question(self, session: OpenSession, turn_id: str) -> None:
        del session.turns_in_engine[turn_id]
        session.thread, session.are_settings_stored = replace(session.thread, name="", tip=None), False
        if session.is_stored:
            self.history.forget_thread(session.thread.id, turn_id)

    def _store_settings(self, session: OpenSession) -> None:
        if not session.are_settings_stored:
            self.history.store_settings(session.thread.id, session.settings.to_json())
            session.are_settings_stored = True

    def _store_answer(self, turn: LiveTurn, turn_event: TurnEvent) -> None:
        """Store the answer: the complete one at the end of the turn, before that a snapshot with the next flush."""
        assert turn_event.turn_id is not None
        if not isinstance(turn_event.event, Finished | Failed):
            self.history.update_answer(turn_event.turn_id, turn.snapshot)
            return
        answer, completed, steps = turn.partial_answer.to_stored(), turn_event.completed_turn, turn.steps.packed()
        if completed is not None:
            answer = replace(
                answer, token_ids=completed.answer_ids, prompt_ids=completed.prompt_ids,
                rendered_prompt=completed.rendered_prompt, model=completed.model,
            )  # fmt: skip
        match turn_event.event:
            case Finished(finish_reason=reason, totals=totals):
                self.history.finish_turn(turn_event.turn_id, answer, reason, asdict(totals), steps)
            case Failed(message=message):
                self.history.finish_turn(turn_event.turn_id, answer, "failed", {"message": message}, steps)

    def load_thread(
        self, thread: Thread, settings_of_client: Settings | None = None, *, is_stored: bool = True
    ) -> OpenSession:
        """Load a thread into memory, and drop idle sessions. A new thread is stored with its first question."""
        stored = self.history.settings(thread.id)
        settings = settings_of_client or self.callbacks.read_settings({"name": thread.profile, **stored})
        thread = replace(thread, profile=settings.name)
        if stored and settings_of_client:
            self.history.store_settings(thread.id, settings.to_json())
        turns = [(stored.id, self.callbacks.restore_turn(stored)) for stored in self.history.turns(thread.tip)]
        held = [turn for _, turn in turns if turn is not None]
        self.queue.open_session(thread.id, settings.profile, held, kv_name=thread.id if is_stored else "")
        in_engine = {id: turn is not None for id, turn in turns}
        session = OpenSession(thread, EventFeed(thread.id), in_engine, settings, is_stored, bool(stored))
        self.by_id[thread.id] = session
        self._drop_idle_sessions(session)
        return session

    def _drop_idle_sessions(self, newest: OpenSession) -> None:
        """Drop sessions without subscribers and turns: all that are not stored, and the oldest stored ones."""
        others = [each for each in self.by_id.values() if each is not newest]
        idle = [each for each in others if not each.feed.subscriber_count and not each.live_turns]
        not_stored = [each for each in idle if not each.is_stored]
        for session_id in {each.thread.id for each in [*idle[:-MAX_IDLE_SESSIONS], *not_stored]}:
            del self.by_id[session_id]
            self.queue.close_session(session_id)


def _is_question_without_answer(session: OpenSession, turn: LiveTurn) -> bool:
    """Whether a single question got nothing, as for a model that cannot be loaded: there is nothing to continue."""
    return session.thread.kind == ASK and len(session.turns_in_engine) == 1 and not turn.partial_answer.text_parts


def _to_stored_turn(exchange: Exchange) -> StoredTurn:
    results = [asdict(result) for result in exchange.tool_results]
    request = {"text": exchange.user, "files": [asdict(file) for file in exchange.files], "tool_results": results}
    state = "failed" if exchange.is_failed else "stop"
    answer = StoredAnswer(exchange.answer, tool_calls=exchange.tool_calls)
    return StoredTurn("", None, request, answer, state, {}, 0.0, None)


def short_name(text: str) -> str:
    line = " ".join(text.lstrip()[: 2 * MAX_NAME_CHARS].split())
    return line if len(line) <= MAX_NAME_CHARS else line[: MAX_NAME_CHARS - 1].rstrip() + "…"


def _final_response(request_id: RequestId, turn_event: TurnEvent) -> RpcResponse | RpcError:
    if isinstance(turn_event.event, Failed):
        return RpcError(request_id, REQUEST_FAILED, turn_event.event.message)
    result: JsonObject = {"turn": turn_event.turn_id, **event_to_json(turn_event.event)}
    return RpcResponse(request_id, result)
