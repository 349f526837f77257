"""The sockets: requests in, answers out, as JSON or as a stream of events. What they mean is known elsewhere."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from specchat.chat.events import Event
from specchat.errors import SpecchatError, UsageError
from specchat.host.client import Wish
from specchat.host.protocol import LINE_BYTES
from specchat.serve.api_errors import SERVERS_FAULT, Fault, fault_of
from specchat.serve.authorization import Guard, is_loopback
from specchat.serve.requests import check_model, read_asked, read_body
from specchat.serve.responses import LAST, Telling, line, model_entry, models_page
from specchat.serve.session_pool import Rooms

log = logging.getLogger(__name__)

RUNNING: dict[str, Any] = {
    "access_log": None,
    "shutdown_timeout": 5.0,  # seconds
    "handler_cancellation": True,  # a client that hangs up ends its answer
}
STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
SERVED = "/v1/models and /v1/chat/completions are"


@dataclass(frozen=True)
class Offer:
    """What is served to whom: conversations as `wish` has them, under the name of a model."""

    model: str
    wish: Wish
    guard: Guard


class Service:
    """The API, as aiohttp runs it."""

    def __init__(self, offer: Offer, say: Callable[[str], None]) -> None:
        self._offer, self._say = offer, say
        self._created = int(time.time())
        self._rooms: Rooms | None = None

    def application(self) -> web.Application:
        """For one event loop."""
        application = web.Application(middlewares=[self._edge], client_max_size=LINE_BYTES)
        application.add_routes([
            web.get("/v1/models", self.models),
            web.get("/v1/models/{name:.+}", self.model),
            web.post("/v1/chat/completions", self.chat),
        ])  # fmt: skip
        application.on_startup.append(self._begin)
        application.on_shutdown.append(self._end)
        return application

    @property
    def rooms(self) -> Rooms:
        """Where answers come from."""
        assert self._rooms is not None
        return self._rooms

    async def models(self, _request: web.Request) -> web.Response:
        """What there is."""
        return web.json_response(models_page(self._offer.model, self._created, self.rooms.window))

    async def model(self, request: web.Request) -> web.Response:
        """One of them."""
        check_model(request.match_info["name"], self._offer.model)
        return web.json_response(model_entry(self._offer.model, self._created, self.rooms.window))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """One answer."""
        asked = read_asked(read_body(await request.read()), self._offer.model)
        telling = Telling(self._offer.model, asked.tells_usage)
        async with aclosing(self.rooms.answer(asked)) as events:
            if asked.is_streamed:
                return await _streamed(request, events, telling)
            async for event in events:
                telling.hear(event)
        return web.json_response(telling.completion())

    @web.middleware
    async def _edge(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who may, and tell every fault as this API does."""
        headers = request.headers
        refusal = self._offer.guard.refusal(request.host, headers.get("Origin"), headers.get("Authorization"))
        if refusal is not None:
            return _told(refusal)
        try:
            return await handler(request)
        except SpecchatError as error:
            return _told(fault_of(error))
        except web.HTTPNotFound:
            return _told(Fault(404, f"{request.path} is not served here; {SERVED}"))
        except web.HTTPException as error:
            return _told(Fault(error.status, f"{request.method} {request.path}: {error.reason}"))
        except ConnectionError:
            raise  # whoever asked has gone
        except Exception as error:  # the edge: no request may end the server
            log.exception("a request failed")
            return _told(Fault(SERVERS_FAULT, f"unexpected {type(error).__name__}; the server's stderr says where"))

    async def _begin(self, _: web.Application) -> None:
        self._rooms = Rooms(self._offer.wish, self._say)
        await self._rooms.warm()

    async def _end(self, _: web.Application) -> None:
        self.rooms.close()


async def _streamed(request: web.Request, events: AsyncGenerator[Event], telling: Telling) -> web.StreamResponse:
    """Chunks as they come. What fails before the first word still has a status of its own."""
    response = web.StreamResponse(headers=STREAM_HEADERS)
    try:
        async for event in events:
            if text := telling.hear(event):
                await _open(response, request, telling)
                await response.write(line(telling.chunk(text)))
        await _open(response, request, telling)
        for chunk in telling.last_chunks():
            await response.write(line(chunk))
        await response.write(LAST)
    except SpecchatError as error:
        if not response.prepared:
            raise
        await response.write(line(fault_of(error).body()))
    await response.write_eof()
    return response


async def _open(response: web.StreamResponse, request: web.Request, telling: Telling) -> None:
    """The first chunk, once."""
    if not response.prepared:
        await response.prepare(request)
        await response.write(line(telling.first_chunk()))


def _told(fault: Fault) -> web.Response:
    return web.json_response(fault.body(), status=fault.status)


def listen(host: str, port: int) -> socket.socket:
    """A socket; port 0 takes a free one. UsageError when it cannot be had."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, number)
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror}") from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        raise UsageError(f"{host}, port {port}: {error.strerror}; take another --port") from error
    return listening


def is_for_this_machine_alone(listening: socket.socket) -> bool:
    """Whether nobody else can reach this socket."""
    return is_loopback(str(listening.getsockname()[0]))


def serve(offer: Offer, listening: socket.socket, say: Callable[[str], None], ready: Callable[[], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. `ready` is called once somebody would be answered."""
    web.run_app(Service(offer, say).application(), sock=listening, print=lambda *_: ready(), **RUNNING)
