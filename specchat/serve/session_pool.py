"""Selects the host session for each request, so that its KV cache is reused. Knows no network.

A request contains the whole conversation. The pool keeps a few host sessions open. The session with the
longest common prefix continues, and gets the missing turns as text. The history never stores these sessions, because
the client has the conversation.

The event loop selects the session; each answer then runs on a thread of its own.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from threading import Thread

from specchat.chat.events import (
    TRUNCATED_REASONS,
    Event,
    Failed,
    Finished,
    LoadingProgress,
    TextDelta,
    ToolCallDelta,
)
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.chat.streamed_calls import StreamedCalls
from specchat.chat.tools import Tool, ToolResult
from specchat.chat.transcript import Exchange
from specchat.errors import HostError, SpecchatError, UsageError, error_with_exit_code
from specchat.host.client import CompletionResult, Conversation, SessionRequest
from specchat.profile.settings import read_settings
from specchat.serve.engine_request import (
    GREETING,
    ConversationHistory,
    EngineRequest,
    SessionSettings,
)
from specchat.serve.past_exchange import (
    PastExchange,
    common_exchanges,
    common_prefix_length,
    text_of,
    with_call_ids,
)

log = logging.getLogger(__name__)

CLIENT_NAME = "serve"
SESSION_KIND = "serve"
MAX_SESSIONS = 8  # concurrent answers; the host interleaves as many as the engine has slots
ENGINE_READY = "ready"
MODEL_LOADING = "model_loading"  # the finish reason of a completion without a loaded model
FILLED_REASONS = ("stop", "lines", "block", "inside_line")  # of a completion that is not cut
LOADING_ATTEMPTS = 3
GAP_PROBE = FimRequest("x", "x", max_tokens=1)
NO_GAPS = "suffix: the model has no fill-in-the-middle tokens; leave the suffix out, or serve a model that has them"


class PooledSession:
    """A host session and its exchanges; None in the list is an exchange without an answer."""

    def __init__(self, session_request: SessionRequest) -> None:
        self.settings = SessionSettings()
        self.exchanges: list[PastExchange | None] = []
        self.tools: tuple[Tool, ...] = ()  # of the last answer
        self.last_used = 0
        self._fills_gaps: bool | None = None  # None: not known yet
        self._session_request = session_request
        self._conversation: Conversation | None = None

    def reuse_score(self, request: EngineRequest) -> int:
        """Characters that need no prefill in this session, minus the cached characters that it would lose."""
        cached = text_of(self.exchanges)
        if self.exchanges and request.request.offered_tools != self.tools:
            return -len(cached)  # tools stand at the beginning of a prompt
        common = common_prefix_length(cached, request.text)
        return len(request.history.settings.system_prompt) + _length(self.tools) + common - (len(cached) - common)

    def stream_events(self, request: EngineRequest | FimRequest, cancelled: Flag) -> Iterator[Event]:
        if isinstance(request, EngineRequest):
            return self.stream_answer(request, cancelled)
        return self.stream_completion(request, cancelled)

    def stream_answer(self, engine_request: EngineRequest, cancelled: Flag) -> Iterator[Event]:
        """Answer after the given history. HostError when no host can be started."""
        if engine_request.history.settings != self.settings:
            self.close()
        try:
            conversation = self._rewind_to(engine_request.history)
        except (HostError, ConnectionError):  # a new host does not have this session
            self.close()
            conversation = self._rewind_to(engine_request.history)
        request = replace(engine_request.request, tool_results=self._own_results(engine_request.request.tool_results))
        self.exchanges.append(None)
        self.tools = request.offered_tools
        text_parts, calls = list[str](), StreamedCalls()
        for event in conversation.ask(request, cancelled):
            match event:
                case TextDelta(text=text):
                    text_parts.append(text)
                case ToolCallDelta():
                    calls.add(event)
                case Finished() if text_parts or calls:
                    answer, results = "".join(text_parts), request.tool_results
                    exchange = Exchange(request.text, answer, tool_results=results, tool_calls=tuple(calls))
                    self.exchanges[-1] = PastExchange(exchange)
                case Failed():
                    self.close()  # unknown: whether the host has this turn
                case _:
                    pass
            yield event

    def stream_completion(self, fim_request: FimRequest, cancelled: Flag) -> Iterator[Event]:
        """Complete a text, without a change of the conversation. UsageError for a gap that the model cannot fill."""
        has_begun = False
        try:
            for event in self._stream_completion(fim_request, cancelled):
                has_begun = has_begun or isinstance(event, TextDelta)
                yield event
        except (HostError, ConnectionError):  # a new host does not have this session
            self.close()
            if has_begun:
                raise
            yield from self._stream_completion(fim_request, cancelled)

    def _stream_completion(self, fim_request: FimRequest, cancelled: Flag) -> Iterator[Event]:
        conversation = self.open_conversation(self.settings)
        for _ in range(LOADING_ATTEMPTS):
            result = yield from self._complete(conversation, fim_request, cancelled)
            if result.finish_reason != MODEL_LOADING or cancelled.is_set():
                break
            yield from self._wait_for_models(conversation, cancelled)
        else:
            raise HostError("the engine process unloads the models again and again; see 'specchat host status'")
        is_cancelled = result.finish_reason == "cancelled"
        is_filled = result.finish_reason in FILLED_REASONS
        reason = "stop" if is_filled else "cancelled" if is_cancelled else TRUNCATED_REASONS[0]
        yield Finished(reason, result.totals, result.explanation)

    def _complete(
        self, conversation: Conversation, fim_request: FimRequest, cancelled: Flag
    ) -> Generator[Event, None, CompletionResult]:
        """Ask once whether the model can fill gaps, with one that costs nothing; it says so with every completion."""
        if fim_request.suffix and self._fills_gaps is None:
            probe = conversation.complete(GAP_PROBE, cancelled)
            if probe.finish_reason in (MODEL_LOADING, "cancelled"):
                return probe
            self._fills_gaps = not probe.explanation
        if fim_request.suffix and not self._fills_gaps:
            raise UsageError(NO_GAPS)
        return (yield from conversation.stream_completion(fim_request, cancelled))

    def _wait_for_models(self, conversation: Conversation, cancelled: Flag) -> Iterator[Event]:
        """Ask for one token: an answer waits for the models, and says why they cannot be loaded."""
        self.exchanges.append(None)
        for event in conversation.ask(Request(GREETING, max_tokens=1), cancelled):
            match event:
                case LoadingProgress():
                    yield event
                case Failed(message=message, exit_code=code):
                    raise error_with_exit_code(message, code)
                case _:
                    pass

    def open_conversation(self, settings: SessionSettings) -> Conversation:
        """The conversation, opened if necessary. The host then loads the models in the background."""
        if self._conversation is None:
            own = (self._session_request.settings or read_settings()).changed(settings.changes())
            self._conversation = Conversation(replace(self._session_request, settings=own), CLIENT_NAME)
            self.settings = settings
        return self._conversation

    def close(self) -> None:
        if self._conversation is not None:
            self._conversation.close()
        self._conversation, self.exchanges = None, []

    def _rewind_to(self, history: ConversationHistory) -> Conversation:
        conversation, common = self.open_conversation(history.settings), common_exchanges(self.exchanges, history.past)
        missing = list(history.past[common:])
        if missing:
            first = missing[0].exchange
            missing[0] = PastExchange(replace(first, tool_results=self._own_results(first.tool_results, common - 1)))
        conversation.rewind(len(self.exchanges) - common, [each.exchange for each in missing])
        self.exchanges[common:] = missing
        return conversation

    def _own_results(self, tool_results: Sequence[ToolResult], at: int = -1) -> tuple[ToolResult, ...]:
        """The results with the ids that the calls of an exchange have in this session."""
        before = self.exchanges[at] if tool_results else None
        return with_call_ids(tool_results, before.exchange.tool_calls) if before else ()


def _length(tools: Sequence[Tool]) -> int:
    return sum(len(tool.name) + len(tool.description) + len(tool.parameters) for tool in tools)


@dataclass(eq=False)
class AnswerStream:
    """Carries the events of one answer from its thread to the event loop."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    events: asyncio.Queue[Event | None] = field(default_factory=asyncio.Queue["Event | None"])  # None: the end
    cancelled: Flag = field(default_factory=Flag)

    def emit(self, event: Event) -> None:
        """Add an event. Thread-safe."""
        self.call_in_loop(self.events.put_nowait, event)

    def call_in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the event loop; does nothing when the loop is closed."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)


class SessionPool:
    """The open sessions of one event loop.

    Calls `notify` with messages for the user, and `count_event` with the events of all answers, from any thread.
    """

    def __init__(
        self,
        session_request: SessionRequest,
        notify: Callable[[str], None],
        count_event: Callable[[Event], None],
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        self.context_window = 0  # in tokens; 0: not known yet
        self.waiting_count = 0  # requests without a slot
        self._session_request = replace(session_request, is_stored=False, kind=SESSION_KIND)
        self._notify, self._count_event, self._max_sessions = notify, count_event, max_sessions
        self._idle: list[PooledSession] = []
        self._busy: dict[PooledSession, AnswerStream] = {}
        self._free_slots = asyncio.Semaphore(max_sessions)
        self._use_counter = 0
        self._is_closing = False

    async def preload(self) -> None:
        """Make the host load the models, and read the context window. Does not wait for either."""
        await self._free_slots.acquire()
        self._start_thread(self._take(None), self._run_preload)

    async def stream_answer(self, request: EngineRequest | FimRequest) -> AsyncGenerator[Event]:
        """Wait for a free slot and yield the events of the answer. Closing the generator cancels the answer."""
        self.waiting_count += 1
        try:
            await self._free_slots.acquire()
        finally:
            self.waiting_count -= 1
        session = self._take_session(request)
        stream = self._start_thread(session, lambda session, stream: self._run_answer(session, request, stream))
        try:
            while (event := await stream.events.get()) is not None:
                yield event
        finally:
            stream.cancelled.set()

    @property
    def running_count(self) -> int:
        return len(self._busy)

    def close(self) -> None:
        self._is_closing = True
        for stream in self._busy.values():
            stream.cancelled.set()
        for session in self._idle:
            session.close()

    def _take_session(self, request: EngineRequest | FimRequest) -> PooledSession:
        """The idle session for a request, which needs a free slot."""
        if isinstance(request, EngineRequest):
            return self._take(self._best_session(request))
        # a completion leaves the conversation as it is, so any session will do
        return self._take(max(self._idle, key=lambda each: each.last_used, default=None))

    def _best_session(self, request: EngineRequest) -> PooledSession | None:
        """The session with the best score; without a score of at least 0, the least recently used one, or None."""
        same = [each for each in self._idle if each.settings == request.history.settings]
        best = max(same, key=lambda each: (each.reuse_score(request), each.last_used), default=None)
        if best is not None and best.reuse_score(request) >= 0:
            return best
        is_full = len(self._idle) + len(self._busy) >= self._max_sessions
        return min(self._idle, key=lambda each: each.last_used) if is_full else None

    def _take(self, session: PooledSession | None) -> PooledSession:
        """Take a session out of the idle ones; a new one for None."""
        self._idle = [each for each in self._idle if each is not session]
        return session or PooledSession(self._session_request)

    def _start_thread(
        self, session: PooledSession, work: Callable[[PooledSession, AnswerStream], None]
    ) -> AnswerStream:
        """Run `work` with the session on a daemon thread, and release the session at its end."""
        stream = self._busy[session] = AnswerStream()

        def run() -> None:
            try:
                work(session, stream)
            finally:
                stream.call_in_loop(self._release, session)

        Thread(target=run, name="serve-answer", daemon=True).start()
        return stream

    def _release(self, session: PooledSession) -> None:
        """Make the session idle, and only then end its stream: its client may ask again at once."""
        stream = self._busy.pop(session)
        self._use_counter += 1
        session.last_used = self._use_counter
        if self._is_closing:
            session.close()
        self._idle.append(session)
        self._free_slots.release()
        stream.events.put_nowait(None)

    def _run_preload(self, session: PooledSession, _stream: AnswerStream) -> None:
        try:
            conversation = session.open_conversation(SessionSettings())
            self.context_window = conversation.context_window
            if conversation.call("stats")["state"] != ENGINE_READY:
                self._notify("loading the models; the first answer waits for them")
        except (SpecchatError, ConnectionError) as error:
            self._notify(str(error))

    def _run_answer(self, session: PooledSession, request: EngineRequest | FimRequest, stream: AnswerStream) -> None:
        try:
            is_loading = False
            for event in session.stream_events(request, stream.cancelled):
                if isinstance(event, LoadingProgress) and not is_loading:
                    self._notify(event.text.rstrip("…"))
                    is_loading = True
                self._emit(stream, event)
        except SpecchatError as error:
            self._emit(stream, Failed.from_error(error))
        except ConnectionError as error:
            self._emit(stream, Failed(f"the engine process is gone: {error}", HostError.exit_code))
        except Exception as error:  # the edge of the thread
            log.exception("an answer failed")
            self._emit(stream, Failed(f"unexpected {type(error).__name__}"))
            session.close()

    def _emit(self, stream: AnswerStream, event: Event) -> None:
        self._count_event(event)
        stream.emit(event)
