"""Completions on the engine thread. They are urgent, because an editor's user types on.

A completion never waits for a model to load, starts before any waiting turn, and takes several steps per round.
"""

from collections import deque
from collections.abc import Callable
from threading import Condition

from specchat.chat.events import Finished, Totals
from specchat.host.engine_loading import ModelLoading
from specchat.host.loaded_engines import LoadedEngine
from specchat.host.queued_work import Events, QueuedCompletion, TurnEvent, next_step

STEPS_PER_ROUND = 4  # a turn takes one
MODEL_NOT_LOADED = "model_loading"  # finish reason of a completion without a loaded model


class CompletionQueue:
    """`running` is the completion that is computed, by `engine`."""

    def __init__(self, models: ModelLoading, changed: Condition, emit: Callable[[TurnEvent], None]) -> None:
        self.running: QueuedCompletion | None = None
        self.engine: LoadedEngine | None = None
        self._models, self._changed, self._emit = models, changed, emit
        self._waiting: deque[QueuedCompletion] = deque()
        self._events: Events | None = None

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self.running)

    def enqueue(self, completion: QueuedCompletion) -> None:
        """Queue a completion. Without loaded models it ends at once, says why, and the models start to load."""
        with self._changed:
            if self._models.is_loaded(completion.profile):
                self._waiting.append(completion)
            else:
                self._models.request_preload(completion.profile)
                missing = self._models.missing_room(completion.profile)
                self._end(completion, Finished(MODEL_NOT_LOADED, Totals(), missing))
            self._changed.notify()

    def cancel(self, completion_id: str) -> None:
        with self._changed:
            if self.running and self.running.id == completion_id:
                self.running.cancelled.set()
            for each in [each for each in self._waiting if each.id == completion_id]:
                self._waiting.remove(each)
                self._end(each, Finished("cancelled", Totals()))

    def start(self, has_free_slot: Callable[[LoadedEngine], bool]) -> None:
        """Start the oldest waiting completion. If the models were unloaded, it ends at once."""
        with self._changed:
            if not self._waiting or self.running:
                return
            completion = self._waiting[0]
            loaded = self._models.engines.find(completion.profile)
            if loaded is not None and not has_free_slot(loaded):
                return
            self._waiting.popleft()
            self.running, self.engine, self._events = completion, loaded, self._complete(completion, loaded)

    def step(self) -> None:
        for _ in range(STEPS_PER_ROUND):
            completion, loaded, events = self.running, self.engine, self._events
            if completion is None or events is None:
                return
            self._models.busy.begin("the engine process computes a completion")
            if loaded is not None:
                self._models.engines.use(loaded)
            step = next_step(events)
            if step.is_last:
                events.close()
                self.running = self.engine = self._events = None
            if step.has_crashed and loaded is not None:
                loaded.close_completer()
            self._emit(TurnEvent(completion.session_id, completion.id, step.event))

    def drop_all(self) -> list[QueuedCompletion]:
        """Forget all completions, and return them."""
        dropped = [*self._waiting, *([self.running] if self.running else [])]
        self._waiting.clear()
        self.running = self.engine = self._events = None
        return dropped

    def _complete(self, completion: QueuedCompletion, loaded: LoadedEngine | None) -> Events:
        if loaded is None:
            yield Finished(MODEL_NOT_LOADED, Totals())
            return
        completer = self._models.engines.completer(loaded)
        yield from completer.complete(completion.fim_request, completion.cancelled)

    def _end(self, completion: QueuedCompletion, finished: Finished) -> None:
        self._emit(TurnEvent(completion.session_id, completion.id, finished))
