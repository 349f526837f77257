"""The connections to the host, which share the scope of their texts: one answer on each thread. Knows no API.

A request brings the whole conversation, which goes to the engine as it is, by any connection: what the engine has
computed for the beginning within the scope of this server is found there. The history never stores these conversations,
because the client has them.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, takewhile
from threading import Event as Flag
from threading import Thread

from specchat.chat.events import Event, Failed, Finished, LoadingProgress, StepDone
from specchat.chat.fim_request import FimRequest
from specchat.errors import HostError, SpecchatError
from specchat.host.client import Conversation, SessionRequest
from specchat.host.protocol import new_id
from specchat.profile.settings import Settings, read_settings
from specchat_serve.completer import Completer
from specchat_serve.engine_request import EngineRequest

log = logging.getLogger(__name__)

CLIENT_NAME = "serve"  # also the kind of its sessions
MAX_CONNECTIONS = 8  # concurrent answers; the host interleaves as many as the engine has slots
ENGINE_READY = "ready"
NO_REPETITION_CHECK = {"limits.repeats": 0}  # a program gets what the model writes, unless it asks for less


class PooledConnection:
    """A connection to the host. Each request brings its turns and its settings, so any connection will do."""

    def __init__(self, session_request: SessionRequest) -> None:
        self._session_request = session_request
        self._completer: Completer | None = None
        self._conversation: Conversation | None = None

    def stream_events(self, request: EngineRequest | FimRequest, cancelled: Flag) -> Iterator[Event]:
        conversation = self.open_conversation()
        if isinstance(request, FimRequest):
            self._completer = self._completer or Completer(conversation)
            return self._completer.complete(request, cancelled)
        conversation.settings = self._settings.changed({**NO_REPETITION_CHECK, **request.changes})
        return conversation.ask(request.request, cancelled, request.turns)

    def open_conversation(self) -> Conversation:
        """The conversation, opened if necessary. The host then loads the models in the background."""
        if self._conversation is None:
            self._conversation = Conversation(replace(self._session_request, settings=self._settings), CLIENT_NAME)
        return self._conversation

    @property
    def context_window(self) -> int:
        """In tokens; 0 before the conversation is open."""
        return self._conversation.context_window if self._conversation else 0

    @cached_property
    def _settings(self) -> Settings:
        """Those of the server, which the fields of a request change."""
        return self._session_request.settings or read_settings()

    def close(self) -> None:
        if self._conversation is not None:
            self._conversation.close()
        self._conversation = self._completer = None


@dataclass(eq=False)
class AnswerStream:
    """Carries the events of one answer from its thread to the event loop."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    events: asyncio.Queue[Event | None] = field(default_factory=asyncio.Queue["Event | None"])  # None: the end
    cancelled: Flag = field(default_factory=Flag)
    steps: list[StepDone] = field(default_factory=list[StepDone])

    def emit(self, event: Event) -> None:
        """Add an event. Thread-safe."""
        self.call_in_loop(self.events.put_nowait, event)

    def call_in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the event loop; does nothing when the loop is closed."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)


class ConnectionPool:
    """The connections of one event loop.

    Calls `notify` with messages for the user, and `count_event` with the events of all answers, from any thread.
    """

    def __init__(
        self, session_request: SessionRequest, notify: Callable[[str], None], count_event: Callable[[Event], None]
    ) -> None:
        self.context_window = 0  # in tokens; 0: not known yet
        self.waiting_count = 0  # requests without a slot
        self._session_request = replace(
            session_request, is_stored=False, kind=CLIENT_NAME, text_scope=f"{CLIENT_NAME} {new_id()}"
        )
        self._notify, self._count_event = notify, count_event
        self._idle: list[PooledConnection] = []
        self._busy: dict[PooledConnection, AnswerStream] = {}
        self._free_slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._is_closing = False

    async def preload(self) -> None:
        """Make the host load the models, and read the context window. Does not wait for either."""
        await self._free_slots.acquire()
        self._start_thread(self._run_preload)

    async def stream_answers(self, *requests: EngineRequest | FimRequest) -> AsyncGenerator[Event]:
        """Wait for a free slot and yield the events of answers, one after the other. Closing it cancels them."""
        self.waiting_count += 1
        try:
            await self._free_slots.acquire()
        finally:
            self.waiting_count -= 1
        stream = self._start_thread(lambda connection, stream: self._run_answers(connection, requests, stream))
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
        for connection in self._idle:
            connection.close()

    def _start_thread(self, work: Callable[[PooledConnection, AnswerStream], None]) -> AnswerStream:
        """Run `work` with an idle connection, or a new one, on a daemon thread, and release it at its end."""
        connection = self._idle.pop() if self._idle else PooledConnection(self._session_request)
        stream = self._busy[connection] = AnswerStream()

        def run() -> None:
            try:
                work(connection, stream)
            finally:
                stream.call_in_loop(self._release, connection)

        Thread(target=run, name="serve-answer", daemon=True).start()
        return stream

    def _release(self, connection: PooledConnection) -> None:
        """Make the connection idle, and only then end its stream: its client may ask again at once."""
        stream = self._busy.pop(connection)
        self.context_window = self.context_window or connection.context_window
        if self._is_closing:
            connection.close()
        self._idle.append(connection)
        self._free_slots.release()
        stream.events.put_nowait(None)

    def _run_preload(self, connection: PooledConnection, _stream: AnswerStream) -> None:
        try:
            conversation = connection.open_conversation()
            self.context_window = connection.context_window
            if conversation.call("stats")["state"] != ENGINE_READY:
                self._notify("loading the models; the first answer waits for them")
        except (SpecchatError, ConnectionError) as error:
            self._notify(str(error))

    def _run_answers(
        self, connection: PooledConnection, requests: Iterable[EngineRequest | FimRequest], stream: AnswerStream
    ) -> None:
        try:
            shown = set[str]()
            wanted = takewhile(lambda _request: not stream.cancelled.is_set(), requests)
            for event in chain.from_iterable(connection.stream_events(each, stream.cancelled) for each in wanted):
                if isinstance(event, LoadingProgress) and event.stage not in shown:
                    shown.add(event.stage)
                    self._notify(event.stage)
                self._emit(stream, event)
        except SpecchatError as error:
            self._emit(stream, Failed.from_error(error))
        except ConnectionError as error:
            self._emit(stream, Failed(f"the engine process is gone: {error}", HostError.exit_code))
        except Exception as error:  # the edge of the thread
            log.exception("an answer failed")
            self._emit(stream, Failed(f"unexpected {type(error).__name__}"))
            connection.close()

    def _emit(self, stream: AnswerStream, event: Event) -> None:
        """Pass an event on. The steps of an answer count at its end, when it is known which of them are repeats."""
        if isinstance(event, StepDone):
            stream.steps.append(event)
        else:
            steps = event.kept_steps(stream.steps) if isinstance(event, Finished) else stream.steps
            for step in steps if isinstance(event, Finished | Failed) else ():
                self._count_event(step)
            self._count_event(event)
        if isinstance(event, Finished):
            stream.steps.clear()
        stream.emit(event)
