"""The engine thread: turns wait here and are stepped in rotation, one event each.

Requests of one session wait for each other, sessions take turns at step boundaries. Everything that touches the engine
happens in `run`, on one thread; every other method may be called from anywhere and returns at once. A turn that has not
begun is cancelled right here, which is why a cancel is quick while a model loads.

A gap in somebody's text is urgent: the person who types has typed on a second later. It never waits for a model to be
loaded, begins before any turn that waits, and takes several steps while others take one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Condition
from threading import Event as Flag
from typing import Any

from specchat.chat.events import Event, Failed, Finished, TextDelta, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.errors import SpecchatError
from specchat.host.engine_interface import Completer, Engine, EngineLoader, EngineSession

log = logging.getLogger(__name__)

COMPLETION_STEPS_PER_ROUND = 4  # of a gap, while every turn takes one
NO_OUTPUT_YET = TextDelta("")  # from an answer that is waited for, so that the others have their turn
MODEL_NOT_LOADED = "loading"  # the reason of a gap that could not wait for a model


@dataclass(frozen=True)
class QueuedTurn:
    """A question that waits for its answer, or is being answered."""

    id: str
    session_id: str
    request: Request
    cancelled: Flag = field(default_factory=Flag)


@dataclass(frozen=True)
class QueuedCompletion:
    """A gap that waits to be filled, or is being filled; the session says with which models."""

    id: str
    session_id: str
    fim_request: FimRequest
    cancelled: Flag = field(default_factory=Flag)


@dataclass(frozen=True)
class TurnEvent:
    """An event of a turn; with the last one comes the turn as the session keeps it, None when it keeps none."""

    session_id: str
    turn_id: str | None
    event: Event
    completed_turn: Any = None


@dataclass(eq=False)
class SessionState:
    """One session as the engine thread sees it."""

    profile: Any
    turns: list[Any]
    engine_session: EngineSession | None = None
    engine_session_profile: Any = None  # the profile that the engine's session was made with
    has_rewritten_turns: bool = False  # since the engine's session was last asked
    waiting_turns: deque[QueuedTurn] = field(default_factory=deque)
    running_turn: QueuedTurn | None = None
    events: Iterator[Event] = iter(())


class TurnQueue:
    """The turns of every session, and the engine that answers them."""

    def __init__(self, engine_loader: EngineLoader, emit: Callable[[TurnEvent], None]) -> None:
        self.state = "cold"  # then loading, ready
        self._engine_loader, self._emit = engine_loader, emit
        self._engine: Engine | None = None
        self._engine_key: Any = None
        self._sessions: dict[str, SessionState] = {}
        self._waiting_completions: deque[QueuedCompletion] = deque()
        self._running_completion: QueuedCompletion | None = None
        self._completion_events: Iterator[Event] = iter(())
        self._completer: Completer | None = None
        self._sessions_to_close: list[EngineSession] = []
        self._profile_to_preload: Any = None
        self._is_unload_requested = False
        self._stop_requested = Flag()
        self._changed = Condition()

    def open_session(self, session_id: str, profile: Any, turns: Sequence[Any]) -> None:
        """Get to know a session and begin to load its models; one that is known only changes its profile."""
        with self._changed:
            lane = self._sessions.setdefault(session_id, SessionState(profile, list(turns)))
            lane.profile = profile
            self._profile_to_preload = profile
            self._changed.notify()

    def enqueue(self, turn: QueuedTurn) -> None:
        """Let a turn wait for its answer."""
        with self._changed:
            self._sessions[turn.session_id].waiting_turns.append(turn)
            self._changed.notify()

    def enqueue_completion(self, completion: QueuedCompletion) -> None:
        """Let a gap be filled next; without the models of its session it is answered at once, and they are loaded."""
        with self._changed:
            profile = self._sessions[completion.session_id].profile
            if self._engine is None or self._engine_key != self._engine_loader.engine_key(profile):
                self._profile_to_preload = profile
                self._emit(TurnEvent(completion.session_id, completion.id, Finished(MODEL_NOT_LOADED, Totals())))
            else:
                self._waiting_completions.append(completion)
            self._changed.notify()

    def cancel(self, turn_id: str) -> None:
        """End a turn or a gap within one step; at once when it has not begun."""
        with self._changed:
            if self._running_completion and self._running_completion.id == turn_id:
                self._running_completion.cancelled.set()
            for gap in [gap for gap in self._waiting_completions if gap.id == turn_id]:
                self._waiting_completions.remove(gap)
                self._emit(TurnEvent(gap.session_id, turn_id, Finished("cancelled", Totals())))
            for lane in self._sessions.values():
                if lane.running_turn and lane.running_turn.id == turn_id:
                    lane.running_turn.cancelled.set()
                for turn in [turn for turn in lane.waiting_turns if turn.id == turn_id]:
                    lane.waiting_turns.remove(turn)
                    self._emit(TurnEvent(turn.session_id, turn_id, Finished("cancelled", Totals())))

    def rewind(self, session_id: str, count: int, replacement_turns: Sequence[Any] = ()) -> None:
        """Forget the last turns of a session that is not answering, and put these in their place."""
        with self._changed:
            lane = self._sessions[session_id]
            assert lane.running_turn is None and not lane.waiting_turns
            lane.turns = [*lane.turns[: max(0, len(lane.turns) - count)], *replacement_turns]
            lane.has_rewritten_turns = True

    def close_session(self, session_id: str) -> None:
        """Give back what a session that is not answering holds."""
        with self._changed:
            lane = self._sessions.pop(session_id, None)
            if lane and lane.engine_session:
                self._sessions_to_close.append(lane.engine_session)
                self._changed.notify()

    def unload(self) -> None:
        """Give back the models as soon as nothing is being answered."""
        with self._changed:
            self._is_unload_requested = True
            self._changed.notify()

    def stop(self) -> None:
        """End the thread within one step."""
        with self._changed:
            self._stop_requested.set()
            for busy in [self._running_completion, *(lane.running_turn for lane in self._sessions.values())]:
                if busy:
                    busy.cancelled.set()
            self._changed.notify()

    @property
    def waiting_count(self) -> int:
        """Questions that nobody has begun to answer."""
        return sum(len(lane.waiting_turns) for lane in list(self._sessions.values()))

    def memory_bytes(self) -> dict[str, int]:
        """Bytes by what they hold; nothing when no model is loaded."""
        engine = self._engine
        return engine.memory_bytes() if engine else {}

    def run(self) -> None:
        """The body of the engine thread."""
        while not self._stop_requested.is_set():
            self._wait()
            self._do_pending_work()
            self._start_completion()
            self._start_waiting_turns()
            self._step_completion()
            running = self._running_sessions()
            for lane in running:
                if lane.engine_session:
                    lane.engine_session.set_load(len(running) - 1, is_urgent=self._running_completion is not None)
                self._step_turn(lane)
        self._close_engine()

    def _running_sessions(self) -> list[SessionState]:
        return [lane for lane in list(self._sessions.values()) if lane.running_turn]

    def _has_work(self) -> bool:
        lanes = self._sessions.values()
        return bool(
            self._stop_requested.is_set()
            or any(lane.running_turn or lane.waiting_turns for lane in lanes)
            or self._waiting_completions
            or self._running_completion
            or self._sessions_to_close
            or self._is_unload_requested
            or self._profile_to_preload is not None
        )

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(self._has_work)

    def _do_pending_work(self) -> None:
        """What is done between steps: close sessions, unload, load ahead."""
        with self._changed:
            closing, self._sessions_to_close = self._sessions_to_close, []
            warm, self._profile_to_preload = self._profile_to_preload, None
            is_busy = bool(self._running_sessions() or self._running_completion)
            is_unloading, self._is_unload_requested = self._is_unload_requested and not is_busy, False
        for session in closing:
            _close(session)
        if is_unloading:
            self._close_engine()
        elif warm is not None and self._engine is None:
            self._load_engine(warm)

    def _start_waiting_turns(self) -> None:
        """Start the first turn of every session that is not answering one."""
        for lane in list(self._sessions.values()):
            if lane.running_turn or not lane.waiting_turns or self._stop_requested.is_set():
                continue
            if self._engine is None or self._engine_key != self._engine_loader.engine_key(lane.profile):
                if self._running_sessions() or self._running_completion:
                    continue  # another model answers; this one is loaded when it has finished
                if not self._load_engine(lane.profile):
                    continue
            if self._has_free_slot():
                self._start_turn(lane)

    def _has_free_slot(self) -> bool:
        """Whether one more can be answered next to those that are."""
        busy = len(self._running_sessions()) + (self._running_completion is not None)
        return self._engine is not None and busy < self._engine.max_concurrent_turns

    def _start_completion(self) -> None:
        """Start on the gap that waits longest; one whose models were given back meanwhile is not filled."""
        with self._changed:
            if (
                not self._waiting_completions
                or self._running_completion
                or not (self._has_free_slot() or self._engine is None)
            ):
                return
            self._running_completion = gap = self._waiting_completions.popleft()
            self._completion_events = self._complete(gap)

    def _complete(self, completion: QueuedCompletion) -> Iterator[Event]:
        if self._engine is None:
            yield Finished(MODEL_NOT_LOADED, Totals())
            return
        if self._completer is None:
            self._completer = self._engine_loader.make_completer(self._engine)
        yield from self._completer.complete(completion.fim_request, completion.cancelled)

    def _step_completion(self) -> None:
        for _ in range(COMPLETION_STEPS_PER_ROUND):
            gap = self._running_completion
            if gap is None:
                return
            step = _next_event(self._completion_events)
            if isinstance(step.event, Finished | Failed):
                self._completion_events, self._running_completion = iter(()), None
            if step.has_crashed:
                self._close_completer()
            self._emit(TurnEvent(gap.session_id, gap.id, step.event))

    def _start_turn(self, session: SessionState) -> None:
        with self._changed:
            if session.waiting_turns:
                session.running_turn = session.waiting_turns.popleft()
                session.events = self._run_turn(session, session.running_turn)

    def _run_turn(self, session: SessionState, turn: QueuedTurn) -> Iterator[Event]:
        """The events of a turn, from the session that the engine has of it, or a new one."""
        assert self._engine is not None
        is_rewritten, session.has_rewritten_turns = session.has_rewritten_turns, False
        if session.engine_session is None or session.engine_session_profile != session.profile:
            self._close_engine_session(session)
            session.engine_session = self._engine.create_session(tuple(session.turns), session.profile)
            session.engine_session_profile = session.profile
        elif is_rewritten:
            session.engine_session.turns = list(session.turns)
        yield from session.engine_session.ask(turn.request, turn.cancelled)

    def _step_turn(self, session: SessionState) -> None:
        turn = session.running_turn
        assert turn is not None
        step = _next_event(session.events)
        event = step.event
        if step.has_crashed:
            self._close_engine_session(session)
        if isinstance(event, Finished | Failed):
            self._finish_turn(session, turn, event)
        elif event != NO_OUTPUT_YET:
            self._emit(TurnEvent(turn.session_id, turn.id, event))

    def _finish_turn(self, session: SessionState, turn: QueuedTurn, event: Event) -> None:
        session.events = iter(())  # lets go of the generator, and with it of the cache it holds
        kept = None
        with self._changed:
            if session.engine_session and len(session.engine_session.turns) > len(session.turns):
                kept = session.engine_session.turns[-1]
                session.turns = list(session.engine_session.turns)
            session.running_turn = None
        self._emit(TurnEvent(turn.session_id, turn.id, event, kept))

    def _load_engine(self, profile: Any) -> bool:
        self._close_engine()
        self.state = "loading"
        try:
            self._engine = self._engine_loader.load(profile, self._emit_loading, self._stop_requested)
        except SpecchatError as error:
            self._fail_waiting_turns(profile, Failed.from_error(error))
        except Exception as error:  # the edge: a model that cannot be loaded must not end the host
            log.exception("loading failed")
            self._fail_waiting_turns(profile, Failed(f"the model could not be loaded: {_one_line(error)}", 7))
        self._engine_key = self._engine_loader.engine_key(profile)
        self.state = "ready" if self._engine else "cold"
        return self._engine is not None

    def _emit_loading(self, event: Event) -> None:
        with self._changed:
            heads = {
                id: lane.waiting_turns[0].id if lane.waiting_turns else None for id, lane in self._sessions.items()
            }
            others = [turn for lane in self._sessions.values() for turn in list(lane.waiting_turns)[1:]]
        for session, turn in heads.items():
            self._emit(TurnEvent(session, turn, event))
        for turn in others:
            self._emit(TurnEvent(turn.session_id, turn.id, event))

    def _fail_waiting_turns(self, profile: Any, failed: Failed) -> None:
        with self._changed:
            models = self._engine_loader.engine_key(profile)
            lanes = [lane for lane in self._sessions.values() if self._engine_loader.engine_key(lane.profile) == models]
            turns = [turn for lane in lanes for turn in lane.waiting_turns]
            for lane in lanes:
                lane.waiting_turns.clear()
        for turn in turns:
            self._emit(TurnEvent(turn.session_id, turn.id, failed))

    def _close_engine_session(self, state: SessionState) -> None:
        session, state.engine_session = state.engine_session, None
        if session:
            _close(session)

    def _close_completer(self) -> None:
        completer, self._completer = self._completer, None
        if completer:
            _close(completer)

    def _close_engine(self) -> None:
        self._completion_events = iter(())
        self._close_completer()
        for lane in list(self._sessions.values()):
            lane.events = iter(())
            self._close_engine_session(lane)
        if self._engine:
            _close(self._engine)
        self._engine = None
        self.state = "cold"


@dataclass(frozen=True)
class _StepResult:
    """What came next, and whether whoever said it can be trusted no longer."""

    event: Event
    has_crashed: bool = False


def _next_event(events: Iterator[Event]) -> _StepResult:
    """One step; whatever goes wrong in it, the host lives on."""
    try:
        return _StepResult(next(events))
    except SpecchatError as error:
        return _StepResult(Failed.from_error(error))
    except StopIteration:
        return _StepResult(Failed("the engine ended an answer without saying how"))
    except Exception as error:  # the edge
        log.exception("a turn failed")
        return _StepResult(Failed(f"the engine failed: {_one_line(error)}; see the log of the host"), has_crashed=True)


def _close(resource: EngineSession | Engine | Completer) -> None:
    try:
        resource.close()
    except Exception:  # the edge: what cannot be closed must not end the host
        log.exception("could not close %r", resource)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
