"""What waits for the engine thread, and the events that it sends back."""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from time import perf_counter

from specchat.chat.events import Event, Failed, Finished, Notice, PrefillProgress, Routed
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.chat.transcript import Turn
from specchat.errors import ModelError, SpecchatError, first_line
from specchat.host.engine_interface import Answer, Completer
from specchat.host.loaded_engines import LoadedEngine
from specchat.host.session_turns import SessionTurns
from specchat.profile.keys import Profile

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
    """A completion: urgent, because an editor's user types on, and never kept waiting for a model to load."""

    id: str
    fim_request: FimRequest
    profile: Profile
    asked_at: float = field(default_factory=perf_counter)
    cancelled: Flag = field(default_factory=Flag)


Queued = QueuedTurn | QueuedCompletion


@dataclass(frozen=True)
class TurnEvent:
    """An event of a turn or a completion. The last one of a turn has what the model reads of it from now on; None:
    nothing.
    """

    turn_id: str
    event: Event
    completed_turn: Turn | None = None


class Running:
    """A turn or a completion that an engine computes, one event at a time.

    `loading_seconds` of its time in the queue, models loaded.
    """

    def __init__(
        self,
        work: Queued,
        engine: LoadedEngine,
        completer: Callable[[LoadedEngine], Completer],
        loading_seconds: float = 0.0,
    ) -> None:
        self.work, self.engine, self._loading_seconds = work, engine, loading_seconds
        self.is_completion, self.is_new = isinstance(work, QueuedCompletion), True
        self._answering: Answer | None = None  # of a turn that has begun
        self._read_before = 0  # turns
        self.events = self._answer(work) if isinstance(work, QueuedTurn) else self._complete(work, completer)

    def set_load(self, waiting_requests: int, *, is_urgent: bool) -> None:
        if self._answering:
            self._answering.set_load(waiting_requests, is_urgent=is_urgent)

    def finish(self, last: Event) -> Turn | None:
        """Close the answer; returns what the model reads of it, which the next turn of the session knows."""
        self.events.close()
        turns = list(self._answering.turns) if self._answering else []
        if not isinstance(self.work, QueuedTurn) or not isinstance(last, Finished) or len(turns) <= self._read_before:
            return None
        self.work.turns.set_read(self.work.id, turns)
        return turns[-1]

    def _answer(self, turn: QueuedTurn) -> Events:
        question = turn.turns.question(turn.id, turn.request, turn.profile)
        question = replace(question, asked_at=turn.asked_at, loading_seconds=self._loading_seconds)
        self._read_before = len(question.turns)
        self._answering = self.engine.engine.answer(question, turn.cancelled)
        yield from self._answering.events()

    def _complete(self, completion: QueuedCompletion, completer: Callable[[LoadedEngine], Completer]) -> Events:
        yield from completer(self.engine).complete(completion.fim_request, completion.cancelled)


@dataclass(frozen=True)
class StepResult:
    """The next event of a generator; `has_crashed` after an unexpected exception."""

    event: Event
    has_crashed: bool = False

    @property
    def is_last(self) -> bool:
        return isinstance(self.event, Finished | Failed)

    @property
    def is_computed(self) -> bool:
        """Whether the engine may have computed for it: else others have not waited yet."""
        is_begun = not isinstance(self.event, PrefillProgress) or self.event.processed_tokens > self.event.cached_tokens
        return is_begun and not isinstance(self.event, Notice | Routed)


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
        if _is_out_of_memory(error):
            message = f"no memory for a pass ({first_line(error) or type(error).__name__}); close other programs, "
            message += "shorten the conversation, or choose a smaller model"
            return StepResult(Failed(message, ModelError.exit_code), has_crashed=True)
        reason = f"{type(error).__name__}: {first_line(error)}"
        return StepResult(Failed(f"the engine failed: {reason}; see the log of the host"), has_crashed=True)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed. Torch, which this file does not import, says so in a class or in words."""
    is_allocation = type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)
    return isinstance(error, MemoryError) or is_allocation
