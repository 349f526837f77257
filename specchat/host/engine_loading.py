"""Which engines are in memory, which one loads next, and what the others wait for.

Engines load and close on the engine thread; any thread may ask about them. Only a question closes an engine that was
used a moment ago; an opened session or a completion waits until it is idle, so that two clients do not load their
models in turns.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition
from threading import Event as Flag
from typing import TypeVar

from specchat.chat.events import Event, Failed, LoadingProgress
from specchat.errors import SpecchatError, first_line
from specchat.host.engine_loader import LOADING, EngineLoader
from specchat.host.loaded_engines import LoadedEngine, LoadedEngines, Room
from specchat.profile.keys import Profile

log = logging.getLogger(__name__)

Result = TypeVar("Result")

MAX_LOADING_TIMES = 16  # that are remembered
SHORT_SECONDS = 0.01  # a plan that needs no file is asked for again and again, and is not remembered
PRELOAD_IDLE_SECONDS = 60.0  # an engine is not closed for a session without a question before it was idle for so long


@dataclass(frozen=True)
class ModelsState:
    """Whether the models of a session are "ready", "loading", "unloaded", or "waiting" for memory, and for what."""

    state: str
    reason: str = ""


class ModelLoading:
    """`on_event` gets the progress of loading, and `on_failure` what cannot be loaded, and why."""

    def __init__(
        self,
        loader: EngineLoader,
        changed: Condition,
        on_event: Callable[[Event], None],
        on_failure: Callable[[Profile, Failed], None],
    ) -> None:
        self.state = "unloaded"  # or "loading", "ready"
        self.engines, self.stop_requested = LoadedEngines(loader), Flag()
        self._progress: LoadingProgress | None = None  # of what loads now
        self._changed, self._on_event, self._on_failure = changed, on_event, on_failure
        self._to_preload: dict[Hashable, Profile] = {}  # by key
        self._missing_room: dict[Hashable, str] = {}  # by key: why the last preload had to wait
        self._loading_times: deque[tuple[float, float]] = deque(maxlen=MAX_LOADING_TIMES)
        self._is_unload_requested = self._has_forgotten_texts = False

    def loading_seconds_since(self, moment: float) -> float:
        """For how long models loaded since then, their memory planned too, on the clock of `perf_counter`."""
        return sum(max(ended_at - max(started_at, moment), 0.0) for started_at, ended_at in self._loading_times)

    @property
    def progress(self) -> LoadingProgress | None:
        """Of what loads now or next; None when nothing does. Thread-safe."""
        is_coming = any(not self.is_loaded(each) for each in list(self._to_preload.values()))
        return self._progress or (LOADING if is_coming else None)

    @property
    def has_work(self) -> bool:
        return bool(self._is_unload_requested or self._has_forgotten_texts or self._to_preload)

    def request_preload(self, profile: Profile) -> None:
        """Load the models of a profile before a question needs them. Thread-safe, as all up to `state_of`."""
        with self._changed:
            self._to_preload[self.engines.loader.engine_key(profile)] = profile
            self._changed.notify()

    def unload(self) -> None:
        """Unload the models as soon as nothing runs."""
        with self._changed:
            self._is_unload_requested = True
            self._changed.notify()

    def forget_texts(self, name: str) -> None:
        """Keep nothing that was computed for a conversation, which is deleted or was private."""
        with self._changed:
            for loaded in self.engines:
                loaded.engine.forget(name)
            self._has_forgotten_texts = True
            self._changed.notify()

    def context_window(self, profile: Profile) -> int:
        """The limit of a profile in tokens; 0 when it is known only after the model is loaded."""
        return self.engines.loader.context_window(profile)

    def is_loaded(self, profile: Profile) -> bool:
        return self.engines.find(profile) is not None

    def missing_room(self, profile: Profile) -> str:
        """Why the models of a profile could not be loaded beside others; "" for no such reason."""
        return self._missing_room.get(self.engines.loader.engine_key(profile), "")

    def state_of(self, profile: Profile, *, requests_loading: bool = False) -> ModelsState:
        """The state of the models of a profile; starts loading them on request."""
        with self._changed:
            if self.is_loaded(profile):
                return ModelsState("ready")
            if missing := self.missing_room(profile):
                if requests_loading:
                    self.request_preload(profile)
                return ModelsState("waiting", missing)
            is_loading = self.engines.loader.engine_key(profile) in self._to_preload or self.state == "loading"
            if requests_loading and not is_loading:
                self.request_preload(profile)
            return ModelsState("loading" if is_loading or requests_loading else "unloaded")

    def do_pending_work(self, *, is_busy: bool) -> None:
        with self._changed:
            is_unloading, self._is_unload_requested = self._is_unload_requested and not is_busy, False
            is_forgetting, self._has_forgotten_texts = self._has_forgotten_texts, False
            profiles = list(self._to_preload.items())
        for loaded in self.engines if is_forgetting else ():
            loaded.engine.drop_forgotten()
        if is_unloading:
            self.close_all()
        for key, profile in profiles:
            if not is_unloading:
                self._preload(profile, is_busy=is_busy)
            self._to_preload.pop(key, None)  # until now it counts as loading

    def find_room(self, profile: Profile, busy: Sequence[LoadedEngine], min_idle_seconds: float = 0.0) -> Room | None:
        """Plan the memory for an engine; None when this fails, which fails the turns that need it."""
        with self._timed():
            return self._attempt(profile, lambda: self.engines.room_for(profile, busy, min_idle_seconds))

    def load(self, profile: Profile, to_close: Sequence[LoadedEngine]) -> LoadedEngine | None:
        for each in to_close:
            log.info("unloading %s for %s", *map(self.engines.loader.describe, (each.profile, profile)))
            self.engines.close(each)
        self.state = "loading"
        with self._timed():
            loaded = self._attempt(profile, lambda: self.engines.load(profile, self._report, self.stop_requested))
        self._progress = None
        self.state = "ready" if len(self.engines) else "unloaded"
        self.engines.refresh_memory(max_age_seconds=0.0)
        return loaded

    @contextmanager
    def _timed(self) -> Generator[None]:
        started_at = time.perf_counter()
        yield
        ended_at = time.perf_counter()
        if ended_at - started_at >= SHORT_SECONDS:
            self._loading_times.append((started_at, ended_at))

    def _attempt(self, profile: Profile, work: Callable[[], Result]) -> Result | None:
        """The result; None when this fails, which fails the turns that need this profile."""
        try:
            return work()
        except SpecchatError as error:
            self._on_failure(profile, Failed.from_error(error))
        except Exception as error:  # the edge: a model that cannot be loaded must not end the host
            log.exception("loading failed")
            reason = f"{type(error).__name__}: {first_line(error)}"
            self._on_failure(profile, Failed(f"the model could not be loaded: {reason}", 7))
        return None

    def close_all(self) -> None:
        for loaded in self.engines:
            self.engines.close(loaded)
        self.state = "unloaded"

    def forget_all(self) -> None:
        """Forget the engines without closing them, after the engine thread has died."""
        for loaded in self.engines:
            self.engines.remove(loaded)
        self.state = "unloaded"
        self._to_preload.clear()

    def _preload(self, profile: Profile, *, is_busy: bool) -> None:
        """Load the models of a profile before a question needs them, unless this disturbs anybody."""
        key = self.engines.loader.engine_key(profile)
        if self.is_loaded(profile) or self.stop_requested.is_set():
            return
        if is_busy:
            self._missing_room[key] = f"{self.engines.loader.describe(profile)} is loaded when the running answer ends"
            return
        room = self.find_room(profile, (), PRELOAD_IDLE_SECONDS)
        self._missing_room[key] = room.missing if room else ""
        if room and not room.missing:
            self.load(profile, room.to_close)

    def _report(self, event: Event) -> None:
        self._progress = event if isinstance(event, LoadingProgress) else self._progress
        self._on_event(event)
