"""The engine thread: turns and completions wait here and run interleaved, one step each in round robin.

Turns of one session run one after another; sessions alternate at step boundaries, and a turn that starts has the next
step. A completion never waits for a model to load, starts before any waiting turn, and takes several steps before each
step of a turn; one runs at a time. Only `run` uses the engine, on one thread. All other methods are thread-safe and
return at once: a waiting turn is cancelled even while a model loads.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition
from weakref import WeakSet

from specchat.chat.events import NO_OUTPUT_YET, Event, Failed, Finished, Totals, Waiting
from specchat.chat.fim_request import MODEL_LOADING
from specchat.host.engine_loader import EngineLoader
from specchat.host.engine_loading import ModelLoading
from specchat.host.loaded_engines import LoadedEngine
from specchat.host.queued_work import Queued, QueuedCompletion, QueuedTurn, Running, TurnEvent, next_step
from specchat.process_memory import release_free_memory
from specchat.profile.keys import Profile

QUIET_SECONDS = 0.5  # without work, after which free memory goes back to the system
STEPS_OF_COMPLETION = 4  # before each step of a turn
MAX_OVERTAKING_TURNS = 4  # that start before an earlier one, which waits for the memory of another engine
ENGINE_DIED = Failed("the engine stopped unexpectedly and starts again; ask again (its log has the reason)", 7)


@dataclass(eq=False)
class BlockedTurn:
    """The first turn that waits for the memory of a busy engine, why, and how many later turns have started since."""

    turn: QueuedTurn
    missing: str
    overtaking_turns: int = 0

    def may_be_overtaken(self) -> bool:
        """Whether a later turn may start now. Counts it if so."""
        self.overtaking_turns += 1
        return self.overtaking_turns <= MAX_OVERTAKING_TURNS


class TurnQueue:
    def __init__(self, loader: EngineLoader, emit: Callable[[TurnEvent], None]) -> None:
        self._emit, self._changed = emit, Condition()
        self._waiting: list[Queued] = []  # in the order of arrival
        self._running: list[Running] = []  # the next one first; at most one completion among them
        self.models = ModelLoading(loader, self._changed, self._emit_loading, self._fail_waiting_turns)
        self._blocked: BlockedTurn | None = None
        self._notified = WeakSet[QueuedTurn]()  # turns whose clients know that they wait for other answers
        self._current_step: tuple[str, float] = ("", 0.0)  # the turn whose step is computed, and since when

    def enqueue(self, work: Queued) -> None:
        """Queue work. A completion without loaded models ends at once, says why, and the models start to load."""
        with self._changed:
            if isinstance(work, QueuedTurn) or self.models.is_loaded(work.profile):
                self._waiting.append(work)
                if isinstance(work, QueuedTurn) and (progress := self.models.progress):
                    self._emit(TurnEvent(work.id, progress))
            else:
                self.models.request_preload(work.profile)
                missing = self.models.missing_room(work.profile)
                self._emit(TurnEvent(work.id, Finished(MODEL_LOADING, Totals(), missing)))
            self._changed.notify()

    def cancel(self, id: str) -> None:
        """Cancel a turn or a completion: a waiting one at once, a running one within one step."""
        with self._changed:
            for running in self._running:
                if running.work.id == id:
                    running.work.cancelled.set()
            for each in [each for each in self._waiting if each.id == id]:
                self._waiting.remove(each)
                self._emit(TurnEvent(id, Finished("cancelled", Totals())))

    def reset(self) -> None:
        """End all turns and completions with an error and forget the models, after the engine thread has died."""
        with self._changed:
            ended = [*(each.work for each in self._running), *self._waiting]
            self._running.clear()
            self._waiting.clear()
            self.models.forget_all()
        for each in ended:
            self._emit(TurnEvent(each.id, ENGINE_DIED))

    def stop(self) -> None:
        """Stop the thread within one step."""
        with self._changed:
            self.models.stop_requested.set()
            for running in self._running:
                running.work.cancelled.set()
            self._changed.notify()

    def step_seconds(self, turn_id: str) -> float:
        """For how long one step of this turn has been computed; 0 while none is."""
        id, began_at = self._current_step
        return time.monotonic() - began_at if id == turn_id else 0.0

    def run(self) -> None:
        while not self.models.stop_requested.is_set():
            self._wait_for_work()
            if self._waiting:
                self.models.engines.close_outdated(self._busy_engines())
            self.models.do_pending_work(is_busy=bool(self._running))
            self._start_completion()
            self._start_turns()
            for _ in range(STEPS_OF_COMPLETION):
                if completion := self._running_completion:
                    self._step(completion)
            if turns := self._running_turns:
                turns[0].set_load(len(turns) - 1, is_urgent=self._running_completion is not None)
                self._step(turns[0])
            self.models.engines.refresh_memory()
        for each in self._running:
            each.events.close()
        self.models.close_all()

    def _wait_for_work(self) -> None:
        """Wait, and give free memory back once it is quiet: not before, because an answer may follow at once."""
        with self._changed:
            is_quiet = not self._changed.wait_for(self._has_work, QUIET_SECONDS)
        if is_quiet:
            gc.collect()  # Python would wait for hundreds of answers: 20 MiB for each hundred
            release_free_memory()
            with self._changed:
                self._changed.wait_for(self._has_work)

    def _has_work(self) -> bool:
        return bool(self.models.stop_requested.is_set() or self._running or self._waiting or self.models.has_work)

    @property
    def _running_turns(self) -> list[Running]:
        return [each for each in self._running if not each.is_completion]

    @property
    def _running_completion(self) -> Running | None:
        return next((each for each in self._running if each.is_completion), None)

    @property
    def _waiting_turns(self) -> list[QueuedTurn]:
        with self._changed:
            return [each for each in self._waiting if isinstance(each, QueuedTurn)]

    def _busy_engines(self) -> list[LoadedEngine]:
        return [each.engine for each in self._running]

    def _first_turns(self) -> list[QueuedTurn]:
        """The first waiting turn of each session without a running one, in the order of arrival."""
        with self._changed:
            works = [each.work for each in self._running]
            busy, first = {each.session_id for each in works if isinstance(each, QueuedTurn)}, dict[str, QueuedTurn]()
            for turn in self._waiting_turns:
                if turn.session_id not in busy:
                    first.setdefault(turn.session_id, turn)
        return list(first.values())

    def _start_turns(self) -> None:
        """Start the first turn of each session that waits, in the order of their arrival, as far as engines have room.

        A turn whose engine finds no room beside the busy ones is overtaken by a few turns for those and no more, so
        that they become free.
        """
        blocked, self._blocked = self._blocked, None
        waiting = self._waiting_turns
        for turn in self._first_turns():
            if self.models.stop_requested.is_set():
                return
            loaded = self.models.engines.find(turn.profile)
            if loaded is None and self._blocked is None and turn in self._waiting:  # not cancelled meanwhile
                loaded = self._load_or_block(turn, blocked)
            if loaded is None or not loaded.has_free_slot(self._busy_engines()):
                continue
            if self._blocked is None or self._blocked.may_be_overtaken():
                self._start(turn, loaded)
        for turn in waiting:
            if turn in self._waiting and turn not in self._notified:
                self._notified.add(turn)
                others = len(self._running_turns)
                self._emit(TurnEvent(turn.id, Waiting(f"{others} other answers" if others > 1 else "another answer")))

    def _load_or_block(self, turn: QueuedTurn, blocked: BlockedTurn | None) -> LoadedEngine | None:
        """Load the engine of a turn; where busy engines leave no room, block the turn and say why."""
        room = self.models.find_room(turn.profile, self._busy_engines())
        if room is None:
            return None
        if not room.missing:
            return self.models.load(turn.profile, room.to_close)
        if blocked is None or blocked.turn is not turn:
            blocked = BlockedTurn(turn, room.missing)
            self._notified.add(turn)
            self._emit(TurnEvent(turn.id, Waiting(f"memory: {room.missing}")))
        self._blocked = blocked
        return None

    def _start_completion(self) -> None:
        """Start the oldest waiting completion. If its models were unloaded, it ends."""
        with self._changed:
            first = next((each for each in self._waiting if isinstance(each, QueuedCompletion)), None)
            if first is None or self._running_completion:
                return
            loaded = self.models.engines.find(first.profile)
            if loaded is None:
                self._waiting.remove(first)
                self._emit(TurnEvent(first.id, Finished(MODEL_LOADING, Totals())))
            else:
                self._start(first, loaded)

    def _start(self, work: Queued, loaded: LoadedEngine) -> None:
        with self._changed:
            if work in self._waiting:
                self._waiting.remove(work)
                loading_seconds = self.models.loading_seconds_since(work.asked_at)
                running = Running(work, loaded, self.models.engines.completer, loading_seconds)
                self._running.insert(sum(each.is_new for each in self._running), running)

    def _step(self, running: Running) -> None:
        """The next event that took computing, with those before it. The work then waits for all others."""
        id, running.is_new = running.work.id, False
        self.models.engines.use(running.engine)
        self._current_step = id, time.monotonic()
        while not (step := next_step(running.events)).is_computed:
            self._emit(TurnEvent(id, step.event))
        self._current_step = "", 0.0
        if not step.is_last:
            with self._changed:
                self._running.append(self._running.pop(self._running.index(running)))
            if step.event != NO_OUTPUT_YET:
                self._emit(TurnEvent(id, step.event))
            return
        completed_turn = running.finish(step.event)
        with self._changed:
            self._running.remove(running)
        if running.is_completion and step.has_crashed:
            running.engine.close_completer()
        self.models.engines.refresh_memory(max_age_seconds=0.0)
        self._emit(TurnEvent(id, step.event, completed_turn))

    def _emit_loading(self, event: Event) -> None:
        """Emit an event to all waiting turns."""
        for turn in self._waiting_turns:
            self._emit(TurnEvent(turn.id, event))

    def _fail_waiting_turns(self, profile: Profile, failed: Failed) -> None:
        key_of = self.models.engines.loader.engine_key
        with self._changed:
            failing = [turn for turn in self._waiting_turns if key_of(turn.profile) == key_of(profile)]
            self._waiting = [each for each in self._waiting if each not in failing]
        for turn in failing:
            self._emit(TurnEvent(turn.id, failed))
