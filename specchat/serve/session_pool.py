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

from specchat.chat.events import Event, Failed, Finished, Loading, Text
from specchat.chat.transcript import Exchange
from specchat.errors import HostError, SpecchatError
from specchat.host.client import Conversation, Wish
from specchat.serve.requests import Asked, Manner, Past

log = logging.getLogger(__name__)

CLIENT = "serve"
KIND = "serve"
MOST_ROOMS = 8  # answers at once; the host writes as many of them in turns as it has slots for
READY = "ready"
END, NOTHING = "\x1e", "\x00"  # after each message, and in the place of one


class Room:
    """A conversation with the host, and what was said in it. None stands for an exchange that came to nothing."""

    def __init__(self, wish: Wish) -> None:
        self.manner = Manner()
        self.said: list[Exchange | None] = []
        self.used = 0
        self._wish = wish
        self._conversation: Conversation | None = None

    def gain(self, past: Past, question: str) -> int:
        """Letters that need not be read again if this room goes on, without those that it would have to forget."""
        ours, theirs = _joined(self.said), _joined(past.said) + question
        common = common_letters(ours, theirs)
        return len(past.manner.system) + common - (len(ours) - common)

    def common(self, said: Sequence[Exchange]) -> int:
        """How many exchanges are the same from the beginning on."""
        pairs = enumerate(zip(self.said, said, strict=False))
        return next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(self.said), len(said)))

    def answer(self, asked: Asked, cancelled: Flag) -> Iterator[Event]:
        """Go on from the past that is asked for. HostError when there is no host."""
        if asked.past.manner != self.manner:
            self.close()
        try:
            conversation = self._gone_back(asked.past)
        except (HostError, ConnectionError):  # the host is another one, which knows nothing of this
            self.close()
            conversation = self._gone_back(asked.past)
        self.said.append(None)
        text: list[str] = []
        for event in conversation.ask(asked.request, cancelled):
            match event:
                case Text(text=more):
                    text.append(more)
                case Finished() if text:
                    self.said[-1] = Exchange(asked.request.text, "".join(text))
                case Failed():
                    self.close()  # nobody knows whether the host counts it among the turns
                case _:
                    pass
            yield event

    def opened(self, manner: Manner) -> Conversation:
        """The conversation, which is begun when there is none. Loads no model, but lets the host begin to."""
        if self._conversation is None:
            overrides = {**self._wish.overrides, **manner.overrides()}
            self._conversation = Conversation(replace(self._wish, overrides=overrides), CLIENT)
            self.manner = manner
        return self._conversation

    def close(self) -> None:
        """Hang up; the next question begins anew."""
        if self._conversation is not None:
            self._conversation.close()
        self._conversation, self.said = None, []

    def _gone_back(self, past: Past) -> Conversation:
        """The conversation where this past ends."""
        conversation, common = self.opened(past.manner), self.common(past.said)
        rest = past.said[common:]
        conversation.rewind(len(self.said) - common, rest)
        self.said[common:] = rest
        return conversation


def common_letters(ours: str, theirs: str) -> int:
    """How far two texts are the same."""
    shorter = range(min(len(ours), len(theirs)))
    return bisect_left(shorter, True, key=lambda at: ours[: at + 1] != theirs[: at + 1])


def _joined(said: Sequence[Exchange | None]) -> str:
    """All of it as one text. What came to nothing is like no text of anybody's."""
    return "".join(f"{each.user}{END}{each.answer}{END}" if each else NOTHING for each in said)


@dataclass(eq=False)
class Hearing:
    """An answer on its way from its thread to the event loop."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    events: asyncio.Queue[Event | None] = field(default_factory=asyncio.Queue["Event | None"])
    cancelled: Flag = field(default_factory=Flag)

    def tell(self, event: Event | None) -> None:
        """The next event, from any thread; None is the end."""
        self.call(self.events.put_nowait, event)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have something done by the loop; nothing when it has ended."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)


class Rooms:
    """A few conversations. For one event loop; `say` hears what a person should know, from any thread."""

    def __init__(self, wish: Wish, say: Callable[[str], None], most: int = MOST_ROOMS) -> None:
        self.window = 0  # tokens that a conversation may have; 0: not known yet
        self._wish, self._say, self._most = replace(wish, is_kept=False, kind=KIND), say, most
        self._idle: list[Room] = []
        self._busy: dict[Room, Hearing] = {}
        self._seats = asyncio.Semaphore(most)
        self._clock = 0
        self._is_closing = False

    async def warm(self) -> None:
        """Have the host begin to load, and learn how long a conversation may be. Waits for neither."""
        room = await self._enter(Past(), "")
        self._go(room, self._warm)

    async def answer(self, asked: Asked) -> AsyncGenerator[Event]:
        """The events of an answer, when a room is free. Whoever stops to listen ends it."""
        room = await self._enter(asked.past, asked.request.text)
        hearing = self._go(room, lambda room, hearing: self._answer(room, asked, hearing))
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

    async def _enter(self, past: Past, question: str) -> Room:
        """The room that gains most; a new one rather than one that loses; else the one used longest ago."""
        await self._seats.acquire()
        same = [room for room in self._idle if room.manner == past.manner]
        room = max(same, key=lambda room: (room.gain(past, question), room.used), default=None)
        if room is None or room.gain(past, question) < 0:
            is_full = len(self._idle) + len(self._busy) >= self._most
            room = min(self._idle, key=lambda room: room.used) if is_full else Room(self._wish)
        self._idle = [each for each in self._idle if each is not room]
        return room

    def _go(self, room: Room, work: Callable[[Room, Hearing], None]) -> Hearing:
        """Do something in a room, on a thread that nobody waits for in the end."""
        hearing = self._busy[room] = Hearing()

        def run() -> None:
            try:
                work(room, hearing)
            finally:
                hearing.tell(None)
                hearing.call(self._leave, room)

        Thread(target=run, name="serve-room", daemon=True).start()
        return hearing

    def _leave(self, room: Room) -> None:
        del self._busy[room]
        self._clock += 1
        room.used = self._clock
        if self._is_closing:
            room.close()
        self._idle.append(room)
        self._seats.release()

    def _warm(self, room: Room, _hearing: Hearing) -> None:
        try:
            conversation = room.opened(Manner())
            self.window = conversation.window
            if conversation.call("stats")["state"] != READY:
                self._say("the models are loading; the first answer waits for them")
        except (SpecchatError, ConnectionError) as error:
            self._say(str(error))

    def _answer(self, room: Room, asked: Asked, hearing: Hearing) -> None:
        try:
            is_loading = False
            for event in room.answer(asked, hearing.cancelled):
                if isinstance(event, Loading) and not is_loading:
                    self._say(f"loading the {event.what} model")
                    is_loading = True
                hearing.tell(event)
        except SpecchatError as error:
            hearing.tell(Failed.of(error))
        except ConnectionError as error:
            hearing.tell(Failed(f"the engine process is gone: {error}", HostError.exit_code))
        except Exception as error:  # the edge: a thread has nobody above it
            log.exception("an answer failed")
            hearing.tell(Failed(f"unexpected {type(error).__name__}"))
            room.close()
