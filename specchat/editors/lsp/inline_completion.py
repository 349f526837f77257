"""From a cursor to a suggestion: wait until nobody types, ask, and give up as soon as it would be too late.

One at a time: a newer wish, or a change of the text, ends the one before it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from threading import Event as Flag

from lsprotocol import types

from specchat.editors.lsp.completion_cache import Remembered, remember
from specchat.editors.lsp.cursor_context import Place
from specchat.editors.lsp.engine_connection import AWAY, LOADING, Door
from specchat.editors.lsp.initialization_options import Settings
from specchat.editors.lsp.trim_completion import repeated, trimmed
from specchat.host.client import Filled

QUICK_SECONDS, SLOW_SECONDS = 0.15, 0.4  # the shortest and the longest wait that nobody has set
ENGINE_SECONDS, PATIENCE_SECONDS = 1.7, 2.0
UNASKED_TOKENS, ASKED_TOKENS = 64, 256
UNABLE = "unable"  # the engine's word for a model that fills no gaps


@dataclass(eq=False)
class Running:
    """A wish on its way. `is_over` wakes who waits here, `cancelled` stops the engine."""

    cancelled: Flag = field(default_factory=Flag)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        """Nobody wants it any more."""
        self.cancelled.set()
        self.is_over.set()


@dataclass(frozen=True)
class Suggestion:
    """A text for a place: behind what is typed, over `covered` characters of the rest of the line."""

    place: Place
    text: str
    covered: int

    @property
    def range(self) -> types.Range:
        """What it takes the place of, within one line."""
        place = self.place
        document = place.document
        return types.Range(document.position(place.first), document.position(place.end + self.covered))

    @property
    def whole(self) -> str:
        """What stands in that range afterwards."""
        return self.place.typed + self.text

    @property
    def first_line(self) -> str:
        """The same up to the end of its first line that says anything; "" when that is all of it."""
        lines = self.text.splitlines(keepends=True)
        number = next((number for number, line in enumerate(lines) if line.strip()), 0)
        first = "".join(lines[: number + 1]).rstrip("\r\n")
        return self.place.typed + first if first != self.text else ""


class Suggester:
    """Who makes suggestions, and remembers the last one."""

    def __init__(self, door: Door, settings: Settings) -> None:
        self.door, self.settings = door, settings
        self.is_able = True
        self.is_waiting_for_models = False
        self._running: Running | None = None
        self._remembered: Remembered | None = None
        self._seconds = SLOW_SECONDS  # that the last answer took

    def end(self) -> None:
        """Stop the suggestion that is on its way: the text has changed, or nobody is there any more."""
        if self._running:
            self._running.end()
            self._running = None

    async def suggest(self, place: Place, *, is_asked: bool) -> Suggestion | None:
        """What could stand here, None for nothing. Unasked it waits a moment first, and says less."""
        self.end()
        if left := self._remembered.left_at(place) if self._remembered else "":
            return Suggestion(place, left, repeated(left, place))
        if not self.is_able or not (is_asked or place.is_promising):
            return None
        running = self._running = Running()
        try:
            if not is_asked and await _is_over_within(running, self._debounce):
                return None
            filled = await self._filled(place, running, is_asked=is_asked)
        except BaseException:
            running.end()
            raise
        if running.is_over.is_set():
            return None
        return self._taken(place, filled, 0 if is_asked else self.settings.lines)

    @property
    def _debounce(self) -> float:
        if self.settings.debounce_seconds is not None:
            return self.settings.debounce_seconds
        return min(max(self._seconds, QUICK_SECONDS), SLOW_SECONDS)

    async def _filled(self, place: Place, running: Running, *, is_asked: bool) -> Filled:
        tokens, lines = (ASKED_TOKENS, 0) if is_asked else (UNASKED_TOKENS, self.settings.lines)
        gap, begun = place.gap(tokens, lines, ENGINE_SECONDS), time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                filled = await self.door.fill(gap, running.cancelled)
        except TimeoutError:
            running.cancelled.set()
            filled = Filled("", "cancelled")
        self._seconds = time.monotonic() - begun
        return filled

    def _taken(self, place: Place, filled: Filled, lines: int) -> Suggestion | None:
        self.is_able = self.is_able and filled.reason != UNABLE
        self.is_waiting_for_models = filled.reason in (LOADING, AWAY)
        text = trimmed(filled.text, filled.reason, place, lines)
        if not text:
            return None
        self._remembered = remember(place, text)
        return Suggestion(place, text, repeated(text, place))


async def _is_over_within(running: Running, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await running.is_over.wait()
    except TimeoutError:
        return False
    return True
