"""The sessions that clients have open: their threads, their turns, and what they tell.

Lives on the text thread together with JSON and SQLite; the engine thread is behind `queue`. No torch and no sockets:
whoever listens is a `Connection` to hang feeds on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from specchat.chat.events import Failed, Finished, Routed, StepDone, TextDelta
from specchat.chat.fim_request import FimRequest
from specchat.chat.history import StoredAnswer, StoredTurn, Thread
from specchat.chat.request import Request
from specchat.chat.step_encoding import StepPacker
from specchat.chat.transcript import Exchange
from specchat.errors import UsageError
from specchat.host.connection import ClientConnection
from specchat.host.event_feed import EventBatcher, EventFeed, PartialAnswer
from specchat.host.history_writer import HistoryWriter, TurnSnapshot
from specchat.host.protocol import (
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

RECONNECT_SECONDS = 30.0
MAX_IDLE_SESSIONS = 16
MAX_NAME_CHARS = 60


@dataclass(frozen=True)
class SessionCallbacks:
    """How a name and settings become a profile, and a stored turn what the engine goes on from (None: it cannot).

    A conversation keeps its profile as it was: `pack` makes a JSON object of it, `unpack` a profile again, or None when
    that object is of a time that knew other keys. `window` is how many tokens a conversation of a profile may have, 0
    when that cannot be known before the model is loaded.
    """

    load_profile: Callable[[str, dict[str, Any]], Any]
    restore_turn: Callable[[StoredTurn], Any]
    profile_to_json: Callable[[Any], JsonObject] = lambda _profile: {}
    profile_from_json: Callable[[JsonObject, dict[str, Any]], Any] = lambda _packed, _overrides: None
    context_window: Callable[[Any], int] = lambda _profile: 0


@dataclass(eq=False)
class LiveTurn:
    """A turn that waits or runs. Its owner is answered in the end; without one it is on borrowed time."""

    owner: ClientConnection | None
    request_id: RequestId
    batcher: EventBatcher = field(default_factory=EventBatcher)
    partial_answer: PartialAnswer = field(default_factory=PartialAnswer)
    steps: StepPacker = field(default_factory=StepPacker)
    disconnected_at: float | None = None  # when the owner was cut off

    def snapshot(self) -> TurnSnapshot:
        """What there is of it now, to be stored."""
        return TurnSnapshot(self.partial_answer.to_stored(), self.steps.packed())


@dataclass(eq=False)
class LiveCompletion:
    """A gap that waits or is being filled, and for whom. Nothing of it is stored."""

    owner: ClientConnection
    request_id: RequestId
    text_parts: list[str] = field(default_factory=list)


@dataclass(eq=False)
class OpenSession:
    """A session in memory. `path` holds its turns in order: their ids, and whether the engine keeps them.

    One that is not kept is never written to the history, and is gone when nobody hears it.
    """

    thread: Thread
    feed: EventFeed
    turns_in_engine: dict[str, bool]
    profile: Any
    is_stored: bool = True
    is_profile_stored: bool = False
    live_turns: dict[str, LiveTurn] = field(default_factory=dict)
    last_routed: Routed | None = None

    @property
    def last_turn_id(self) -> str | None:
        """The last turn."""
        return next(reversed(self.turns_in_engine), None)


class OpenSessions:
    """Every session that is open, and the events on their way to whoever listens."""

    def __init__(self, callbacks: SessionCallbacks, history: HistoryWriter, queue: TurnQueue) -> None:
        self.callbacks, self.history, self.queue = callbacks, history, queue
        self.by_id: dict[str, OpenSession] = {}
        self.live_completions: dict[str, LiveCompletion] = {}
        self.last_used_at = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Does anybody wait for an answer?"""
        return bool(self.live_completions) or any(session.live_turns for session in self.by_id.values())

    def find(self, session_id: str) -> OpenSession:
        """A session by its id, from memory or from the history."""
        thread = self.thread(session_id)
        return self.by_id.get(thread.id) or self.load_thread(thread)

    def thread(self, session_id: str) -> Thread:
        """The thread of a session, also when nobody has it open."""
        thread = self.by_id[session_id].thread if session_id in self.by_id else self.history.thread(session_id)
        if thread is None:
            raise UsageError(f"there is no session {session_id!r}; 'specchat sessions list' lists them")
        return thread

    def configure(self, session: OpenSession, profile: str | None, overrides: dict[str, Any]) -> None:
        """Answer with this profile from now on (None: the one so far, as it was then), and begin to load it."""
        old = session.thread
        thread = replace(old, profile=profile or old.profile, settings={**old.settings, **overrides})
        chosen = (
            self.callbacks.load_profile(profile, thread.settings)
            if profile
            else self._stored_profile(thread, overrides)
        )
        if thread != session.thread:
            self.update_thread(thread)
        session.profile, session.is_profile_stored = chosen, session.is_profile_stored and chosen == session.profile
        self.queue.open_session(thread.id, chosen, [])

    def update_thread(self, thread: Thread) -> None:
        """Store what changed of a thread."""
        self.history.update_thread(thread)
        if thread.id in self.by_id:
            self.by_id[thread.id].thread = thread

    def queue_turn(self, session: OpenSession, turn_id: str, request: Request, live: LiveTurn) -> None:
        """Store a question and queue it."""
        if turn_id in session.turns_in_engine:
            raise UsageError(f"there is a turn {turn_id} already")
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
        """Have a gap filled with the models of a session; a newer wish of the same client takes the place of older."""
        for older, each in self.live_completions.items():
            if each.owner is live.owner:
                self.queue.cancel(older)
        self.live_completions[completion_id] = live
        self.last_used_at = time.monotonic()
        self.queue.enqueue_completion(QueuedCompletion(completion_id, session.thread.id, fim_request))

    def rewind(self, session: OpenSession, count: int, replacement_turns: Sequence[Exchange] = ()) -> None:
        """Go back behind the last turns; they stay in the history as a branch.

        A session that is not kept goes on from what was said elsewhere, if it is told of it.
        """
        if session.live_turns:
            raise UsageError("an answer is being written; stop it first")
        if replacement_turns and session.is_stored:
            raise UsageError("what was said elsewhere can be told only to a conversation that is not kept")
        turns = [self.callbacks.restore_turn(_to_stored_turn(each)) for each in replacement_turns]
        dropped = [session.turns_in_engine.popitem() for _ in range(min(count, len(session.turns_in_engine)))]
        session.turns_in_engine |= {new_id(): True for _ in turns}
        self.queue.rewind(session.thread.id, sum(is_kept for _, is_kept in dropped), turns)
        self.update_thread(replace(session.thread, tip=session.last_turn_id))

    def store(self, session: OpenSession, name: str) -> None:
        """Store a session in which nothing was asked yet, under this name if it has none."""
        if not session.thread.name:
            session.thread = replace(session.thread, name=short_name(name))
        self.history.add_thread(session.thread)

    def fork(self, source: Thread, turn_id: str | None) -> OpenSession:
        """A session of its own that begins with the turns up to this one."""
        if source.id in self.by_id and not self.by_id[source.id].is_stored:
            raise UsageError("this conversation is not kept, so it cannot be gone on with elsewhere")
        turns = [stored.id for stored in self.history.turns(source.tip)]
        if turn_id is not None and turn_id not in turns:
            raise UsageError(f"there is no turn {turn_id} in session {source.id}")
        tip = turn_id or source.tip
        forked = replace(source, id=new_id(), tip=tip, forked_from=source.id, created=0.0, deleted=None)
        self.history.store_profile(forked.id, self.history.stored_profile(source.id))
        self.history.add_thread(forked)
        return self.load_thread(forked)

    def cancel_all(self) -> None:
        """End every turn."""
        for id in [*self.live_completions, *(id for session in self.by_id.values() for id in session.live_turns)]:
            self.queue.cancel(id)

    def on_disconnect(self, client: ClientConnection, *, was_slow: bool) -> None:
        """End the turns of a client that left; those of one that was only slow wait for it to come back."""
        for id in [id for id, gap in self.live_completions.items() if gap.owner is client]:
            self.queue.cancel(id)
            del self.live_completions[id]
        for session in self.by_id.values():
            for id, turn in session.live_turns.items():
                if turn.owner is not client:
                    continue
                turn.owner = None
                if was_slow:
                    turn.disconnected_at = time.monotonic()
                else:
                    self.queue.cancel(id)

    def on_reconnect(self, session: OpenSession, client: ClientConnection) -> None:
        """A client came back: turns without an owner are its own again."""
        for turn in session.live_turns.values():
            if turn.owner is None:
                turn.owner, turn.disconnected_at = client, None

    def on_event(self, turn_event: TurnEvent, now: float) -> None:
        """Pass on an event of the engine thread."""
        if gap := self.live_completions.get(turn_event.turn_id or ""):
            self._on_completion_event(gap, turn_event)
            return
        session = self.by_id.get(turn_event.session_id)
        if session is None:
            return
        self.last_used_at = now
        turn = session.live_turns.get(turn_event.turn_id or "")
        if turn is None or turn_event.turn_id is None:
            session.feed.emit(
                None, RpcNotification(EVENT_METHODS[type(turn_event.event)], event_to_json(turn_event.event))
            )
            return
        turn.partial_answer.on_event(turn_event.event)
        if isinstance(turn_event.event, StepDone):
            turn.steps.add(turn_event.event)
        if isinstance(turn_event.event, Routed):
            session.last_routed = turn_event.event
        if session.is_stored:
            self._store_answer(turn, turn_event)
        for notice in turn.batcher.add(turn_event.event, now):
            session.feed.emit(turn_event.turn_id, notice)
        if isinstance(turn_event.event, Finished | Failed):
            session.turns_in_engine[turn_event.turn_id] = turn_event.completed_turn is not None
            del session.live_turns[turn_event.turn_id]
            if turn.request_id is not None and turn.owner is not None:
                session.feed.append(encode(_final_response(turn.request_id, turn_event)), recipient=turn.owner)

    def _on_completion_event(self, completion: LiveCompletion, turn_event: TurnEvent) -> None:
        """Keep what is written into a gap; its client hears all of it in the end."""
        assert turn_event.turn_id is not None
        match turn_event.event:
            case TextDelta(text=text):
                completion.text_parts.append(text)
            case Finished() | Failed():
                del self.live_completions[turn_event.turn_id]
                reply = _final_response(completion.request_id, turn_event)
                if isinstance(reply, RpcResponse):
                    reply.result["text"] = "".join(completion.text_parts)
                completion.owner.queue_message(reply)
            case _:
                pass

    def tick(self, now: float) -> None:
        """Do what is due."""
        for session in self.by_id.values():
            for id, turn in list(session.live_turns.items()):
                for notice in turn.batcher.take_due(now):
                    session.feed.emit(id, notice)
                if turn.disconnected_at is not None and now - turn.disconnected_at > RECONNECT_SECONDS:
                    self.queue.cancel(id)
        if self.history.seconds_until_flush() == 0.0:
            self.history.flush()

    def next_due_at(self, now: float) -> float | None:
        """When `tick` should be called, None when nothing waits."""
        turns = [turn for session in self.by_id.values() for turn in session.live_turns.values()]
        times = [due for turn in turns if (due := turn.batcher.due_at()) is not None]
        times += [turn.disconnected_at + RECONNECT_SECONDS for turn in turns if turn.disconnected_at is not None]
        if (flush := self.history.seconds_until_flush()) is not None:
            times.append(now + flush)
        return min(times, default=None)

    def _store_question(self, session: OpenSession, turn_id: str, request: Request) -> None:
        if not session.is_profile_stored:
            self.history.store_profile(session.thread.id, self.callbacks.profile_to_json(session.profile))
            session.is_profile_stored = True
        self.history.start_turn(session.thread, turn_id, session.last_turn_id, request_to_json(request))

    def _store_answer(self, turn: LiveTurn, turn_event: TurnEvent) -> None:
        """What there is of an answer now."""
        assert turn_event.turn_id is not None
        if not isinstance(turn_event.event, Finished | Failed):
            self.history.update_answer(turn_event.turn_id, turn.snapshot)
            return
        answered, kept, steps = turn.partial_answer.to_stored(), turn_event.completed_turn, turn.steps.packed()
        if kept is not None:
            answered = replace(answered, ids=kept.answer_ids, prompt_ids=kept.prompt_ids, rendered=kept.rendered)
        match turn_event.event:
            case Finished(finish_reason=reason, totals=totals):
                self.history.finish_turn(turn_event.turn_id, answered, reason, asdict(totals), steps)
            case Failed(message=message):
                self.history.finish_turn(turn_event.turn_id, answered, "failed", {"message": message}, steps)

    def load_thread(self, thread: Thread, *, is_stored: bool = True) -> OpenSession:
        """Take a thread into memory, and let go of those that nobody hears. A new one is stored with its question."""
        profile = self._stored_profile(thread, {})
        turns = [(stored.id, self.callbacks.restore_turn(stored)) for stored in self.history.turns(thread.tip)]
        self.queue.open_session(thread.id, profile, [turn for _, turn in turns if turn is not None])
        session = OpenSession(
            thread, EventFeed(thread.id), {id: turn is not None for id, turn in turns}, profile, is_stored
        )
        self.by_id[thread.id] = session
        idle = [
            id
            for id, each in self.by_id.items()
            if not each.feed.subscriber_count and not each.live_turns and each is not session
        ]
        for id in {*idle[:-MAX_IDLE_SESSIONS], *(id for id in idle if not self.by_id[id].is_stored)}:
            del self.by_id[id]
            self.queue.close_session(id)
        return session

    def _stored_profile(self, thread: Thread, overrides: dict[str, Any]) -> Any:
        """The profile of a conversation as it was when it was last asked, whatever its file says today."""
        packed = self.history.stored_profile(thread.id)
        kept = self.callbacks.profile_from_json(packed, overrides) if packed else None
        return self.callbacks.load_profile(thread.profile, thread.settings) if kept is None else kept


def _to_stored_turn(exchange: Exchange) -> StoredTurn:
    """A turn that was made elsewhere, as if it came from the history."""
    return StoredTurn("", None, {"text": exchange.user}, StoredAnswer(exchange.answer), "stop", {}, 0.0, None)


def short_name(text: str) -> str:
    """The first words of a text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_NAME_CHARS else line[: MAX_NAME_CHARS - 1].rstrip() + "…"


def _final_response(request_id: RequestId, turn_event: TurnEvent) -> RpcResponse | RpcError:
    """The answer that an `ask` gets in the end."""
    if isinstance(turn_event.event, Failed):
        return RpcError(request_id, REQUEST_FAILED, turn_event.event.message)
    result: JsonObject = {"turn": turn_event.turn_id, **event_to_json(turn_event.event)}
    return RpcResponse(request_id, result)
