"""Which conversation with the host an answer comes from. Knows no network.

Every request of this API brings its whole past. A few conversations are kept open, and the one that knows most of that
past goes on, so that the keys and values of it are not computed again; what differs is told to it as text. None of them
is kept in the history: the client has it.

The event loop chooses; whatever waits for the host happens on a thread of the answer's own.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from threading import Thread

from specchat.chat.events import Event, Failed, Finished, LoadingProgress, TextDelta
from specchat.chat.transcript import Exchange
from specchat.errors import HostError, SpecchatError
from specchat.host.client import Conversation, SessionRequest
from specchat.serve.requests import ChatCompletionRequest, ConversationHistory, SessionSettings

log = logging.getLogger(__name__)

CLIENT_NAME = "serve"
SESSION_KIND = "serve"
MAX_SESSIONS = 8  # answers at once; the host writes as many of them in turns as it has slots for
ENGINE_READY = "ready"
MESSAGE_END, FAILED_EXCHANGE = "\x1e", "\x00"  # after each message, and in the place of one


class PooledSession:
    """A conversation with the host, and what was said in it. None stands for an exchange that came to nothing."""

    def __init__(self, session_request: SessionRequest) -> None:
        self.settings = SessionSettings()
        self.exchanges: list[Exchange | None] = []
        self.last_used = 0
        self._session_request = session_request
        self._conversation: Conversation | None = None

    def reuse_score(self, history: ConversationHistory, question: str) -> int:
        """Letters that need not be read again if this room goes on, without those that it would have to forget."""
        ours, theirs = _as_text(self.exchanges), _as_text(history.exchanges) + question
        common = common_prefix_length(ours, theirs)
        return len(history.settings.system_prompt) + common - (len(ours) - common)

    def common_exchanges(self, exchanges: Sequence[Exchange]) -> int:
        """How many exchanges are the same from the beginning on."""
        pairs = enumerate(zip(self.exchanges, exchanges, strict=False))
        return next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(self.exchanges), len(exchanges)))

    def stream_answer(self, chat_request: ChatCompletionRequest, cancelled: Flag) -> Iterator[Event]:
        """Go on from the past that is asked for. HostError when there is no host."""
        if chat_request.history.settings != self.settings:
            self.close()
        try:
            conversation = self._rewind_to(chat_request.history)
        except (HostError, ConnectionError):  # the host is another one, which knows nothing of this
            self.close()
            conversation = self._rewind_to(chat_request.history)
        self.exchanges.append(None)
        text: list[str] = []
        for event in conversation.ask(chat_request.request, cancelled):
            match event:
                case TextDelta(text=more):
                    text.append(more)
                case Finished() if text:
                    self.exchanges[-1] = Exchange(chat_request.request.text, "".join(text))
                case Failed():
                    self.close()  # nobody knows whether the host counts it among the turns
                case _:
                    pass
            yield event

    def open_conversation(self, settings: SessionSettings) -> Conversation:
        """The conversation, which is begun when there is none. Loads no model, but lets the host begin to."""
        if self._conversation is None:
            overrides = {**self._session_request.overrides, **settings.overrides()}
            self._conversation = Conversation(replace(self._session_request, overrides=overrides), CLIENT_NAME)
            self.settings = settings
        return self._conversation

    def close(self) -> None:
        """Hang up; the next question begins anew."""
        if self._conversation is not None:
            self._conversation.close()
        self._conversation, self.exchanges = None, []

    def _rewind_to(self, history: ConversationHistory) -> Conversation:
        """The conversation where this past ends."""
        conversation, common = self.open_conversation(history.settings), self.common_exchanges(history.exchanges)
        rest = history.exchanges[common:]
        conversation.rewind(len(self.exchanges) - common, rest)
        self.exchanges[common:] = rest
        return conversation


def common_prefix_length(first: str, second: str) -> int:
    """How far two texts are the same."""
    shorter = range(min(len(first), len(second)))
    return bisect_left(shorter, True, key=lambda at: first[: at + 1] != second[: at + 1])


def _as_text(exchanges: Sequence[Exchange | None]) -> str:
    """All of it as one text. What came to nothing is like no text of anybody's."""
    return "".join(
        f"{each.user}{MESSAGE_END}{each.answer}{MESSAGE_END}" if each else FAILED_EXCHANGE for each in exchanges
    )


@dataclass(eq=False)
class AnswerStream:
    """An answer on its way from its thread to the event loop."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    events: asyncio.Queue[Event | None] = field(default_factory=asyncio.Queue["Event | None"])
    cancelled: Flag = field(default_factory=Flag)

    def emit(self, event: Event | None) -> None:
        """The next event, from any thread; None is the end."""
        self.call_in_loop(self.events.put_nowait, event)

    def call_in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        """Have something done by the loop; nothing when it has ended."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)


class SessionPool:
    """A few conversations. For one event loop; `say` hears what a person should know, from any thread."""

    def __init__(
        self, session_request: SessionRequest, notify: Callable[[str], None], max_sessions: int = MAX_SESSIONS
    ) -> None:
        self.context_window = 0  # tokens that a conversation may have; 0: not known yet
        self._session_request, self._notify, self._max_sessions = (
            replace(session_request, is_kept=False, kind=SESSION_KIND),
            notify,
            max_sessions,
        )
        self._idle: list[PooledSession] = []
        self._busy: dict[PooledSession, AnswerStream] = {}
        self._free_slots = asyncio.Semaphore(max_sessions)
        self._use_counter = 0
        self._is_closing = False

    async def preload(self) -> None:
        """Have the host begin to load, and learn how long a conversation may be. Waits for neither."""
        room = await self._acquire(ConversationHistory(), "")
        self._start_thread(room, self._run_preload)

    async def stream_answer(self, chat_request: ChatCompletionRequest) -> AsyncGenerator[Event]:
        """The events of an answer, when a room is free. Whoever stops to listen ends it."""
        room = await self._acquire(chat_request.history, chat_request.request.text)
        hearing = self._start_thread(room, lambda room, hearing: self._run_answer(room, chat_request, hearing))
        try:
            while (event := await hearing.events.get()) is not None:
                yield event
        finally:
            hearing.cancelled.set()

    def close(self) -> None:
        """End every answer, and hang up."""
        self._is_closing = True
        for hearing in self._busy.values():
            hearing.cancelled.set()
        for room in self._idle:
            room.close()

    async def _acquire(self, history: ConversationHistory, question: str) -> PooledSession:
        """The room that gains most; a new one rather than one that loses; else the one used longest ago."""
        await self._free_slots.acquire()
        same = [room for room in self._idle if room.settings == history.settings]
        room = max(same, key=lambda room: (room.reuse_score(history, question), room.last_used), default=None)
        if room is None or room.reuse_score(history, question) < 0:
            is_full = len(self._idle) + len(self._busy) >= self._max_sessions
            room = min(self._idle, key=lambda room: room.last_used) if is_full else PooledSession(self._session_request)
        self._idle = [each for each in self._idle if each is not room]
        return room

    def _start_thread(
        self, session: PooledSession, work: Callable[[PooledSession, AnswerStream], None]
    ) -> AnswerStream:
        """Do something in a room, on a thread that nobody waits for in the end."""
        hearing = self._busy[session] = AnswerStream()

        def run() -> None:
            try:
                work(session, hearing)
            finally:
                hearing.emit(None)
                hearing.call_in_loop(self._release, session)

        Thread(target=run, name="serve-room", daemon=True).start()
        return hearing

    def _release(self, session: PooledSession) -> None:
        del self._busy[session]
        self._use_counter += 1
        session.last_used = self._use_counter
        if self._is_closing:
            session.close()
        self._idle.append(session)
        self._free_slots.release()

    def _run_preload(self, session: PooledSession, _stream: AnswerStream) -> None:
        try:
            conversation = session.open_conversation(SessionSettings())
            self.context_window = conversation.context_window
            if conversation.call("stats")["state"] != ENGINE_READY:
                self._notify("the models are loading; the first answer waits for them")
        except (SpecchatError, ConnectionError) as error:
            self._notify(str(error))

    def _run_answer(self, session: PooledSession, chat_request: ChatCompletionRequest, stream: AnswerStream) -> None:
        try:
            is_loading = False
            for event in session.stream_answer(chat_request, stream.cancelled):
                if isinstance(event, LoadingProgress) and not is_loading:
                    self._notify(f"loading the {event.label} model")
                    is_loading = True
                stream.emit(event)
        except SpecchatError as error:
            stream.emit(Failed.from_error(error))
        except ConnectionError as error:
            stream.emit(Failed(f"the engine process is gone: {error}", HostError.exit_code))
        except Exception as error:  # the edge: a thread has nobody above it
            log.exception("an answer failed")
            stream.emit(Failed(f"unexpected {type(error).__name__}"))
            session.close()
