"""From a cursor to a suggestion: wait until nobody types, ask, and give up as soon as it would be too late.

One at a time: a newer wish, or a change of the text, ends the one before it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from threading import Event as Flag

from lsprotocol import types

from specchat.editors.lsp.completion_cache import CachedSuggestion, cache_suggestion
from specchat.editors.lsp.cursor_context import CursorContext
from specchat.editors.lsp.engine_connection import LOADING, UNREACHABLE, EngineConnection
from specchat.editors.lsp.initialization_options import InitializationOptions
from specchat.editors.lsp.trim_completion import overlapping_chars, trim_completion
from specchat.host.client import CompletionResult

MIN_DEBOUNCE_SECONDS, MAX_DEBOUNCE_SECONDS = 0.15, 0.4  # the shortest and the longest wait that nobody has set
ENGINE_TIMEOUT_SECONDS, ANSWER_TIMEOUT_SECONDS = 1.7, 2.0
AUTOMATIC_MAX_TOKENS, INVOKED_MAX_TOKENS = 64, 256
NO_FIM = "unable"  # the engine's word for a model that fills no gaps


@dataclass(eq=False)
class PendingSuggestion:
    """A wish on its way. `is_over` wakes who waits here, `cancelled` stops the engine."""

    cancelled: Flag = field(default_factory=Flag)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self.cancelled.set()
        self.is_over.set()


@dataclass(frozen=True)
class Suggestion:
    """A text for a place: behind what is typed, over `covered` characters of the rest of the line."""

    context: CursorContext
    text: str
    replaced_chars: int

    @property
    def range(self) -> types.Range:
        """What it takes the place of, within one line."""
        place = self.context
        document = place.document
        return types.Range(document.position(place.start), document.position(place.end + self.replaced_chars))

    @property
    def insert_text(self) -> str:
        """What stands in that range afterwards."""
        return self.context.typed_prefix + self.text

    @property
    def first_line(self) -> str:
        """The same up to the end of its first line that says anything; "" when that is all of it."""
        lines = self.text.splitlines(keepends=True)
        number = next((number for number, line in enumerate(lines) if line.strip()), 0)
        first = "".join(lines[: number + 1]).rstrip("\r\n")
        return self.context.typed_prefix + first if first != self.text else ""


class Suggester:
    """Who makes suggestions, and remembers the last one."""

    def __init__(self, engine: EngineConnection, options: InitializationOptions) -> None:
        self.engine, self.options = engine, options
        self.can_fill = True
        self.is_waiting_for_models = False
        self._pending: PendingSuggestion | None = None
        self._cached: CachedSuggestion | None = None
        self._last_answer_seconds = MAX_DEBOUNCE_SECONDS  # that the last answer took

    def cancel(self) -> None:
        """Stop the suggestion that is on its way: the text has changed, or nobody is there any more."""
        if self._pending:
            self._pending.cancel()
            self._pending = None

    async def suggest(self, context: CursorContext, *, is_invoked: bool) -> Suggestion | None:
        """What could stand here, None for nothing. Unasked it waits a moment first, and says less."""
        self.cancel()
        if left := self._cached.remaining_at(context) if self._cached else "":
            return Suggestion(context, left, overlapping_chars(left, context))
        if not self.can_fill or not (is_invoked or context.is_suggestible):
            return None
        running = self._pending = PendingSuggestion()
        try:
            if not is_invoked and await _is_over_within(running, self._debounce_seconds):
                return None
            filled = await self._fill(context, running, is_invoked=is_invoked)
        except BaseException:
            running.cancel()
            raise
        if running.is_over.is_set():
            return None
        return self._make_suggestion(context, filled, 0 if is_invoked else self.options.max_lines)

    @property
    def _debounce_seconds(self) -> float:
        if self.options.debounce_seconds is not None:
            return self.options.debounce_seconds
        return min(max(self._last_answer_seconds, MIN_DEBOUNCE_SECONDS), MAX_DEBOUNCE_SECONDS)

    async def _fill(self, context: CursorContext, pending: PendingSuggestion, *, is_invoked: bool) -> CompletionResult:
        tokens, lines = (INVOKED_MAX_TOKENS, 0) if is_invoked else (AUTOMATIC_MAX_TOKENS, self.options.max_lines)
        gap, begun = context.make_fim_request(tokens, lines, ENGINE_TIMEOUT_SECONDS), time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                filled = await self.engine.complete(gap, pending.cancelled)
        except TimeoutError:
            pending.cancelled.set()
            filled = CompletionResult("", "cancelled")
        self._last_answer_seconds = time.monotonic() - begun
        return filled

    def _make_suggestion(self, context: CursorContext, filled: CompletionResult, lines: int) -> Suggestion | None:
        self.can_fill = self.can_fill and filled.finish_reason != NO_FIM
        self.is_waiting_for_models = filled.finish_reason in (LOADING, UNREACHABLE)
        text = trim_completion(filled.text, filled.finish_reason, context, lines)
        if not text:
            return None
        self._cached = cache_suggestion(context, text)
        return Suggestion(context, text, overlapping_chars(text, context))


async def _is_over_within(pending: PendingSuggestion, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await pending.is_over.wait()
    except TimeoutError:
        return False
    return True
