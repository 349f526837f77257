"""Sends an answer over HTTP, whole or as a stream, in the words of any API. Knows no API and no model.

An API translates its requests to an EngineRequest (or a FimRequest), and the answer by a Reply.

A stream speaks at once: when nothing has come within 80 ms, its headers are sent with a sign of life,
and every ten seconds without a text another one. An error before that has its own status code; a later one is in the
stream.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Protocol

from aiohttp import web

from specchat.chat.events import Event, PrefillProgress
from specchat.chat.fim_request import FimRequest
from specchat.errors import SpecchatError
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import ApiError, to_api_error
from specchat_serve.engine_request import EngineRequest
from specchat_serve.json_fields import Body, JsonObject
from specchat_serve.llama_server_objects import RETURN_PROGRESS

EVENT_STREAM = "text/event-stream; charset=utf-8"
FIRST_SIGN_SECONDS, SIGN_SECONDS = 0.08, 10.0  # without a text, until a sign of life is sent


class Reply(Protocol):
    """The answer to one request in the words of an API. `whole` and `end` follow the last event of the answer."""

    content_type: str  # of a stream

    @property
    def answer(self) -> Answer:
        """The answer that comes."""
        ...

    def begin(self) -> bytes:
        """What stands before the first text of a stream."""
        ...

    def delta(self, delta: Delta) -> bytes: ...

    def sign_of_life(self, stage: str) -> bytes:
        """What a stream says while there is no text; `stage` is for people, such as "reading 900 of 3,000 tokens"."""
        ...

    def end(self) -> bytes: ...

    def failure(self, api_error: ApiError) -> bytes:
        """The end of a stream that fails after its begin."""
        ...

    def whole(self) -> JsonObject | list[JsonObject]: ...


class ProgressReply(Reply, Protocol):
    """One that can tell how much of the prompt is read."""

    def progress(self, prefill: PrefillProgress) -> bytes: ...


@dataclass(frozen=True)
class TranslatedRequest:
    request: EngineRequest | FimRequest
    reply: Reply
    is_streamed: bool = False
    other_requests: tuple[EngineRequest | FimRequest, ...] = ()  # whose answers follow, for the same reply
    progress: Callable[[PrefillProgress], bytes] | None = None  # of a stream that tells how much of the prompt is read
    shown: EngineRequest | None = None  # whose answer is the prompt, which the reply has then


def translated(
    body: Body,
    reply: ProgressReply,
    requests: Sequence[EngineRequest | FimRequest],
    shown: EngineRequest | None = None,
) -> TranslatedRequest:
    """These requests for one reply, with the fields of a body that say how it is sent."""
    first, *others = requests
    progress = reply.progress if body.flag(RETURN_PROGRESS) else None
    return TranslatedRequest(first, reply, body.flag("stream"), tuple(others), progress, shown)


async def send_reply(
    request: web.Request, events: AsyncGenerator[Event], translated: TranslatedRequest
) -> web.StreamResponse:
    reply = translated.reply
    if translated.is_streamed:
        return await _stream_reply(request, events, translated)
    async for event in events:
        reply.answer.on_event(event)
    return web.json_response(reply.whole())


async def answered_text(events: AsyncGenerator[Event]) -> str:
    """The text of an answer that is for the server itself."""
    answer = Answer()
    async with aclosing(events):
        async for event in events:
            answer.on_event(event)
    return answer.text


@dataclass
class _Stream:
    """The stream of one answer: its headers with the first sign of life or text, its begin with the first text."""

    request: web.Request
    reply: Reply
    has_begun: bool = False
    sign_at: float = field(default_factory=lambda: monotonic() + FIRST_SIGN_SECONDS)

    @cached_property
    def response(self) -> web.StreamResponse:
        return web.StreamResponse(headers={"Content-Type": self.reply.content_type, "Cache-Control": "no-cache"})

    async def begin(self) -> None:
        """Before a text and before the end: what stands at the beginning, once."""
        if not self.has_begun:
            self.has_begun = True
            await self.write(self.reply.begin())

    async def write(self, data: bytes) -> None:
        if not self.response.prepared:
            await self.response.prepare(self.request)
        if data:
            await self.response.write(data)
        self.sign_at = monotonic() + SIGN_SECONDS


async def _stream_reply(
    request: web.Request, events: AsyncGenerator[Event], translated: TranslatedRequest
) -> web.StreamResponse:
    """Send text as it arrives, and signs of life. An error before the first of both has its own status code."""
    reply, progress = translated.reply, translated.progress
    stream = _Stream(request, reply)
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            await asyncio.wait([coming], timeout=max(0.0, stream.sign_at - monotonic()))
            if coming.done():
                if (event := coming.result()) is None:
                    break
                coming = asyncio.ensure_future(anext(events, None))
                if delta := reply.answer.on_event(event):
                    await stream.begin()
                    await stream.write(reply.delta(delta))
                elif progress and isinstance(event, PrefillProgress):
                    await stream.begin()
                    await stream.write(progress(event))
            if monotonic() >= stream.sign_at:
                await stream.write(reply.sign_of_life(reply.answer.stage))
        await stream.begin()
        await stream.write(reply.end())
    except SpecchatError as error:
        if not stream.response.prepared:
            raise
        await stream.response.write(reply.failure(to_api_error(error)))
    finally:
        coming.cancel()
        await asyncio.wait([coming])  # the events can be closed only after it
    await stream.response.write_eof()
    return stream.response


def sse_comment(text: str) -> bytes:
    """A line that readers of server-sent events pass over."""
    return f": {text}\n\n".encode()


def sse_event(payload: JsonObject, name: str = "") -> bytes:
    """A server-sent event, with a name where the API has one."""
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(payload)}\n\n".encode()
