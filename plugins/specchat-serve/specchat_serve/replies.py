"""Sends an answer over HTTP, whole or as a stream, in the words of any API. Knows no API and no model.

An API translates its requests to an EngineRequest (or a FimRequest), and the answer by a Reply.
"""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from specchat.chat.events import Event
from specchat.chat.fim_request import FimRequest
from specchat.errors import SpecchatError
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import ApiError, to_api_error
from specchat_serve.engine_request import EngineRequest
from specchat_serve.json_fields import JsonObject

EVENT_STREAM = "text/event-stream; charset=utf-8"


class Reply(Protocol):
    """The answer to one request in the words of an API. `whole` and `end` follow the last event of the answer."""

    answer: Answer
    content_type: str  # of a stream

    def begin(self) -> bytes:
        """What stands before the first text of a stream."""
        ...

    def delta(self, delta: Delta) -> bytes: ...

    def end(self) -> bytes: ...

    def failure(self, api_error: ApiError) -> bytes:
        """The end of a stream that fails after its begin."""
        ...

    def whole(self) -> JsonObject: ...


@dataclass(frozen=True)
class TranslatedRequest:
    request: EngineRequest | FimRequest
    reply: Reply
    is_streamed: bool = False


async def send_reply(
    request: web.Request, events: AsyncGenerator[Event], translated: TranslatedRequest
) -> web.StreamResponse:
    reply = translated.reply
    if translated.is_streamed:
        return await _stream_reply(request, events, reply)
    async for event in events:
        reply.answer.on_event(event)
    return web.json_response(reply.whole())


async def _stream_reply(request: web.Request, events: AsyncGenerator[Event], reply: Reply) -> web.StreamResponse:
    """Send text as it arrives. An error before the first text still has its own status code."""
    response = web.StreamResponse(headers={"Content-Type": reply.content_type, "Cache-Control": "no-cache"})
    try:
        async for event in events:
            if delta := reply.answer.on_event(event):
                await _begin(response, request, reply)
                await _write(response, reply.delta(delta))
        await _begin(response, request, reply)
        await response.write(reply.end())
    except SpecchatError as error:
        if not response.prepared:
            raise
        await response.write(reply.failure(to_api_error(error)))
    await response.write_eof()
    return response


async def _begin(response: web.StreamResponse, request: web.Request, reply: Reply) -> None:
    """Send the headers and the begin of the stream, unless already sent."""
    if not response.prepared:
        await response.prepare(request)
        await _write(response, reply.begin())


async def _write(response: web.StreamResponse, data: bytes) -> None:
    if data:
        await response.write(data)


def sse_event(payload: JsonObject, name: str = "") -> bytes:
    """A server-sent event, with a name where the API has one."""
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(payload)}\n\n".encode()
