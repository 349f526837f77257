"""From a cursor to a suggestion: debounce, request, and a timeout after which it is dropped.

Only one request is active: a newer one, or a change of the text, cancels it. While the user types along the last
suggestion, its rest is offered without a request. The connection to the engine process has a thread of its own.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import TypeVar

from lsprotocol import types

from specchat.chat.events import Finished, TextDelta
from specchat.chat.fim_request import FILLED_REASONS, MODEL_LOADING, FimRequest
from specchat.errors import SpecchatError
from specchat.host.client import Conversation, SessionRequest
from specchat_editors.lsp.cursor_context import CursorContext, overlapping_chars, trim_completion
from specchat_editors.lsp.initialization_options import InitializationOptions

log = logging.getLogger(__name__)

RETRY_SECONDS = 30.0  # after an unreachable engine
READY, LOADING, WAITING, UNREACHABLE = "ready", "loading", "waiting", "unreachable"

Result = TypeVar("Result")
MIN_DEBOUNCE_SECONDS, MAX_DEBOUNCE_SECONDS = 0.15, 0.4  # of the automatic delay
ENGINE_TIMEOUT_SECONDS, ANSWER_TIMEOUT_SECONDS = 1.7, 2.0
ANSWERED_REASONS = (*FILLED_REASONS, "length", "timeout")  # of one that a model has written
AUTOMATIC_MAX_TOKENS, INVOKED_MAX_TOKENS = 64, 256


@dataclass(frozen=True)
class CompletionResult:
    """The completion of a gap, with the last words of `Conversation.fill` about it; of a cancelled one, no text."""

    text: str
    finish_reason: str
    explanation: str = ""


@dataclass(frozen=True)
class ModelsState:
    """Of the models for completions: "unloaded", LOADING, WAITING for memory (and for what), READY, or UNREACHABLE."""

    name: str
    reason: str = ""

    @property
    def is_coming(self) -> bool:
        return self.name in (LOADING, WAITING)


class EngineConnection:
    """Completes text. An unreachable engine is not an error: completions are automatic."""

    def __init__(self, make_session_request: Callable[[], SessionRequest]) -> None:
        self._make_session_request = make_session_request
        self._executor = ThreadPoolExecutor(1, "lsp-engine")
        self._conversation: Conversation | None = None
        self._retry_at = 0.0

    async def complete(self, gap: FimRequest, cancelled: Flag) -> CompletionResult:
        """The completion from the engine; empty if it is unreachable."""

        def ask(engine: Conversation) -> CompletionResult:
            *pieces, end = engine.fill(gap, cancelled)
            assert isinstance(end, Finished)
            text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
            return CompletionResult(text * (end.finish_reason != "cancelled"), end.finish_reason, end.explanation)

        return await self._call(ask, CompletionResult("", UNREACHABLE))

    async def models_state(self, *, requests_loading: bool) -> ModelsState:
        """The state of the models. On request they are loaded as soon as there is room."""

        def ask(engine: Conversation) -> ModelsState:
            found = engine.call("models_state", {"requests_loading": requests_loading})
            return ModelsState(str(found["state"]), str(found["reason"]))

        return await self._call(ask, ModelsState(UNREACHABLE))

    async def _call(self, call: Callable[[Conversation], Result], fallback: Result) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._call_blocking, call, fallback)

    def _call_blocking(self, call: Callable[[Conversation], Result], fallback: Result) -> Result:
        if time.monotonic() < self._retry_at:
            return fallback
        try:
            self._conversation = self._conversation or Conversation(self._make_session_request(), "lsp")
            return call(self._conversation)
        except (SpecchatError, OSError) as error:
            log.warning("the engine process is unreachable: %s", error)
            self._conversation, self._retry_at = None, time.monotonic() + RETRY_SECONDS
            return fallback


@dataclass(frozen=True)
class CachedSuggestion:
    uri: str
    prefix: str
    suffix: str
    text: str

    def remaining_at(self, context: CursorContext) -> str:
        """The part that is not typed yet; "" at another position or after other text was typed."""
        if (
            context.document.uri != self.uri
            or context.suffix != self.suffix
            or not context.prefix.startswith(self.prefix)
        ):
            return ""
        typed = context.prefix[len(self.prefix) :]
        text = self.text.replace("\r\n", "\n")
        if not text.startswith(typed) or len(typed) >= len(text):
            return ""
        return text[len(typed) :].replace("\n", context.document.newline)


@dataclass(eq=False)
class PendingSuggestion:
    """A request in progress. `is_over` wakes the waiting coroutine, `cancelled` stops the engine."""

    cancelled: Flag = field(default_factory=Flag)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def cancel(self) -> None:
        self.cancelled.set()
        self.is_over.set()


@dataclass(frozen=True)
class Suggestion:
    """A text after the typed prefix, over `replaced_chars` characters of the rest of the line."""

    context: CursorContext
    text: str
    replaced_chars: int

    @property
    def range(self) -> types.Range:
        context, document = self.context, self.context.document
        return types.Range(document.position(context.start), document.position(context.end + self.replaced_chars))

    @property
    def insert_text(self) -> str:
        return self.context.typed_prefix + self.text

    @property
    def first_line(self) -> str:
        """The text up to its first line that is not blank; "" when that is all of it."""
        lines = self.text.splitlines(keepends=True)
        index = next((index for index, line in enumerate(lines) if line.strip()), 0)
        first = "".join(lines[: index + 1]).rstrip("\r\n")
        return self.context.typed_prefix + first if first != self.text else ""


class Suggester:
    def __init__(self, engine: EngineConnection, options: InitializationOptions) -> None:
        self.engine, self.options = engine, options
        self.is_waiting_for_models = False
        self.kind_explanation: str | None = None  # of the completions of this model, once it has answered
        self._pending: PendingSuggestion | None = None
        self._cached: CachedSuggestion | None = None
        self._last_answer_seconds = MAX_DEBOUNCE_SECONDS

    def cancel(self) -> None:
        """Cancel the pending suggestion: the text has changed, or the editor has disconnected."""
        if self._pending:
            self._pending.cancel()
            self._pending = None

    async def suggest(self, context: CursorContext, *, is_invoked: bool) -> Suggestion | None:
        """The suggestion at this position, or None. An automatic one is debounced and shorter."""
        self.cancel()
        if text := self._cached.remaining_at(context) if self._cached else "":
            return Suggestion(context, text, overlapping_chars(text, context))
        if not (is_invoked or context.is_suggestible):
            return None
        pending = self._pending = PendingSuggestion()
        try:
            if not is_invoked and await _is_over_within(pending, self._debounce_seconds):
                return None
            result = await self._fill(context, pending, is_invoked=is_invoked)
        except BaseException:
            pending.cancel()
            raise
        if pending.is_over.is_set():
            return None
        return self._make_suggestion(context, result, 0 if is_invoked else self.options.max_lines)

    @property
    def _debounce_seconds(self) -> float:
        if self.options.debounce_seconds is not None:
            return self.options.debounce_seconds
        return min(max(self._last_answer_seconds, MIN_DEBOUNCE_SECONDS), MAX_DEBOUNCE_SECONDS)

    async def _fill(self, context: CursorContext, pending: PendingSuggestion, *, is_invoked: bool) -> CompletionResult:
        tokens, lines = (INVOKED_MAX_TOKENS, 0) if is_invoked else (AUTOMATIC_MAX_TOKENS, self.options.max_lines)
        request, started_at = context.make_fim_request(tokens, lines, ENGINE_TIMEOUT_SECONDS), time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                result = await self.engine.complete(request, pending.cancelled)
        except TimeoutError:
            pending.cancelled.set()
            result = CompletionResult("", "cancelled")
        self._last_answer_seconds = time.monotonic() - started_at
        return result

    def _make_suggestion(self, context: CursorContext, result: CompletionResult, lines: int) -> Suggestion | None:
        if result.finish_reason in ANSWERED_REASONS:
            self.kind_explanation = result.explanation
        self.is_waiting_for_models = result.finish_reason in (MODEL_LOADING, UNREACHABLE)
        text = trim_completion(result.text, result.finish_reason, context, lines)
        if not text:
            return None
        self._cached = CachedSuggestion(context.document.uri, context.prefix, context.suffix, text)
        return Suggestion(context, text, overlapping_chars(text, context))


async def _is_over_within(pending: PendingSuggestion, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await pending.is_over.wait()
    except TimeoutError:
        return False
    return True
