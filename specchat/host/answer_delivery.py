"""From the events of the engine thread to clients and history: the answers and completions that wait or run.

Runs on the I/O thread. Reads no settings, and knows no engine.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from specchat.chat.events import Failed, Finished, Routed, StepDone
from specchat.errors import UsageError
from specchat.history.history_reader import ASK, StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter
from specchat.history.step_encoding import StepPacker
from specchat.host.connection import ClientConnection
from specchat.host.event_batches import EventBatcher, PartialAnswer
from specchat.host.protocol import RpcNotification
from specchat.host.queue import TurnQueue
from specchat.host.queued_work import Queued, TurnEvent
from specchat.host.session_turns import SessionTurns
from specchat.profile.keys import Profile
from specchat.profile.settings import Settings

log = logging.getLogger(__name__)


@dataclass(eq=False)
class OpenSession:
    """A session in memory, and who uses it.

    A session with `is_stored` False is never written to the history; it is dropped when it has no client.
    """

    thread: Thread
    turns: SessionTurns
    settings: Settings
    is_stored: bool = True
    are_settings_stored: bool = False
    clients: set[ClientConnection] = field(default_factory=set[ClientConnection])
    last_routed: Routed | None = None

    @property
    def profile(self) -> Profile:
        return self.settings.profile


@dataclass(eq=False)
class LiveAnswer:
    """A waiting or running answer, or a completion. Its owner hears of it; without an owner it is cancelled soon."""

    owner: ClientConnection | None
    session: OpenSession
    is_completion: bool = False  # of which nothing is stored
    batcher: EventBatcher = field(default_factory=EventBatcher)
    partial_answer: PartialAnswer = field(default_factory=PartialAnswer)
    steps: StepPacker = field(default_factory=StepPacker)

    @property
    def is_stored(self) -> bool:
        return self.session.is_stored and not self.is_completion

    def snapshot(self) -> tuple[StoredAnswer, bytes]:
        return self.partial_answer.to_stored(), self.steps.packed()


class AnswerDelivery:
    """Routes the events of the engine thread to the owners of the answers and to the history."""

    def __init__(self, sessions: Mapping[str, OpenSession], history: HistoryWriter, queue: TurnQueue) -> None:
        self._sessions, self._history, self._queue = sessions, history, queue
        self.live: dict[str, LiveAnswer] = {}
        self.last_used_at = time.monotonic()

    @property
    def turn_count(self) -> int:
        """How many answers wait or run, without the completions. Thread-safe."""
        return sum(not live.is_completion for live in list(self.live.values()))

    def has_turn(self, session: OpenSession) -> bool:
        return any(live.session is session and not live.is_completion for live in self.live.values())

    def check_is_idle(self, session: OpenSession) -> None:
        if self.has_turn(session):
            raise UsageError("an answer is running; stop it first")

    def check_is_new(self, turn_id: str) -> None:
        """UsageError for an id that any session has: it would take the events of the other turn."""
        is_in_memory = turn_id in self.live or any(turn_id in each.turns for each in self._sessions.values())
        if is_in_memory or self._history.has_turn(turn_id):
            raise UsageError(f"turn {turn_id} exists already")

    def start(self, work: Queued, live: LiveAnswer) -> None:
        self.live[work.id] = live
        self.last_used_at = time.monotonic()
        self._queue.enqueue(work)

    def cancel_all(self) -> None:
        for turn_id in list(self.live):
            self._queue.cancel(turn_id)

    def cancel_completions(self, client: ClientConnection) -> None:
        for turn_id, live in list(self.live.items()):
            if live.is_completion and live.owner is client:
                self._queue.cancel(turn_id)

    def on_disconnect(self, client: ClientConnection) -> None:
        """Cancel what a disconnected client waits for; the partial answers stay."""
        for turn_id, live in list(self.live.items()):
            if live.owner is client:
                live.owner = None
                self._queue.cancel(turn_id)
        for session in self._sessions.values():
            session.clients.discard(client)

    def on_event(self, turn_event: TurnEvent, now: float) -> None:
        """Route an event. One that cannot be sent or stored ends its own answer, and no other."""
        self.last_used_at = now
        live = self.live.get(turn_event.turn_id)
        if live is None:
            return  # an answer that was ended because one of its events could not be sent
        try:
            self._on_event(live, turn_event, now)
        except Exception as error:  # noqa: BLE001 - the edge: values of plugins, and memory
            self._end_broken_answer(turn_event.turn_id, live, error)

    def _on_event(self, live: LiveAnswer, turn_event: TurnEvent, now: float) -> None:
        event = turn_event.event
        live.partial_answer.on_event(event)
        if isinstance(event, StepDone):
            live.steps.add(event)
        if isinstance(event, Finished) and event.totals.repeated_tokens:
            live.steps.cut(event.totals.completion_tokens)
        if isinstance(event, Routed):
            live.session.last_routed = event
        is_failed = isinstance(event, Failed) or (isinstance(event, Finished) and event.finish_reason == "cancelled")
        is_kept = not (is_failed and _is_question_without_answer(live))
        if live.is_stored and is_kept:
            self._store_answer(live, turn_event)
        for notification in live.batcher.add(event, now):
            _send(live, turn_event.turn_id, notification)
        if isinstance(event, Finished | Failed):
            if not is_kept:
                self._forget_question(live.session, turn_event.turn_id)
            del self.live[turn_event.turn_id]

    def _end_broken_answer(self, turn_id: str, live: LiveAnswer, error: Exception) -> None:
        """End an answer or a completion with an error, for its client and in the history."""
        log.error("turn %s cannot be sent or stored", turn_id, exc_info=error)
        self._queue.cancel(turn_id)
        self.live.pop(turn_id, None)
        failed = Failed(f"the answer could not be sent: {type(error).__name__}: {error}; see the log of the host")
        if live.is_stored:
            text = "".join(live.partial_answer.text_parts)
            self._history.finish_turn(turn_id, StoredAnswer(text), "failed", {"message": failed.message})
        for notification in EventBatcher().add(failed, 0.0):
            _send(live, turn_id, notification)

    def tick(self, now: float) -> None:
        """Send due notifications, and flush the history."""
        for turn_id, live in list(self.live.items()):
            try:
                for notification in live.batcher.take_due(now):
                    _send(live, turn_id, notification)
            except Exception as error:  # noqa: BLE001 - the edge: as in on_event
                self._end_broken_answer(turn_id, live, error)
        if self._history.seconds_until_flush() == 0.0:
            self._history.flush()

    def next_due_at(self, now: float) -> float | None:
        """When `tick` is due next; None when nothing is pending."""
        times = [due for live in self.live.values() if (due := live.batcher.due_at()) is not None]
        if (flush := self._history.seconds_until_flush()) is not None:
            times.append(now + flush)
        return min(times, default=None)

    def _forget_question(self, session: OpenSession, turn_id: str) -> None:
        session.turns.remove_last(1)
        session.thread, session.are_settings_stored = replace(session.thread, name="", tip=None), False
        if session.is_stored:
            self._history.forget_thread(session.thread.id, turn_id)

    def _store_answer(self, live: LiveAnswer, turn_event: TurnEvent) -> None:
        """Store the answer: the complete one at the end of the turn, before that a snapshot with the next flush."""
        if not isinstance(turn_event.event, Finished | Failed):
            self._history.update_answer(turn_event.turn_id, live.snapshot)
            return
        answer, completed, steps = live.partial_answer.to_stored(), turn_event.completed_turn, live.steps.packed()
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


def _send(live: LiveAnswer, turn_id: str, notification: RpcNotification) -> None:
    if live.owner is not None:
        live.owner.queue_message(replace(notification, params={"turn": turn_id, **notification.params}))


def _is_question_without_answer(live: LiveAnswer) -> bool:
    """Whether a single question got nothing, as for a model that cannot be loaded: there is nothing to continue."""
    is_single, answer = live.session.thread.kind == ASK and len(live.session.turns.ids) == 1, live.partial_answer
    return is_single and not live.is_completion and not (answer.text_parts or answer.thinking_parts)
