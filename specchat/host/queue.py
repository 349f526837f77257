"""The engine thread: turns wait here and are stepped in rotation, one event each.

Requests of one session wait for each other, sessions take turns at step boundaries. Everything that touches the engine
happens in `run`, on one thread; every other method may be called from anywhere and returns at once. A turn that has not
begun is cancelled right here, which is why a cancel is quick while a model loads.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Condition
from threading import Event as Flag
from typing import Any, Protocol

from specchat.chat.events import Event, Failed, Finished, Totals
from specchat.chat.request import Request
from specchat.errors import SpecchatError

log = logging.getLogger(__name__)


class EngineSession(Protocol):
    """A conversation of the engine, as `chat/session.py` makes them."""

    turns: list[Any]

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        """Answer, one event at a time."""
        ...

    def rewind(self, count: int) -> Any:
        """Take back the last turns."""
        ...

    def make_way(self, waiting: int) -> None:
        """So many other answers wait for their next step."""
        ...

    def close(self) -> None:
        """Give back the memory."""
        ...


class Engine(Protocol):
    """The loaded models of a profile, as `assemble.py` makes them."""

    def session(self, turns: Sequence[Any], profile: Any) -> EngineSession:
        """A conversation that goes on from these turns, as this profile wants it."""
        ...

    @property
    def turns_at_once(self) -> int:
        """How many answers it can write in turns."""
        ...

    def memory(self) -> dict[str, int]:
        """Bytes by what they hold."""
        ...

    def close(self) -> None:
        """Give back the memory."""
        ...


@dataclass(frozen=True)
class Loader:
    """How engines come to be: `models` is the part of a profile that two profiles must share to share an engine."""

    load: Callable[[Any, Callable[[Event], None], Flag], Engine]
    models: Callable[[Any], Any]


@dataclass(frozen=True)
class QueuedTurn:
    """A question that waits for its answer, or is being answered."""

    id: str
    session: str
    request: Request
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
    rewinds: int = 0
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

    def cancel(self, id: str) -> None:
        """End a turn within one step; at once when it has not begun."""
        with self._changed:
            for lane in self._lanes.values():
                if lane.running and lane.running.id == id:
                    lane.running.cancelled.set()
                for turn in [turn for turn in lane.waiting if turn.id == id]:
                    lane.waiting.remove(turn)
                    self._post(Happened(turn.session, id, Finished("cancelled", Totals())))

    def rewind(self, session: str, count: int) -> None:
        """Forget the last turns of a session that is not answering."""
        with self._changed:
            lane = self._lanes[session]
            assert lane.running is None and not lane.waiting
            lane.turns = lane.turns[: max(0, len(lane.turns) - count)]
            lane.rewinds += count

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
            for lane in self._lanes.values():
                if lane.running:
                    lane.running.cancelled.set()
            self._changed.notify()

    def memory(self) -> dict[str, int]:
        """Bytes by what they hold; nothing when no model is loaded."""
        engine = self._engine
        return engine.memory() if engine else {}

    def run(self) -> None:
        """The body of the engine thread."""
        while not self._stopping.is_set():
            self._wait()
            self._tidy()
            self._begin_waiting()
            running = self._running()
            for lane in running:
                if lane.session:
                    lane.session.make_way(len(running) - 1)
                self._step(lane)
        self._close_engine()

    def _running(self) -> list[Lane]:
        return [lane for lane in list(self._lanes.values()) if lane.running]

    def _has_work(self) -> bool:
        lanes = self._lanes.values()
        return bool(
            self._stopping.is_set()
            or any(lane.running or lane.waiting for lane in lanes)
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
            is_unloading, self._is_unloading = self._is_unloading and not self._running(), False
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
                if self._running():
                    continue  # another model answers; this one is loaded when it has finished
                if not self._load(lane.profile):
                    continue
            if self._engine is not None and len(self._running()) < self._engine.turns_at_once:
                self._begin(lane)

    def _begin(self, lane: Lane) -> None:
        with self._changed:
            if lane.waiting:
                lane.running = lane.waiting.popleft()
                lane.events = self._answer(lane, lane.running)

    def _answer(self, lane: Lane, turn: QueuedTurn) -> Iterator[Event]:
        """The events of a turn, from the session that the engine has of it, or a new one."""
        assert self._engine is not None
        rewinds, lane.rewinds = lane.rewinds, 0
        if lane.session is None or lane.spoken_for != lane.profile:
            self._close_session(lane)
            lane.session = self._engine.session(tuple(lane.turns), lane.profile)
            lane.spoken_for = lane.profile
        elif rewinds:
            lane.session.rewind(rewinds)
        yield from lane.session.ask(turn.request, turn.cancelled)

    def _step(self, lane: Lane) -> None:
        turn = lane.running
        assert turn is not None
        try:
            event = next(lane.events)
        except SpecchatError as error:
            event = Failed(str(error), error.exit_code)
        except StopIteration:
            event = Failed("the engine ended an answer without saying how")
        except Exception as error:  # the edge: whatever happens to one turn, the host lives on
            log.exception("a turn failed")
            event = Failed(f"the engine failed: {_one_line(error)}; see the log of the host")
            self._close_session(lane)
        if isinstance(event, Finished | Failed):
            self._end(lane, turn, event)
        else:
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
            self._fail_waiting(profile, Failed(str(error), error.exit_code))
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

    def _close_engine(self) -> None:
        for lane in list(self._lanes.values()):
            lane.events = iter(())
            self._close_session(lane)
        if self._engine:
            _close(self._engine)
        self._engine = None
        self.state = "cold"


def _close(what: EngineSession | Engine) -> None:
    try:
        what.close()
    except Exception:  # the edge: what cannot be closed must not end the host
        log.exception("could not close %r", what)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
