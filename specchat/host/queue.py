"""The engine thread: turns wait here and run interleaved, one event each in round robin.

Turns of one session run one after another; sessions alternate at step boundaries. Only `run` uses the engine, on one
thread. All other methods are thread-safe and return at once: a waiting turn is cancelled even while a model loads.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition

from specchat.chat.events import NO_OUTPUT_YET, Event, Failed, Finished, Totals
from specchat.host.allocator import release_free_memory
from specchat.host.completion_queue import CompletionQueue
from specchat.host.engine_loader import EngineLoader
from specchat.host.engine_loading import ModelLoading
from specchat.host.loaded_engines import LoadedEngine
from specchat.host.queued_work import QueuedCompletion, QueuedTurn, RunningTurn, TurnEvent, next_step
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
    def __init__(self, loader: EngineLoader, emit: Callable[[TurnEvent], None]) -> None:
        self._emit, self._changed = emit, Condition()
        self._waiting: list[QueuedTurn] = []  # in the order of arrival
        self._running: list[RunningTurn] = []
        self.models = ModelLoading(loader, self._changed, self._emit_loading, self._fail_waiting_turns)
        self._completions = CompletionQueue(self.models, self._changed, emit)
        self._admission = TurnAdmission(self.models, emit)

    def enqueue(self, turn: QueuedTurn) -> None:
        with self._changed:
            self._waiting.append(turn)
            self._changed.notify()

    def enqueue_completion(self, completion: QueuedCompletion) -> None:
        self._completions.enqueue(completion)

    def cancel(self, turn_id: str) -> None:
        """Cancel a turn or a completion: a waiting one at once, a running one within one step."""
        self._completions.cancel(turn_id)
        with self._changed:
            for running in self._running:
                if running.turn.id == turn_id:
                    running.turn.cancelled.set()
            for each in [each for each in self._waiting if each.id == turn_id]:
                self._waiting.remove(each)
                self._emit(TurnEvent(each.session_id, turn_id, Finished("cancelled", Totals())))

    def reset(self) -> None:
        """End all turns and completions with an error and forget the models, after the engine thread has died."""
        with self._changed:
            ended = [*self._completions.drop_all(), *(each.turn for each in self._running), *self._waiting]
            self._running.clear()
            self._waiting.clear()
            self.models.forget_all()
        for each in ended:
            self._emit(TurnEvent(each.session_id, each.id, ENGINE_DIED))

    def stop(self) -> None:
        """Stop the thread within one step."""
        with self._changed:
            self.models.stop_requested.set()
            for running in (self._completions.running, *(each.turn for each in self._running)):
                if running:
                    running.cancelled.set()
            self._changed.notify()

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def waiting_reason(self, turn_id: str) -> WaitingReason:
        """Why nothing of this turn comes at the moment."""
        busy, blocked = self.models.busy, self._admission.blocked
        reason, seconds, others = busy.text, time.monotonic() - busy.since, len(self._running)
        if self.models.state != "loading" and blocked is not None and blocked.turn.id == turn_id:
            reason = blocked.missing
        elif self.models.state != "loading" and others and any(turn.id == turn_id for turn in self._first_turns()):
            count = "another answer comes" if others == 1 else f"{others} other answers come"
            reason = f"{count} first in the engine process"
        return WaitingReason(reason, seconds)

    def run(self) -> None:
        while not self.models.stop_requested.is_set():
            self._wait_for_work()
            self.models.do_pending_work(is_busy=bool(self._busy_engines()))
            self._completions.start(lambda loaded: loaded.has_free_slot(self._busy_engines()))
            self._admission.start(self._first_turns(), self._is_waiting, self._busy_engines, self._start_turn)
            self._completions.step()
            running = list(self._running)
            for each in running:
                each.set_load(len(running) - 1, is_urgent=self._completions.running is not None)
                self._step(each)
            self.models.engines.refresh_memory()
        for each in self._running:
            each.events.close()
        self._completions.drop_all()
        self.models.close_all()

    def _wait_for_work(self) -> None:
        """Wait, and give free memory back once it is quiet: not before, because an answer may follow at once."""
        with self._changed:
            is_quiet = not self._changed.wait_for(self._has_work, QUIET_SECONDS)
        if is_quiet:
            release_free_memory()
            with self._changed:
                self._changed.wait_for(self._has_work)

    def _has_work(self) -> bool:
        stops = self.models.stop_requested.is_set()
        return bool(stops or self._running or self._waiting or self._completions.has_work or self.models.has_work)

    def _busy_engines(self) -> list[LoadedEngine]:
        completing = [self._completions.engine] if self._completions.engine else []
        return [*(each.engine for each in self._running), *completing]

    def _first_turns(self) -> list[QueuedTurn]:
        """The first waiting turn of each session without a running one, in the order of arrival."""
        with self._changed:
            busy, first = {each.turn.session_id for each in self._running}, dict[str, QueuedTurn]()
            for turn in self._waiting:
                if turn.session_id not in busy:
                    first.setdefault(turn.session_id, turn)
        return list(first.values())

    def _is_waiting(self, turn: QueuedTurn) -> bool:
        """Whether it was not cancelled, and did not fail, since it was found."""
        return turn in self._waiting

    def _start_turn(self, turn: QueuedTurn, loaded: LoadedEngine) -> None:
        with self._changed:
            if self._is_waiting(turn):
                self._waiting.remove(turn)
                self._running.append(RunningTurn(turn, loaded, self.models.loading_seconds_since(turn.asked_at)))

    def _step(self, running: RunningTurn) -> None:
        self.models.busy.begin("the engine process computes one step of an answer")
        self.models.engines.use(running.engine)
        step, turn = next_step(running.events), running.turn
        if not step.is_last:
            if step.event != NO_OUTPUT_YET:
                self._emit(TurnEvent(turn.session_id, turn.id, step.event))
            return
        completed_turn = running.finish(step.event)
        with self._changed:
            self._running.remove(running)
        self.models.engines.refresh_memory(max_age_seconds=0.0)
        self._emit(TurnEvent(turn.session_id, turn.id, step.event, completed_turn))

    def _emit_loading(self, event: Event) -> None:
        """Emit an event to all waiting turns, and to sessions without one."""
        with self._changed:
            waiting = list(self._waiting)
        for turn in waiting:
            self._emit(TurnEvent(turn.session_id, turn.id, event))
        self._emit(TurnEvent("", None, event))

    def _fail_waiting_turns(self, profile: Profile, failed: Failed) -> None:
        key_of = self.models.engines.loader.engine_key
        with self._changed:
            failing = [turn for turn in self._waiting if key_of(turn.profile) == key_of(profile)]
            self._waiting = [turn for turn in self._waiting if turn not in failing]
        for turn in failing:
            self._emit(TurnEvent(turn.session_id, turn.id, failed))
