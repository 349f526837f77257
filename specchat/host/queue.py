"""The engine thread: turns wait here and run interleaved, one event each in round robin.

Turns of one session run one after another; sessions alternate at step boundaries. Only `run` uses the engine, on one
thread. All other methods are thread-safe and return at once: a waiting turn is cancelled even while a model loads.

Completions are urgent, because an editor's user types on. A completion never waits for a model to load, starts before
any waiting turn, and takes several steps per round.

Turns start in the order of their arrival. A turn whose engine finds no room beside the busy ones is overtaken by a few
turns for those and no more, so that they become free. Only a question closes an engine that was used a moment ago;
an opened session or a completion waits until it is idle, so that two clients do not load their models in turns.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Condition
from threading import Event as Flag
from typing import Any

from specchat.chat.events import NO_OUTPUT_YET, Event, Failed, Finished, LoadingProgress, Notice, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.errors import SpecchatError
from specchat.host.allocator import release_free_memory
from specchat.host.engine_interface import Completer, Engine, EngineLoader, EngineSession, KVKeeper
from specchat.host.loaded_engines import LoadedEngine, LoadedEngines, Room

log = logging.getLogger(__name__)

COMPLETION_STEPS_PER_ROUND = 4  # a turn takes one
MAX_OVERTAKING_TURNS = 4  # that start before an earlier one, which waits for the memory of another engine
MAX_IDLE_SESSION_BYTES = 512 * 2**20  # what idle conversations may hold; a dropped one is prefilled again
MEMORY_REFRESH_SECONDS = 1.0
QUIET_SECONDS = 0.5  # without work, after which free memory goes back to the system
PRELOAD_IDLE_SECONDS = 60.0  # an engine is not closed for a session without a question before it was idle for so long
ENGINE_DIED = Failed("the engine stopped unexpectedly and starts again; ask again (its log has the reason)", 7)
KV_CACHE = "kv_cache"  # a component of memory that the engine counts for all its conversations
MODEL_NOT_LOADED = "model_loading"  # finish reason of a completion without a loaded model


@dataclass(frozen=True)
class QueuedTurn:
    id: str
    session_id: str
    request: Request
    cancelled: Flag = field(default_factory=Flag)
    arrival: int = field(default_factory=count().__next__)


@dataclass(frozen=True)
class QueuedCompletion:
    """A waiting or running completion; the session selects the models."""

    id: str
    session_id: str
    fim_request: FimRequest
    cancelled: Flag = field(default_factory=Flag)


@dataclass(frozen=True)
class TurnEvent:
    """An event of a turn. The last one has the engine's turn, or None if the engine does not keep it."""

    session_id: str
    turn_id: str | None
    event: Event
    completed_turn: Any = None


@dataclass(frozen=True)
class ModelsState:
    """Whether the models of a session are "ready", "loading", "unloaded", or "waiting" for memory, and for what."""

    state: str
    reason: str = ""


@dataclass(frozen=True)
class WaitingReason:
    """Why no event of a turn comes, in words for the user, and for how long this has been so."""

    reason: str
    seconds: float


@dataclass(eq=False)
class BlockedTurn:
    """The first turn that waits for the memory of a busy engine, why, and how many later turns have started since."""

    turn: QueuedTurn
    missing: str
    overtaking_turns: int = 0


@dataclass(eq=False)
class SessionState:
    profile: Any
    turns: list[Any]
    kv_name: str = ""  # of the file that keeps its KV cache; "" for a private conversation
    engine: LoadedEngine | None = None  # of `engine_session`
    engine_session: EngineSession | None = None
    engine_session_profile: Any = None
    has_rewritten_turns: bool = False  # since the last turn of `engine_session`
    last_used_at: float = 0.0
    waiting_turns: deque[QueuedTurn] = field(default_factory=deque)
    running_turn: QueuedTurn | None = None
    events: Iterator[Event] = iter(())

    def has_turn(self, turn_id: str) -> bool:
        turns = (*self.waiting_turns, *([self.running_turn] if self.running_turn else []))
        return any(turn.id == turn_id for turn in turns)


class TurnQueue:
    def __init__(self, engine_loader: EngineLoader, emit: Callable[[TurnEvent], None]) -> None:
        self.state = "unloaded"  # or "loading", "ready"
        self._engine_loader, self._emit = engine_loader, emit
        self._engines = LoadedEngines(engine_loader)
        self._sessions: dict[str, SessionState] = {}
        self._waiting_completions: deque[QueuedCompletion] = deque()
        self._running_completion: QueuedCompletion | None = None
        self._completion_engine: LoadedEngine | None = None
        self._completion_events: Iterator[Event] = iter(())
        self._blocked_turn: BlockedTurn | None = None
        self._sessions_to_close: list[EngineSession] = []
        self._profiles_to_preload: dict[Any, Any] = {}  # by key
        self._missing_room: dict[Any, str] = {}  # by key: why the last preload had to wait
        self._is_unload_requested = False
        self._stop_requested = Flag()
        self._changed = Condition()
        self._busy_with, self._busy_since = "", 0.0  # the current step of the engine thread
        self._memory_bytes: dict[str, int] = {}
        self._memory_refreshed_at = 0.0

    def open_session(self, session_id: str, profile: Any, turns: Sequence[Any], kv_name: str = "") -> None:
        """Add a session, or change the profile of a known one, and start loading the models.

        With a `kv_name`, it continues from rows on disk, and its rows are kept there when its models are closed.
        """
        with self._changed:
            session = self._sessions.setdefault(session_id, SessionState(profile, list(turns), kv_name))
            session.profile = profile
            self._request_preload(profile)

    def enqueue(self, turn: QueuedTurn) -> None:
        with self._changed:
            self._sessions[turn.session_id].waiting_turns.append(turn)
            self._changed.notify()

    def enqueue_completion(self, completion: QueuedCompletion) -> None:
        """Queue a completion. Without loaded models it ends at once, and the models start to load."""
        with self._changed:
            profile = self._sessions[completion.session_id].profile
            if self._engines.find(profile) is None:
                self._request_preload(profile)
                self._emit(TurnEvent(completion.session_id, completion.id, self._not_loaded(profile)))
            else:
                self._waiting_completions.append(completion)
            self._changed.notify()

    def _request_preload(self, profile: Any) -> None:
        self._profiles_to_preload[self._engine_loader.engine_key(profile)] = profile
        self._changed.notify()

    def _not_loaded(self, profile: Any) -> Finished:
        """The end of a completion without its models: they load, or wait for memory, and the explanation says so."""
        missing = self._missing_room.get(self._engine_loader.engine_key(profile), "")
        return Finished(MODEL_NOT_LOADED, Totals(), missing)

    def cancel(self, turn_id: str) -> None:
        """Cancel a turn or a completion: a waiting one at once, a running one within one step."""
        with self._changed:
            sessions = self._sessions.values()
            for running in (self._running_completion, *(session.running_turn for session in sessions)):
                if running and running.id == turn_id:
                    running.cancelled.set()
            for waiting in (self._waiting_completions, *(session.waiting_turns for session in sessions)):
                for each in [each for each in waiting if each.id == turn_id]:
                    waiting.remove(each)  # pyright: ignore[reportArgumentType]
                    self._emit(TurnEvent(each.session_id, turn_id, Finished("cancelled", Totals())))

    def rewind(self, session_id: str, count: int, replacement_turns: Sequence[Any] = ()) -> None:
        """Replace the last turns of a session that has no waiting or running turn."""
        with self._changed:
            session = self._sessions[session_id]
            assert session.running_turn is None and not session.waiting_turns
            session.turns = [*session.turns[: max(0, len(session.turns) - count)], *replacement_turns]
            session.has_rewritten_turns = True

    def close_session(self, session_id: str) -> None:
        """Remove a session that has no waiting or running turn, and free its memory."""
        with self._changed:
            session = self._sessions.pop(session_id, None)
            if session and session.engine_session:
                self._sessions_to_close.append(session.engine_session)
                self._changed.notify()

    def forget_kv(self, session_id: str) -> None:
        """Keep no rows of this session on disk from now on."""
        with self._changed:
            if session := self._sessions.get(session_id):
                session.kv_name = ""
                _keep_kv(session.engine_session, "")

    def unload(self) -> None:
        """Unload the models as soon as nothing runs."""
        with self._changed:
            self._is_unload_requested = True
            self._changed.notify()

    def reset(self) -> None:
        """End all turns and completions with an error and forget the models, after the engine thread has died."""
        with self._changed:
            ended: list[QueuedTurn | QueuedCompletion] = list(self._waiting_completions)
            ended += [self._running_completion] if self._running_completion else []
            for session in self._sessions.values():
                ended += [*([session.running_turn] if session.running_turn else []), *session.waiting_turns]
                session.running_turn, session.engine_session, session.events = None, None, iter(())
                session.waiting_turns.clear()
            self._waiting_completions.clear()
            self._running_completion, self._completion_engine, self._completion_events = None, None, iter(())
            for loaded in self._engines:
                self._engines.remove(loaded)
            self.state, self._memory_bytes = "unloaded", {}
            self._profiles_to_preload.clear()
            self._sessions_to_close.clear()
        for each in ended:
            self._emit(TurnEvent(each.session_id, each.id, ENGINE_DIED))

    def stop(self) -> None:
        """Stop the thread within one step."""
        with self._changed:
            self._stop_requested.set()
            turns = (session.running_turn for session in self._sessions.values())
            for running in (self._running_completion, *turns):
                if running:
                    running.cancelled.set()
            self._changed.notify()

    def is_loaded(self, profile: Any) -> bool:
        """Whether the models of a profile are in memory. Thread-safe."""
        return self._engines.find(profile) is not None

    def models_state(self, session_id: str, *, requests_loading: bool = False) -> ModelsState:
        """The state of the models of a session; starts loading them on request. Thread-safe."""
        with self._changed:
            profile = self._sessions[session_id].profile
            key = self._engine_loader.engine_key(profile)
            if self.is_loaded(profile):
                return ModelsState("ready")
            if missing := self._missing_room.get(key, ""):
                if requests_loading:
                    self._request_preload(profile)
                return ModelsState("waiting", missing)
            is_loading = key in self._profiles_to_preload or self.state == "loading"
            if requests_loading and not is_loading:
                self._request_preload(profile)
            return ModelsState("loading" if is_loading or requests_loading else "unloaded")

    @property
    def waiting_count(self) -> int:
        return sum(len(session.waiting_turns) for session in list(self._sessions.values()))

    def memory_bytes(self) -> dict[str, int]:
        """Memory use in bytes, by component, as of the last second; empty without loaded models. Thread-safe."""
        return self._memory_bytes

    def variants(self, session_id: str) -> frozenset[str] | None:
        """The drafters that can run in a session; None while its models are not loaded. Thread-safe."""
        loaded = self._engines.find(self._sessions[session_id].profile)
        return None if loaded is None else loaded.engine.variants

    def waiting_reason(self, turn_id: str) -> WaitingReason:
        """Why nothing of this turn comes at the moment. Thread-safe."""
        with self._changed:
            sessions = list(self._sessions.values())
            own = next((each for each in sessions if each.has_turn(turn_id)), None)
            others = [each for each in sessions if each.running_turn and each is not own]
            reason, seconds, blocked = self._busy_with, time.monotonic() - self._busy_since, self._blocked_turn
        if self.state != "loading" and blocked is not None and blocked.turn.id == turn_id:
            reason = blocked.missing
        elif self.state != "loading" and own is not None and own.running_turn is None and others:
            count = "another answer comes" if len(others) == 1 else f"{len(others)} other answers come"
            reason = f"{count} first in the engine process"
        return WaitingReason(reason, seconds)

    def run(self) -> None:
        while not self._stop_requested.is_set():
            self._wait_for_work()
            self._do_pending_work()
            self._start_completion()
            self._start_waiting_turns()
            self._step_completion()
            running = self._running_sessions()
            for session in running:
                if session.engine_session:
                    session.engine_session.set_load(len(running) - 1, is_urgent=self._running_completion is not None)
                self._step_turn(session)
            if time.monotonic() - self._memory_refreshed_at > MEMORY_REFRESH_SECONDS:
                self._refresh_memory()
        self._close_engines()

    def _wait_for_work(self) -> None:
        """Wait, and give free memory back once it is quiet: not before, because an answer may follow at once."""
        with self._changed:
            is_quiet = not self._changed.wait_for(self._has_work, QUIET_SECONDS)
        if is_quiet:
            release_free_memory()
            with self._changed:
                self._changed.wait_for(self._has_work)

    def _refresh_memory(self) -> None:
        """Add up what engines and conversations hold. On the engine thread, because both change only there."""
        total = Counter(self._engines.memory_bytes())
        for session in list(self._sessions.values()):
            held = session.engine_session.memory_bytes() if session.engine_session else {}
            total.update({name: count for name, count in held.items() if name != KV_CACHE})
        self._memory_bytes, self._memory_refreshed_at = dict(total), time.monotonic()

    def _drop_idle_engine_sessions(self) -> None:
        """Keep the newest idle conversations in memory, up to the limit of bytes, and at least one of them."""
        held_bytes = 0
        idle = [each for each in list(self._sessions.values()) if each.engine_session and not each.running_turn]
        for number, session in enumerate(sorted(idle, key=lambda each: each.last_used_at, reverse=True)):
            assert session.engine_session is not None
            held_bytes += sum(session.engine_session.memory_bytes().values())
            if number and held_bytes > MAX_IDLE_SESSION_BYTES:
                self._close_engine_session(session)

    def _running_sessions(self) -> list[SessionState]:
        return [session for session in list(self._sessions.values()) if session.running_turn]

    def _busy_engines(self) -> list[LoadedEngine]:
        used = [session.engine for session in self._running_sessions()]
        return [each for each in (*used, self._completion_engine) if each is not None]

    def _has_work(self) -> bool:
        return bool(
            self._stop_requested.is_set()
            or any(session.running_turn or session.waiting_turns for session in self._sessions.values())
            or self._waiting_completions
            or self._running_completion
            or self._sessions_to_close
            or self._is_unload_requested
            or self._profiles_to_preload
        )

    def _do_pending_work(self) -> None:
        is_busy = bool(self._busy_engines())
        with self._changed:
            sessions, self._sessions_to_close = self._sessions_to_close, []
            profiles = list(self._profiles_to_preload.items())
            is_unloading, self._is_unload_requested = self._is_unload_requested and not is_busy, False
        for session in sessions:
            _close(session)
        if is_unloading:
            self._close_engines()
        for key, profile in profiles:
            if not is_unloading:
                self._preload(profile, is_busy=is_busy)
            self._profiles_to_preload.pop(key, None)  # until now it counts as loading

    def _preload(self, profile: Any, *, is_busy: bool) -> None:
        """Load the models of a profile before a question needs them, unless this disturbs anybody."""
        key = self._engine_loader.engine_key(profile)
        if self._engines.find(profile) is not None or self._stop_requested.is_set():
            return
        if is_busy:
            self._missing_room[key] = f"{self._engine_loader.describe(profile)} is loaded when the running answer ends"
            return
        room = self._find_room(profile, (), PRELOAD_IDLE_SECONDS)
        self._missing_room[key] = room.missing if room else ""
        if room and not room.missing:
            self._load_engine(profile, room.to_close)

    def _find_room(self, profile: Any, busy: Sequence[LoadedEngine], min_idle_seconds: float = 0.0) -> Room | None:
        """Plan the memory for an engine; None when this fails, which fails the turns that need it."""
        try:
            return self._engines.room_for(profile, busy, min_idle_seconds)
        except SpecchatError as error:
            self._fail_waiting_turns(profile, Failed.from_error(error))
        except Exception as error:  # the edge, as in _load_engine
            log.exception("planning failed")
            self._fail_waiting_turns(profile, Failed(f"the model could not be loaded: {_one_line(error)}", 7))
        return None

    def _start_waiting_turns(self) -> None:
        """Start the first waiting turn of every session without a running one, in the order of arrival."""
        with self._changed:
            waiting = [each for each in self._sessions.values() if each.waiting_turns and not each.running_turn]
            waiting.sort(key=lambda session: session.waiting_turns[0].arrival)
        blocked, self._blocked_turn = self._blocked_turn, None
        for session in waiting:
            if self._stop_requested.is_set():
                return
            loaded = self._engines.find(session.profile)
            if loaded is None and self._blocked_turn is None:
                loaded = self._load_or_block(session, blocked)
            if loaded is not None and self._has_free_slot(loaded) and self._may_overtake():
                self._start_turn(session, loaded)

    def _load_or_block(self, session: SessionState, blocked: BlockedTurn | None) -> LoadedEngine | None:
        """Load the engine of a session; where busy engines leave no room, block its turn and say why."""
        with self._changed:
            if not session.waiting_turns:
                return None
            turn = session.waiting_turns[0]
        if (room := self._find_room(session.profile, self._busy_engines())) is None:
            return None
        if not room.missing:
            return self._load_engine(session.profile, room.to_close)
        if blocked is None or blocked.turn is not turn:
            blocked = BlockedTurn(turn, room.missing)
            self._emit(TurnEvent(turn.session_id, turn.id, Notice(room.missing)))
        self._blocked_turn = blocked
        return None

    def _may_overtake(self) -> bool:
        """Whether a turn may start now, although an earlier one waits for memory. Counts it if so."""
        if self._blocked_turn is None:
            return True
        self._blocked_turn.overtaking_turns += 1
        return self._blocked_turn.overtaking_turns <= MAX_OVERTAKING_TURNS

    def _has_free_slot(self, loaded: LoadedEngine) -> bool:
        return self._busy_engines().count(loaded) < loaded.engine.max_concurrent_turns

    def _start_completion(self) -> None:
        """Start the oldest waiting completion. If the models were unloaded, it ends at once."""
        with self._changed:
            if not self._waiting_completions or self._running_completion:
                return
            session = self._sessions.get(self._waiting_completions[0].session_id)
            loaded = self._engines.find(session.profile) if session else None
            if loaded is not None and not self._has_free_slot(loaded):
                return
            self._running_completion, self._completion_engine = self._waiting_completions.popleft(), loaded
            self._completion_events = self._complete(self._running_completion, loaded)

    def _complete(self, completion: QueuedCompletion, loaded: LoadedEngine | None) -> Iterator[Event]:
        if loaded is None:
            yield Finished(MODEL_NOT_LOADED, Totals())
            return
        completer = self._engines.completer(loaded)
        yield from completer.complete(completion.fim_request, completion.cancelled)

    def _step_completion(self) -> None:
        for _ in range(COMPLETION_STEPS_PER_ROUND):
            completion, loaded = self._running_completion, self._completion_engine
            if completion is None:
                return
            self._set_busy("the engine process computes a completion")
            if loaded is not None:
                self._engines.use(loaded)
            step = _next_event(self._completion_events)
            if isinstance(step.event, Finished | Failed):
                self._completion_events, self._running_completion, self._completion_engine = iter(()), None, None
            if step.has_crashed and loaded is not None:
                self._close_completer(loaded)
            self._emit(TurnEvent(completion.session_id, completion.id, step.event))

    def _start_turn(self, session: SessionState, loaded: LoadedEngine) -> None:
        with self._changed:
            if session.waiting_turns:
                if session.engine is not loaded:
                    self._close_engine_session(session)
                session.engine, session.running_turn = loaded, session.waiting_turns.popleft()
                session.events = self._run_turn(session, loaded.engine, session.running_turn)

    def _run_turn(self, session: SessionState, engine: Engine, turn: QueuedTurn) -> Iterator[Event]:
        """The events of a turn. Creates an engine session if there is none for this profile."""
        has_rewritten_turns, session.has_rewritten_turns = session.has_rewritten_turns, False
        if session.engine_session is None or session.engine_session_profile != session.profile:
            self._close_engine_session(session)
            session.engine_session = engine.create_session(tuple(session.turns), session.profile)
            session.engine_session_profile = session.profile
            _keep_kv(session.engine_session, session.kv_name)
        elif has_rewritten_turns:
            session.engine_session.turns = list(session.turns)
        yield from session.engine_session.ask(turn.request, turn.cancelled)

    def _step_turn(self, session: SessionState) -> None:
        turn, loaded = session.running_turn, session.engine
        assert turn is not None and loaded is not None
        self._set_busy("the engine process computes one step of an answer")
        self._engines.use(loaded)
        step = _next_event(session.events)
        event = step.event
        if step.has_crashed:
            _keep_kv(session.engine_session, "")
            self._close_engine_session(session)
        if isinstance(event, Finished | Failed):
            self._finish_turn(session, turn, event)
        elif event != NO_OUTPUT_YET:
            self._emit(TurnEvent(turn.session_id, turn.id, event))

    def _finish_turn(self, session: SessionState, turn: QueuedTurn, event: Event) -> None:
        session.events = iter(())  # frees the generator and its KV cache
        completed_turn = None
        with self._changed:
            if session.engine_session and len(session.engine_session.turns) > len(session.turns):
                completed_turn = session.engine_session.turns[-1]
                session.turns = list(session.engine_session.turns)
            session.running_turn, session.last_used_at = None, time.monotonic()
        self._drop_idle_engine_sessions()
        self._refresh_memory()
        self._emit(TurnEvent(turn.session_id, turn.id, event, completed_turn))

    def _load_engine(self, profile: Any, to_close: Sequence[LoadedEngine]) -> LoadedEngine | None:
        for each in to_close:
            log.info("unloading %s for %s", *map(self._engine_loader.describe, (each.profile, profile)))
            self._close_engine(each)
        self.state = "loading"
        self._set_busy("the engine process loads a model")
        loaded = None
        try:
            engine = self._engine_loader.load(profile, self._emit_loading, self._stop_requested)
            loaded = self._engines.add(profile, engine)
        except SpecchatError as error:
            self._fail_waiting_turns(profile, Failed.from_error(error))
        except Exception as error:  # the edge: a model that cannot be loaded must not end the host
            log.exception("loading failed")
            self._fail_waiting_turns(profile, Failed(f"the model could not be loaded: {_one_line(error)}", 7))
        self.state = "ready" if len(self._engines) else "unloaded"
        self._refresh_memory()
        return loaded

    def _emit_loading(self, event: Event) -> None:
        """Emit an event to all waiting turns, and to sessions without one."""
        if isinstance(event, LoadingProgress):
            self._busy_with = f"the engine process is {event.text.removesuffix('…')}"
        with self._changed:
            turn_ids = {id: [turn.id for turn in each.waiting_turns] for id, each in self._sessions.items()}
        for session_id, waiting in turn_ids.items():
            for turn_id in waiting or [None]:
                self._emit(TurnEvent(session_id, turn_id, event))

    def _set_busy(self, step: str) -> None:
        self._busy_with, self._busy_since = step, time.monotonic()

    def _fail_waiting_turns(self, profile: Any, failed: Failed) -> None:
        with self._changed:
            key_of = self._engine_loader.engine_key
            sessions = [each for each in self._sessions.values() if key_of(each.profile) == key_of(profile)]
            turns = [turn for session in sessions for turn in session.waiting_turns]
            for session in sessions:
                session.waiting_turns.clear()
        for turn in turns:
            self._emit(TurnEvent(turn.session_id, turn.id, failed))

    def _close_engine_session(self, state: SessionState) -> None:
        session, state.engine_session = state.engine_session, None
        if session:
            _close(session)

    def _close_completer(self, loaded: LoadedEngine) -> None:
        completer, loaded.completer = loaded.completer, None
        if completer:
            _close(completer)

    def _close_engine(self, loaded: LoadedEngine) -> None:
        """Close an engine and everything that lives in it. No turn of it runs, except at the end of the thread."""
        if self._completion_engine is loaded:
            self._completion_events = iter(())
        self._close_completer(loaded)
        for session in list(self._sessions.values()):
            if session.engine is loaded:
                session.events = iter(())
                self._close_engine_session(session)
                session.engine = None
        self._engines.remove(loaded)
        _close(loaded.engine)

    def _close_engines(self) -> None:
        for loaded in self._engines:
            self._close_engine(loaded)
        self.state = "unloaded"
        self._refresh_memory()


@dataclass(frozen=True)
class _StepResult:
    """The next event of a generator; `has_crashed` after an unexpected exception."""

    event: Event
    has_crashed: bool = False


def _next_event(events: Iterator[Event]) -> _StepResult:
    """Run one step. An exception becomes a Failed event, so that it cannot end the host."""
    try:
        return _StepResult(next(events))
    except SpecchatError as error:
        return _StepResult(Failed.from_error(error))
    except StopIteration:
        return _StepResult(Failed("the engine ended an answer without a final event"))
    except Exception as error:  # the edge
        log.exception("a turn failed")
        return _StepResult(Failed(f"the engine failed: {_one_line(error)}; see the log of the host"), has_crashed=True)


def _keep_kv(session: EngineSession | None, name: str) -> None:
    if isinstance(session, KVKeeper):
        session.keep_kv_as(name)


def _close(resource: EngineSession | Engine | Completer) -> None:
    try:
        resource.close()
    except Exception:  # the edge: a failing close must not end the host
        log.exception("could not close %r", resource)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
