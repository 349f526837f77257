"""What waits for the engine thread, and the events that it sends back."""

import logging
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from time import perf_counter

from specchat.chat.events import Event, Failed, Finished
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.chat.transcript import Turn
from specchat.errors import SpecchatError
from specchat.host.engine_interface import Answer
from specchat.host.loaded_engines import LoadedEngine
from specchat.host.session_turns import SessionTurns
from specchat.profile import Profile

log = logging.getLogger(__name__)

Events = Generator[Event, None, None]


@dataclass(frozen=True, eq=False)
class QueuedTurn:
    """A turn with all that its answer depends on, the settings of the moment at which it was asked among them."""

    id: str
    session_id: str
    request: Request
    profile: Profile
    turns: SessionTurns
    asked_at: float = field(default_factory=perf_counter)
    cancelled: Flag = field(default_factory=Flag)


@dataclass(frozen=True, eq=False)
class QueuedCompletion:
    """A waiting or running completion."""

    id: str
    session_id: str
    fim_request: FimRequest
    profile: Profile
    cancelled: Flag = field(default_factory=Flag)


@dataclass(frozen=True)
class TurnEvent:
    """An event of a turn; without a turn, of loading, for all sessions. The last one of a turn has what the model reads
    of it from now on; None: nothing.
    """

    session_id: str
    turn_id: str | None
    event: Event
    completed_turn: Turn | None = None


class RunningTurn:
    """`loading_seconds` of its time in the queue, models loaded."""

    def __init__(self, turn: QueuedTurn, engine: LoadedEngine, loading_seconds: float = 0.0) -> None:
        self.turn, self.engine, self._loading_seconds = turn, engine, loading_seconds
        self._answering: Answer | None = None  # once it has begun
        self._read_before = 0  # turns
        self.events = self._answer()

    def set_load(self, waiting_requests: int, *, is_urgent: bool) -> None:
        if self._answering:
            self._answering.set_load(waiting_requests, is_urgent=is_urgent)

    def finish(self, last: Event) -> Turn | None:
        """Close the answer; returns what the model reads of it, which the next turn of the session knows."""
        self.events.close()
        turns = list(self._answering.turns) if self._answering else []
        if not isinstance(last, Finished) or len(turns) <= self._read_before:
            return None
        self.turn.turns.set_read(self.turn.id, turns)
        return turns[-1]

    def _answer(self) -> Events:
        turn = self.turn
        question = turn.turns.question(turn.id, turn.request, turn.profile)
        question = replace(question, asked_at=turn.asked_at, loading_seconds=self._loading_seconds)
        self._read_before = len(question.turns)
        self._answering = self.engine.engine.answer(question, turn.cancelled)
        yield from self._answering.events()


@dataclass(frozen=True)
class StepResult:
    """The next event of a generator; `has_crashed` after an unexpected exception."""

    event: Event
    has_crashed: bool = False

    @property
    def is_last(self) -> bool:
        return isinstance(self.event, Finished | Failed)


def next_step(events: Events) -> StepResult:
    """Run one step. An exception becomes a Failed event, so that it cannot end the host."""
    try:
        return StepResult(next(events))
    except SpecchatError as error:
        return StepResult(Failed.from_error(error))
    except StopIteration:
        return StepResult(Failed("the engine ended an answer without a final event"))
    except Exception as error:  # the edge
        log.exception("a turn failed")
        return StepResult(Failed(f"the engine failed: {one_line(error)}; see the log of the host"), has_crashed=True)


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
