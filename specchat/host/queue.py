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

from specchat.chat.events import Event, Failed, Finished, Text, Totals
from specchat.chat.fim_request import Gap
from specchat.chat.request import Request
from specchat.errors import SpecchatError
from specchat.host.engine_interface import Completer, Engine, EngineSession, Loader

log = logging.getLogger(__name__)

URGENT_STEPS = 4  # of a gap, while every turn takes one
NOTHING_YET = Text("")  # from an answer that is waited for, so that the others have their turn
NOT_LOADED = "loading"  # the reason of a gap that could not wait for a model


@dataclass(frozen=True)
class QueuedTurn:
    """A question that waits for its answer, or is being answered."""

    id: str
    session: str
    request: Request
    cancelled: Flag = field(default_factory=Flag)


@dataclass(frozen=True)
class QueuedGap:
    """A gap that waits to be filled, or is being filled; the session says with which models."""

    id: str
    session: str
    gap: Gap
    cancelled: Flag = field(default_factory=Flag)


@dataclass(frozen=True)
class Happened:
    """An event of a turn; with the last one comes the turn as the session keeps it, None when it keeps none."""

    session: str
    turn: str | None
    event: Event
    kept: Any = None


@dataclass(eq=False)
class Lane:
    """One session as the engine thread sees it."""

    profile: Any
    turns: list[Any]
    session: EngineSession | None = None
    spoken_for: Any = None  # the profile that the engine's session was made with
    is_rewritten: bool = False  # since the engine's session was last asked
    waiting: deque[QueuedTurn] = field(default_factory=deque)
    running: QueuedTurn | None = None
    events: Iterator[Event] = iter(())


class TurnQueue:
    """The turns of every session, and the engine that answers them."""

    def __init__(self, loader: Loader, post: Callable[[Happened], None]) -> None:
        self.state = "cold"  # then loading, ready
        self._loader, self._post = loader, post
        self._engine: Engine | None = None
        self._models: Any = None
        self._lanes: dict[str, Lane] = {}
        self._gaps: deque[QueuedGap] = deque()
        self._filling: QueuedGap | None = None
        self._filled: Iterator[Event] = iter(())
        self._completer: Completer | None = None
        self._closing: list[EngineSession] = []
        self._warm: Any = None
        self._is_unloading = False
        self._stopping = Flag()
        self._changed = Condition()

    def open(self, session: str, profile: Any, turns: Sequence[Any]) -> None:
        """Get to know a session and begin to load its models; one that is known only changes its profile."""
        with self._changed:
            lane = self._lanes.setdefault(session, Lane(profile, list(turns)))
            lane.profile = profile
            self._warm = profile
            self._changed.notify()

    def put(self, turn: QueuedTurn) -> None:
        """Let a turn wait for its answer."""
        with self._changed:
            self._lanes[turn.session].waiting.append(turn)
            self._changed.notify()

    def fill(self, gap: QueuedGap) -> None:
        """Let a gap be filled next; without the models of its session it is answered at once, and they are loaded."""
        with self._changed:
            profile = self._lanes[gap.session].profile
            if self._engine is None or self._models != self._loader.models(profile):
                self._warm = profile
                self._post(Happened(gap.session, gap.id, Finished(NOT_LOADED, Totals())))
            else:
                self._gaps.append(gap)
            self._changed.notify()

    def cancel(self, id: str) -> None:
        """End a turn or a gap within one step; at once when it has not begun."""
        with self._changed:
            if self._filling and self._filling.id == id:
                self._filling.cancelled.set()
            for gap in [gap for gap in self._gaps if gap.id == id]:
                self._gaps.remove(gap)
                self._post(Happened(gap.session, id, Finished("cancelled", Totals())))
            for lane in self._lanes.values():
                if lane.running and lane.running.id == id:
                    lane.running.cancelled.set()
                for turn in [turn for turn in lane.waiting if turn.id == id]:
                    lane.waiting.remove(turn)
                    self._post(Happened(turn.session, id, Finished("cancelled", Totals())))

    def rewind(self, session: str, count: int, told: Sequence[Any] = ()) -> None:
        """Forget the last turns of a session that is not answering, and put these in their place."""
        with self._changed:
            lane = self._lanes[session]
            assert lane.running is None and not lane.waiting
            lane.turns = [*lane.turns[: max(0, len(lane.turns) - count)], *told]
            lane.is_rewritten = True

    def forget(self, session: str) -> None:
        """Give back what a session that is not answering holds."""
        with self._changed:
            lane = self._lanes.pop(session, None)
            if lane and lane.session:
                self._closing.append(lane.session)
                self._changed.notify()

    def unload(self) -> None:
        """Give back the models as soon as nothing is being answered."""
        with self._changed:
            self._is_unloading = True
            self._changed.notify()

    def stop(self) -> None:
        """End the thread within one step."""
        with self._changed:
            self._stopping.set()
            for busy in [self._filling, *(lane.running for lane in self._lanes.values())]:
                if busy:
                    busy.cancelled.set()
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """Questions that nobody has begun to answer."""
        return sum(len(lane.waiting) for lane in list(self._lanes.values()))

    def memory(self) -> dict[str, int]:
        """Bytes by what they hold; nothing when no model is loaded."""
        engine = self._engine
        return engine.memory() if engine else {}

    def run(self) -> None:
        """The body of the engine thread."""
        while not self._stopping.is_set():
            self._wait()
            self._tidy()
            self._begin_gap()
            self._begin_waiting()
            self._step_gap()
            running = self._running()
            for lane in running:
                if lane.session:
                    lane.session.make_way(len(running) - 1, is_urgent=self._filling is not None)
                self._step(lane)
        self._close_engine()

    def _running(self) -> list[Lane]:
        return [lane for lane in list(self._lanes.values()) if lane.running]

    def _has_work(self) -> bool:
        lanes = self._lanes.values()
        return bool(
            self._stopping.is_set()
            or any(lane.running or lane.waiting for lane in lanes)
            or self._gaps
            or self._filling
            or self._closing
            or self._is_unloading
            or self._warm is not None
        )

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(self._has_work)

    def _tidy(self) -> None:
        """What is done between steps: close sessions, unload, load ahead."""
        with self._changed:
            closing, self._closing = self._closing, []
            warm, self._warm = self._warm, None
            is_busy = bool(self._running() or self._filling)
            is_unloading, self._is_unloading = self._is_unloading and not is_busy, False
        for session in closing:
            _close(session)
        if is_unloading:
            self._close_engine()
        elif warm is not None and self._engine is None:
            self._load(warm)

    def _begin_waiting(self) -> None:
        """Start the first turn of every session that is not answering one."""
        for lane in list(self._lanes.values()):
            if lane.running or not lane.waiting or self._stopping.is_set():
                continue
            if self._engine is None or self._models != self._loader.models(lane.profile):
                if self._running() or self._filling:
                    continue  # another model answers; this one is loaded when it has finished
                if not self._load(lane.profile):
                    continue
            if self._has_room():
                self._begin(lane)

    def _has_room(self) -> bool:
        """Whether one more can be answered next to those that are."""
        busy = len(self._running()) + (self._filling is not None)
        return self._engine is not None and busy < self._engine.turns_at_once

    def _begin_gap(self) -> None:
        """Start on the gap that waits longest; one whose models were given back meanwhile is not filled."""
        with self._changed:
            if not self._gaps or self._filling or not (self._has_room() or self._engine is None):
                return
            self._filling = gap = self._gaps.popleft()
            self._filled = self._fill(gap)

    def _fill(self, gap: QueuedGap) -> Iterator[Event]:
        if self._engine is None:
            yield Finished(NOT_LOADED, Totals())
            return
        if self._completer is None:
            self._completer = self._loader.completer(self._engine)
        yield from self._completer.fill(gap.gap, gap.cancelled)

    def _step_gap(self) -> None:
        for _ in range(URGENT_STEPS):
            gap = self._filling
            if gap is None:
                return
            step = _next_event(self._filled)
            if isinstance(step.event, Finished | Failed):
                self._filled, self._filling = iter(()), None
            if step.is_broken:
                self._close_completer()
            self._post(Happened(gap.session, gap.id, step.event))

    def _begin(self, lane: Lane) -> None:
        with self._changed:
            if lane.waiting:
                lane.running = lane.waiting.popleft()
                lane.events = self._answer(lane, lane.running)

    def _answer(self, lane: Lane, turn: QueuedTurn) -> Iterator[Event]:
        """The events of a turn, from the session that the engine has of it, or a new one."""
        assert self._engine is not None
        is_rewritten, lane.is_rewritten = lane.is_rewritten, False
        if lane.session is None or lane.spoken_for != lane.profile:
            self._close_session(lane)
            lane.session = self._engine.session(tuple(lane.turns), lane.profile)
            lane.spoken_for = lane.profile
        elif is_rewritten:
            lane.session.turns = list(lane.turns)
        yield from lane.session.ask(turn.request, turn.cancelled)

    def _step(self, lane: Lane) -> None:
        turn = lane.running
        assert turn is not None
        step = _next_event(lane.events)
        event = step.event
        if step.is_broken:
            self._close_session(lane)
        if isinstance(event, Finished | Failed):
            self._end(lane, turn, event)
        elif event != NOTHING_YET:
            self._post(Happened(turn.session, turn.id, event))

    def _end(self, lane: Lane, turn: QueuedTurn, event: Event) -> None:
        lane.events = iter(())  # lets go of the generator, and with it of the cache it holds
        kept = None
        with self._changed:
            if lane.session and len(lane.session.turns) > len(lane.turns):
                kept = lane.session.turns[-1]
                lane.turns = list(lane.session.turns)
            lane.running = None
        self._post(Happened(turn.session, turn.id, event, kept))

    def _load(self, profile: Any) -> bool:
        self._close_engine()
        self.state = "loading"
        try:
            self._engine = self._loader.load(profile, self._tell_loading, self._stopping)
        except SpecchatError as error:
            self._fail_waiting(profile, Failed.of(error))
        except Exception as error:  # the edge: a model that cannot be loaded must not end the host
            log.exception("loading failed")
            self._fail_waiting(profile, Failed(f"the model could not be loaded: {_one_line(error)}", 7))
        self._models = self._loader.models(profile)
        self.state = "ready" if self._engine else "cold"
        return self._engine is not None

    def _tell_loading(self, event: Event) -> None:
        with self._changed:
            heads = {id: lane.waiting[0].id if lane.waiting else None for id, lane in self._lanes.items()}
            others = [turn for lane in self._lanes.values() for turn in list(lane.waiting)[1:]]
        for session, turn in heads.items():
            self._post(Happened(session, turn, event))
        for turn in others:
            self._post(Happened(turn.session, turn.id, event))

    def _fail_waiting(self, profile: Any, failed: Failed) -> None:
        with self._changed:
            models = self._loader.models(profile)
            lanes = [lane for lane in self._lanes.values() if self._loader.models(lane.profile) == models]
            turns = [turn for lane in lanes for turn in lane.waiting]
            for lane in lanes:
                lane.waiting.clear()
        for turn in turns:
            self._post(Happened(turn.session, turn.id, failed))

    def _close_session(self, lane: Lane) -> None:
        session, lane.session = lane.session, None
        if session:
            _close(session)

    def _close_completer(self) -> None:
        completer, self._completer = self._completer, None
        if completer:
            _close(completer)

    def _close_engine(self) -> None:
        self._filled = iter(())
        self._close_completer()
        for lane in list(self._lanes.values()):
            lane.events = iter(())
            self._close_session(lane)
        if self._engine:
            _close(self._engine)
        self._engine = None
        self.state = "cold"


@dataclass(frozen=True)
class _Next:
    """What came next, and whether whoever said it can be trusted no longer."""

    event: Event
    is_broken: bool = False


def _next_event(events: Iterator[Event]) -> _Next:
    """One step; whatever goes wrong in it, the host lives on."""
    try:
        return _Next(next(events))
    except SpecchatError as error:
        return _Next(Failed.of(error))
    except StopIteration:
        return _Next(Failed("the engine ended an answer without saying how"))
    except Exception as error:  # the edge
        log.exception("a turn failed")
        return _Next(Failed(f"the engine failed: {_one_line(error)}; see the log of the host"), is_broken=True)


def _close(what: EngineSession | Engine | Completer) -> None:
    try:
        what.close()
    except Exception:  # the edge: what cannot be closed must not end the host
        log.exception("could not close %r", what)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
