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
from specchat.web.browser_access import BrowserAccess
from specchat.web.browser_tab import BrowserTab

LOOPBACK = "127.0.0.1"
VALID_SIZES = range(1, 1000)  # columns or rows that a browser may ask for
SHUTDOWN_TIMEOUT_SECONDS = 15.0
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class AuthenticatedServer(Server):
    """Serves one command, a process of it for each tab, to the browser that the guard knows."""

    def __init__(self, command: Sequence[str], access: BrowserAccess, title: str) -> None:
        super().__init__(" ".join(command), title=title, public_url=access.origin)
        self._access = access
        self._arguments = tuple(command)
        self._open_websockets: set[web.WebSocketResponse] = set()

    async def application(self) -> web.Application:
        """What aiohttp runs."""
        application = await self._make_app()
        application.middlewares.append(self._access_middleware)
        return application

    async def on_startup(self, app: web.Application) -> None:
        """Nothing to say on stdout."""

    async def on_shutdown(self, app: web.Application) -> None:
        """Close every tab, which ends its process."""
        for websocket in list(self._open_websockets):
            await websocket.close()

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """A tab: a process of its own, for as long as the tab is open."""
        websocket = web.WebSocketResponse(heartbeat=15)
        await websocket.prepare(request)
        self._open_websockets.add(websocket)
        window = BrowserTab(
            self._arguments, websocket.send_bytes, websocket.send_str, _close_callback(websocket), self.download_manager
        )
        try:
            await window.start(_requested_size(request, "width", 80), _requested_size(request, "height", 24))
            await self._process_messages(websocket, window)
        finally:
            self._open_websockets.discard(websocket)
            await window.stop()
        return websocket

    @property
    def _access_middleware(self) -> Middleware:
        guard = self._access

        @web.middleware
        async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
            is_socket = request.path == "/ws"
            if not guard.is_same_origin(request.host, request.headers.get("Origin"), needs_origin=is_socket):
                raise web.HTTPForbidden(text="open the address as it was printed\n", headers=SECURITY_HEADERS)
            if "token" in request.query:
                return _login_response(guard, request.query["token"])
            if not guard.is_valid_cookie(request.cookies.get(guard.cookie_name, "")):
                raise web.HTTPForbidden(
                    text="run 'specchat web' again for an address that lets you in\n", headers=SECURITY_HEADERS
                )
            response = await handler(request)
            if not response.prepared:
                response.headers.update(SECURITY_HEADERS)
            return response

        return admit


def bind_loopback_socket(port: int) -> socket.socket:
    """A socket on loopback; port 0 takes a free one. UsageError when somebody else has it."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
    except OSError as error:
        listening.close()
        raise UsageError(f"port {port}: {error.strerror}; take another one, or leave --port out") from error
    return listening


def serve(command: Sequence[str], listener: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `tell` hears the address once it answers. No process of a tab stays behind."""
    guard = BrowserAccess(f"{LOOPBACK}:{listener.getsockname()[1]}")
    server = AuthenticatedServer(command, guard, title="specchat")

    def say(_: object) -> None:
        on_ready(guard.login_url)

    web.run_app(
        server.application(), sock=listener, print=say, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_SECONDS
    )


def _login_response(access: BrowserAccess, token: str) -> web.Response:
    cookie = access.exchange_token(token)
    if cookie is None:
        return web.Response(
            status=403, text="this address was used already; run 'specchat web' again\n", headers=SECURITY_HEADERS
        )
    response = web.Response(status=303, headers={**SECURITY_HEADERS, "Location": "/"})
    response.set_cookie(access.cookie_name, cookie, httponly=True, samesite="Lax")
    return response


def _close_callback(websocket: web.WebSocketResponse) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        await websocket.close()

    return close


def _requested_size(request: web.Request, name: str, default: int) -> int:
    try:
        size = int(request.query.get(name, default))
    except ValueError:
        return default
    return size if size in VALID_SIZES else default
