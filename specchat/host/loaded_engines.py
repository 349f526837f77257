"""The engines in memory: several side by side while memory allows; the one that was used longest ago goes first.

Profiles with equal keys share an engine. What an engine needs and what is free come from the loader, so this file knows
no model and no device. Only the engine thread changes the engines; other threads may ask what is loaded.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag

from specchat.chat.events import Event
from specchat.errors import SpecchatError
from specchat.host.engine_interface import Completer, Engine, EngineMemory
from specchat.host.engine_loader import EngineLoader
from specchat.profile.keys import Profile

log = logging.getLogger(__name__)

GIB = 2**30
MEMORY_REFRESH_SECONDS = 1.0


@dataclass(eq=False)
class LoadedEngine:
    """An engine, with the completer for its models once it is needed."""

    key: Hashable
    profile: Profile
    engine: Engine
    completer: Completer | None = None
    planned_memory: EngineMemory | None = None  # computed when another engine is to be loaded
    last_used_at: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        """Close the engine and everything that lives in it. No turn of it runs."""
        self.close_completer()
        _close(self.engine)

    def close_completer(self) -> None:
        completer, self.completer = self.completer, None
        if completer:
            _close(completer)

    @property
    def held_bytes(self) -> int:
        return sum(self.engine.memory_bytes().values())

    def has_free_slot(self, busy: Sequence[LoadedEngine]) -> bool:
        """Whether another answer can run beside those of the busy engines, each of which stands there once."""
        return busy.count(self) < self.engine.max_concurrent_turns


@dataclass(frozen=True)
class Room:
    """What must be closed before an engine can be loaded; `missing` says why it cannot be, "" when it can."""

    to_close: Sequence[LoadedEngine] = ()
    missing: str = ""


class LoadedEngines:
    def __init__(self, loader: EngineLoader) -> None:
        self.loader = loader
        self._by_key: dict[Hashable, LoadedEngine] = {}
        self._active: LoadedEngine | None = None
        self._memory_bytes: dict[str, int] = {}
        self._memory_refreshed_at = 0.0

    def __iter__(self) -> Iterator[LoadedEngine]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, profile: Profile) -> LoadedEngine | None:
        """The engine of a profile. Thread-safe."""
        return self._by_key.get(self.loader.engine_key(profile))

    def load(self, profile: Profile, progress: Callable[[Event], None], cancelled: Flag) -> LoadedEngine:
        engine = self.loader.load(profile, progress, cancelled)
        loaded = LoadedEngine(self.loader.engine_key(profile), profile, engine)
        self._by_key[loaded.key] = loaded
        return loaded

    def close(self, loaded: LoadedEngine) -> None:
        self.remove(loaded)
        loaded.close()
        self.refresh_memory(max_age_seconds=0.0)

    def close_outdated(self, busy: Collection[LoadedEngine]) -> None:
        """Close the engines whose files have changed, unless they compute: the next turn loads what is there now."""
        for loaded in self:
            if loaded not in busy and self.loader.has_changed_files(loaded.engine):
                log.info("unloading %s, whose files have changed", self.loader.describe(loaded.profile))
                self.close(loaded)

    def remove(self, loaded: LoadedEngine) -> None:
        """Forget an engine without closing it."""
        self._by_key.pop(loaded.key, None)
        self._active = None if self._active is loaded else self._active
        self._memory_bytes = self._memory_bytes if self._by_key else {}

    def use(self, loaded: LoadedEngine) -> None:
        """Call this before a step: it notes the time, and prepares an engine that is not the last one that computed."""
        loaded.last_used_at = time.monotonic()
        if self._active is not loaded:
            loaded.engine.activate()
            self._active = loaded

    def completer(self, loaded: LoadedEngine) -> Completer:
        if loaded.completer is None:
            loaded.completer = self.loader.make_completer(loaded.engine)
        return loaded.completer

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Memory use in bytes, by component, of all engines together, as of the last second. Thread-safe."""
        return self._memory_bytes

    def refresh_memory(self, max_age_seconds: float = MEMORY_REFRESH_SECONDS) -> None:
        """Add up what the engines hold. On the engine thread, because it changes only there."""
        now, total = time.monotonic(), Counter[str]()
        if now - self._memory_refreshed_at >= max_age_seconds:
            for loaded in self:
                total.update(loaded.engine.memory_bytes())
            self._memory_bytes, self._memory_refreshed_at = dict(total), now

    def room_for(self, profile: Profile, busy: Collection[LoadedEngine], min_idle_seconds: float = 0.0) -> Room:
        """What to close for the engine of this profile: as few as possible, the one used longest ago first.

        Busy engines stay, and so do those that were used within `min_idle_seconds`. An engine of unknown size, which is
        not on this disk yet, gets all the memory of its device.
        """
        if not self._by_key:
            return Room()
        memory = self.loader.memory_of(profile)
        others = [each for each in self if self._planned(each, memory.device).by_device.keys() & memory.by_device]
        if not others or memory.needed_bytes == 0:
            return Room()
        now = time.monotonic()
        idle = [each for each in others if each not in busy and now - each.last_used_at >= min_idle_seconds]
        idle.sort(key=lambda each: each.last_used_at)
        to_close = list[LoadedEngine]()
        while not self._fits(memory, [each for each in others if each not in to_close]):
            if not idle:
                return Room(missing=self._missing(memory, profile, [each for each in others if each not in to_close]))
            to_close.append(idle.pop(0))
        return Room(to_close)

    def _fits(self, memory: EngineMemory, kept: Sequence[LoadedEngine]) -> bool:
        """Whether an engine fits beside these. Those that stay may still grow to what was planned for them."""
        if not kept:
            return True
        if memory.needed_bytes is None:
            return False
        return not any(self._lacks(each, device, kept) for device, each in memory.by_device.items())

    def _lacks(self, needed_bytes: int | None, device: str, kept: Sequence[LoadedEngine]) -> bool:
        """Whether so many bytes do not fit a device beside what these may still take of it."""
        freed = growth = 0.0
        for each in self:
            planned = self._planned(each, device)
            if device in planned.by_device:
                held = planned.held_on(device, each.held_bytes)
                if each in kept:
                    growth += max((planned.by_device[device] or 0) - held, 0)
                else:
                    freed += held
        return (needed_bytes or 0) + growth > self.loader.free_bytes(device) + freed

    def _planned(self, loaded: LoadedEngine, device: str) -> EngineMemory:
        """What an engine was planned to hold, else what it holds, where its device counts as this one."""
        if loaded.planned_memory is None:
            try:
                loaded.planned_memory = self.loader.memory_of(loaded.profile)
            except (SpecchatError, OSError):  # its files are gone, and others still want to load
                return EngineMemory(device, loaded.held_bytes)
        return loaded.planned_memory

    def _missing(self, memory: EngineMemory, profile: Profile, kept: Sequence[LoadedEngine]) -> str:
        needed = "all memory" if memory.needed_bytes is None else f"{memory.needed_bytes / GIB:.1f} GB"
        names = " and ".join(self.loader.describe(each.profile) for each in kept)
        return (
            f"{self.loader.describe(profile)} needs {needed} and waits for {names}, which "
            f"{'is' if len(kept) == 1 else 'are'} in use and leave{'s' * (len(kept) == 1)} "
            f"{self.loader.free_bytes(memory.device) / GIB:.1f} GB"
        )


def _close(resource: Engine | Completer) -> None:
    try:
        resource.close()
    except Exception:  # the edge: a failing close must not end the host
        log.exception("could not close %r", resource)
