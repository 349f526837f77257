"""The engine thread: turns wait here and run interleaved, one event each in round robin.

Turns of one session run one after another; sessions alternate at step boundaries. Only `run` uses the engine, on one
thread. All other methods are thread-safe and return at once: a waiting turn is cancelled even while a model loads.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition

from specchat.chat.events import NO_OUTPUT_YET, Event, Failed, Finished, Totals
from specchat.chat.transcript import Question, TextOwner
from specchat.host.allocator import release_free_memory
from specchat.host.completion_queue import CompletionQueue
from specchat.host.engine_interface import EngineLoader
from specchat.host.engine_loading import ModelLoading
from specchat.host.loaded_engines import LoadedEngine
from specchat.host.queued_work import (
    Events,
    QueuedCompletion,
    QueuedSession,
    QueuedTurn,
    RunningTurn,
    TurnEvent,
    next_step,
)
from specchat.host.turn_admission import TurnAdmission
from specchat.profile import Profile

QUIET_SECONDS = 0.5  # without work, after which free memory goes back to the system
ENGINE_DIED = Failed("the engine stopped unexpectedly and starts again; ask again (its log has the reason)", 7)


@dataclass(frozen=True)
class WaitingReason:
    """Why no event of a turn comes, in words for the user, and for how long this has been so."""

    reason: str
    seconds: float


class TurnQueue:
    def __init__(self, engine_loader: EngineLoader, emit: Callable[[TurnEvent], None]) -> None:
        self._emit, self._changed = emit, Condition()
        self._sessions: dict[str, QueuedSession] = {}
        self.models = ModelLoading(engine_loader, self._changed, self._emit_loading, self._fail_waiting_turns)
        self._completions = CompletionQueue(self.models, self._changed, emit)
        self._admission = TurnAdmission(self.models, emit)

    def open_session(self, session_id: str, session: QueuedSession) -> None:
        """Add a session, and start loading the models."""
        with self._changed:
            self._sessions[session_id] = session
            self.models.request_preload(session.profile)

    def set_profile(self, session_id: str, profile: Profile) -> None:
        """Set the profile of the next turns, and start loading the models."""
        with self._changed:
            self._sessions[session_id].profile = profile
            self.models.request_preload(profile)

    def enqueue(self, turn: QueuedTurn) -> None:
        with self._changed:
            self._sessions[turn.session_id].waiting_turns.append(turn)
            self._changed.notify()

    def enqueue_completion(self, completion: QueuedCompletion) -> None:
        self._completions.enqueue(completion, self._sessions[completion.session_id].profile)

    def cancel(self, turn_id: str) -> None:
        """Cancel a turn or a completion: a waiting one at once, a running one within one step."""
        self._completions.cancel(turn_id)
        with self._changed:
            for session in self._sessions.values():
                if session.running and session.running.turn.id == turn_id:
                    session.running.turn.cancelled.set()
                for each in [each for each in session.waiting_turns if each.id == turn_id]:
                    session.waiting_turns.remove(each)
                    self._emit(TurnEvent(each.session_id, turn_id, Finished("cancelled", Totals())))

    def close_session(self, session_id: str) -> None:
        """Remove a session that has no waiting or running turn; of a private one, nothing is kept."""
        with self._changed:
            session = self._sessions.pop(session_id, None)
            if session and session.owner.is_private and session.owner not in self._owners():
                self.models.forget_texts(session.owner.name)

    def forget_texts(self, session_id: str) -> None:
        """Keep nothing of a session that is deleted, and nothing of what it may still ask, beyond its end."""
        with self._changed:
            if session := self._sessions.get(session_id):
                session.owner = TextOwner(session_id)
            self.models.forget_texts(session_id)

    def reset(self) -> None:
        """End all turns and completions with an error and forget the models, after the engine thread has died."""
        with self._changed:
            ended: list[QueuedTurn | QueuedCompletion] = [*self._completions.drop_all()]
            for session in self._sessions.values():
                ended += [*([session.running.turn] if session.running else []), *session.waiting_turns]
                session.running = None
                session.waiting_turns.clear()
            self.models.forget_all()
        for each in ended:
            self._emit(TurnEvent(each.session_id, each.id, ENGINE_DIED))

    def stop(self) -> None:
        """Stop the thread within one step."""
        with self._changed:
            self.models.stop_requested.set()
            for running in (self._completions.running, *(each.turn for each in self._running())):
                if running:
                    running.cancelled.set()
            self._changed.notify()

    @property
    def waiting_count(self) -> int:
        return sum(len(session.waiting_turns) for session in list(self._sessions.values()))

    def waiting_reason(self, turn_id: str) -> WaitingReason:
        """Why nothing of this turn comes at the moment."""
        busy, blocked = self.models.busy, self._admission.blocked
        with self._changed:
            sessions = list(self._sessions.values())
            own = next((each for each in sessions if each.has_turn(turn_id)), None)
            others = [each for each in sessions if each.running and each is not own]
            reason, seconds = busy.text, time.monotonic() - busy.since
        if self.models.state != "loading" and blocked is not None and blocked.turn.id == turn_id:
            reason = blocked.missing
        elif self.models.state != "loading" and own is not None and own.running is None and others:
            count = "another answer comes" if len(others) == 1 else f"{len(others)} other answers come"
            reason = f"{count} first in the engine process"
        return WaitingReason(reason, seconds)

    def run(self) -> None:
        while not self.models.stop_requested.is_set():
            self._wait_for_work()
            self.models.do_pending_work(is_busy=bool(self._busy_engines()))
            self._completions.start(lambda loaded: loaded.has_free_slot(self._busy_engines()))
            self._admission.start(self._waiting_sessions(), self._busy_engines, self._start_turn)
            self._completions.step()
            running = self._running()
            for each in running:
                if each.answer:
                    each.answer.set_load(len(running) - 1, is_urgent=self._completions.running is not None)
                self._step(each)
            self.models.refresh_old_memory()
        for each in self._running():
            each.events.close()
        self._completions.drop_all()
        self.models.close_all()

    def _owners(self) -> list[TextOwner]:
        return [session.owner for session in self._sessions.values()]

    def _wait_for_work(self) -> None:
        """Wait, and give free memory back once it is quiet: not before, because an answer may follow at once."""
        with self._changed:
            is_quiet = not self._changed.wait_for(self._has_work, QUIET_SECONDS)
        if is_quiet:
            release_free_memory()
            with self._changed:
                self._changed.wait_for(self._has_work)

    def _has_work(self) -> bool:
        return bool(
            self.models.stop_requested.is_set()
            or any(session.running or session.waiting_turns for session in self._sessions.values())
            or self._completions.has_work
            or self.models.has_work
        )

    def _running(self) -> list[RunningTurn]:
        return [session.running for session in list(self._sessions.values()) if session.running]

    def _busy_engines(self) -> list[LoadedEngine]:
        completing = [self._completions.engine] if self._completions.engine else []
        return [*(each.engine for each in self._running()), *completing]

    def _waiting_sessions(self) -> list[QueuedSession]:
        """Those without a running turn, in the order in which their first turns came."""
        with self._changed:
            waiting = [each for each in self._sessions.values() if each.waiting_turns and not each.running]
            return sorted(waiting, key=lambda session: session.waiting_turns[0].arrival)

    def _start_turn(self, session: QueuedSession, loaded: LoadedEngine) -> None:
        with self._changed:
            if session.waiting_turns:
                turn = session.waiting_turns.popleft()
                session.running = RunningTurn(turn, loaded, self._events(session, turn))

    def _events(self, session: QueuedSession, turn: QueuedTurn) -> Events:
        running, turns = session.running, session.turns.before(turn.id)
        assert running is not None
        question = Question(turn.request, turns, session.profile, session.owner, session.notified)
        running.read_before = len(turns)
        running.answer = running.engine.engine.answer(question, turn.cancelled)
        yield from running.answer.events()

    def _step(self, running: RunningTurn) -> None:
        self.models.busy.begin("the engine process computes one step of an answer")
        self.models.engines.use(running.engine)
        step = next_step(running.events)
        if step.is_last:
            self._finish(running, step.event)
        elif step.event != NO_OUTPUT_YET:
            self._emit(TurnEvent(running.turn.session_id, running.turn.id, step.event))

    def _finish(self, running: RunningTurn, event: Event) -> None:
        """End a turn. What the model reads of it is known before the next turn of the session starts."""
        running.events.close()
        turn, session, completed_turn = running.turn, self._sessions[running.turn.session_id], None
        turns = list(running.answer.turns) if running.answer else []
        with self._changed:
            if isinstance(event, Finished) and len(turns) > running.read_before:
                completed_turn = turns[-1]
                session.turns.set_read(turn.id, turns)
            session.running = None
        self.models.refresh_memory()
        self._emit(TurnEvent(turn.session_id, turn.id, event, completed_turn))

    def _emit_loading(self, event: Event) -> None:
        """Emit an event to all waiting turns, and to sessions without one."""
        with self._changed:
            turn_ids = {id: [turn.id for turn in each.waiting_turns] for id, each in self._sessions.items()}
        for session_id, waiting in turn_ids.items():
            for turn_id in waiting or [None]:
                self._emit(TurnEvent(session_id, turn_id, event))

    def _fail_waiting_turns(self, profile: Profile, failed: Failed) -> None:
        key_of, turns = self.models.loader.engine_key, list[QueuedTurn]()
        with self._changed:
            for session in self._sessions.values():
                if key_of(session.profile) == key_of(profile):
                    turns += session.waiting_turns
                    session.waiting_turns.clear()
        for turn in turns:
            self._emit(TurnEvent(turn.session_id, turn.id, failed))
