"""A Textual program in a browser on this machine: textual-serve, with a guard at its door.

textual-serve alone lets in everybody who can reach the port. Here every request, the websocket's among them, passes the
guard first; nothing is logged that has a token in it; and a page may load nothing from anywhere else.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from textual_serve.server import Server

from specchat.errors import UsageError
from specchat.web.access_token import Guard
from specchat.web.browser_tab import Window

LOOPBACK = "127.0.0.1"
SIZES = range(1, 1000)  # columns or rows that a browser may ask for
CLOSE_SECONDS = 15.0
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class GuardedServer(Server):
    """Serves one command, a process of it for each tab, to the browser that the guard knows."""

    def __init__(self, command: Sequence[str], guard: Guard, title: str) -> None:
        super().__init__(" ".join(command), title=title, public_url=guard.origin)
        self._guard = guard
        self._words = tuple(command)
        self._open: set[web.WebSocketResponse] = set()

    async def application(self) -> web.Application:
        """What aiohttp runs."""
        application = await self._make_app()
        application.middlewares.append(self._admit)
        return application

    async def on_startup(self, app: web.Application) -> None:
        """Nothing to say on stdout."""

    async def on_shutdown(self, app: web.Application) -> None:
        """Close every tab, which ends its process."""
        for websocket in list(self._open):
            await websocket.close()

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """A tab: a process of its own, for as long as the tab is open."""
        websocket = web.WebSocketResponse(heartbeat=15)
        await websocket.prepare(request)
        self._open.add(websocket)
        window = Window(
            self._words, websocket.send_bytes, websocket.send_str, _closing(websocket), self.download_manager
        )
        try:
            await window.start(_size(request, "width", 80), _size(request, "height", 24))
            await self._process_messages(websocket, window)
        finally:
            self._open.discard(websocket)
            await window.stop()
        return websocket

    @property
    def _admit(self) -> Middleware:
        guard = self._guard

        @web.middleware
        async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
            is_socket = request.path == "/ws"
            if not guard.is_ours(request.host, request.headers.get("Origin"), needs_origin=is_socket):
                raise web.HTTPForbidden(text="open the address as it was printed\n", headers=HEADERS)
            if "token" in request.query:
                return _let_in(guard, request.query["token"])
            if not guard.knows(request.cookies.get(guard.cookie_name, "")):
                raise web.HTTPForbidden(
                    text="run 'specchat web' again for an address that lets you in\n", headers=HEADERS
                )
            response = await handler(request)
            if not response.prepared:
                response.headers.update(HEADERS)
            return response

        return admit


def listen(port: int) -> socket.socket:
    """A socket on loopback; port 0 takes a free one. UsageError when somebody else has it."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
    except OSError as error:
        listening.close()
        raise UsageError(f"port {port}: {error.strerror}; take another one, or leave --port out") from error
    return listening


def serve(command: Sequence[str], listening: socket.socket, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `tell` hears the address once it answers. No process of a tab stays behind."""
    guard = Guard(f"{LOOPBACK}:{listening.getsockname()[1]}")
    server = GuardedServer(command, guard, title="specchat")

    def say(_: object) -> None:
        tell(guard.address)

    web.run_app(server.application(), sock=listening, print=say, access_log=None, shutdown_timeout=CLOSE_SECONDS)


def _let_in(guard: Guard, token: str) -> web.Response:
    cookie = guard.spend(token)
    if cookie is None:
        return web.Response(
            status=403, text="this address was used already; run 'specchat web' again\n", headers=HEADERS
        )
    response = web.Response(status=303, headers={**HEADERS, "Location": "/"})
    response.set_cookie(guard.cookie_name, cookie, httponly=True, samesite="Lax")
    return response


def _closing(websocket: web.WebSocketResponse) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        await websocket.close()

    return close


def _size(request: web.Request, name: str, usual: int) -> int:
    try:
        size = int(request.query.get(name, usual))
    except ValueError:
        return usual
    return size if size in SIZES else usual
