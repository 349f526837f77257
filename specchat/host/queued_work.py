"""What waits for the engine thread, and the events that it sends back."""

import logging
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from threading import Event as Flag

from specchat.chat.events import Event, Failed, Finished
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.chat.transcript import TextOwner, Turn
from specchat.errors import SpecchatError
from specchat.host.engine_interface import Answer
from specchat.host.loaded_engines import LoadedEngine
from specchat.host.session_turns import SessionTurns
from specchat.profile import Profile

log = logging.getLogger(__name__)

Events = Generator[Event, None, None]


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
    """An event of a turn. The last one has what the model reads of it from now on; None: nothing."""

    session_id: str
    turn_id: str | None
    event: Event
    completed_turn: Turn | None = None


@dataclass(eq=False)
class RunningTurn:
    turn: QueuedTurn
    engine: LoadedEngine
    events: Events
    answer: Answer | None = None  # once it has begun
    read_before: int = 0  # turns


@dataclass(eq=False)
class QueuedSession:
    """A session with its waiting turns. `notified` is what it had a notice about."""

    profile: Profile
    turns: SessionTurns = field(default_factory=SessionTurns)
    owner: TextOwner = TextOwner()
    notified: set[str] = field(default_factory=set[str])
    waiting_turns: deque[QueuedTurn] = field(default_factory=deque[QueuedTurn])
    running: RunningTurn | None = None

    def has_turn(self, turn_id: str) -> bool:
        turns = (*self.waiting_turns, *([self.running.turn] if self.running else []))
        return any(turn.id == turn_id for turn in turns)


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
