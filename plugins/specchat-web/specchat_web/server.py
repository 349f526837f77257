"""Serves a Textual program to a browser on this machine: textual-serve with access control.

textual-serve accepts every client that can reach the port. Here a middleware checks every request, websockets included.
No log contains a token, and pages may load nothing from other origins.
"""

import asyncio
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager
from textual_serve.server import Server

from specchat.errors import UsageError
from specchat_web.browser_access import BrowserAccess

LOOPBACK = "127.0.0.1"
VALID_SIZES = range(1, 1000)  # columns or rows that a browser may ask for
# Seconds: until headers are complete, and for the rest of a body, which no page here reads.
CONNECTION_OPTIONS: dict[str, Any] = {"keepalive_timeout": 30.0, "lingering_time": 5.0}
SHUTDOWN_TIMEOUT_SECONDS = 15.0
STOP_TIMEOUT_SECONDS = 10.0  # for the process of a tab to store its running answer
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


class BrowserTab(AppService):
    """Runs the command without a shell, and kills a process that does not exit in time."""

    def __init__(
        self,
        command: Sequence[str],
        write_bytes: Callable[[bytes], Awaitable[None]],
        write_str: Callable[[str], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
        download_manager: DownloadManager,
    ) -> None:
        super().__init__(
            " ".join(command), write_bytes=write_bytes, write_str=write_str, close=close,
            download_manager=download_manager,
        )  # fmt: skip
        self._arguments = tuple(command)

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        environment = self._build_environment(width=width, height=height)
        process = await asyncio.create_subprocess_exec(
            *self._arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment
        )
        self._process, self._stdin = process, process.stdin
        return process

    async def stop(self) -> None:
        """Ask the process to exit, then kill it."""
        try:
            await asyncio.wait_for(super().stop(), STOP_TIMEOUT_SECONDS)
        except TimeoutError:
            self._task = None
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class AuthenticatedServer(Server):
    def __init__(self, command: Sequence[str], access: BrowserAccess, title: str) -> None:
        super().__init__(" ".join(command), title=title, public_url=access.origin)
        self._access = access
        self._arguments = tuple(command)
        self._open_websockets: set[web.WebSocketResponse] = set()

    async def application(self) -> web.Application:
        """The aiohttp application."""
        application = await self._make_app()
        application.middlewares.append(self._access_middleware)
        return application

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing on stdout."""

    async def on_shutdown(self, app: web.Application) -> None:
        """Close every tab; its process exits."""
        for websocket in list(self._open_websockets):
            await websocket.close()

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run a process of the command while the tab is open."""
        websocket = web.WebSocketResponse(heartbeat=15)
        await websocket.prepare(request)
        self._open_websockets.add(websocket)

        async def close() -> None:
            await websocket.close()

        tab = BrowserTab(self._arguments, websocket.send_bytes, websocket.send_str, close, self.download_manager)
        try:
            await tab.start(_requested_size(request, "width", 80), _requested_size(request, "height", 24))
            await self._process_messages(websocket, tab)
        finally:
            self._open_websockets.discard(websocket)
            await tab.stop()
        return websocket

    @property
    def _access_middleware(self) -> Middleware:
        access = self._access

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            is_websocket = request.path == "/ws"
            if not access.is_same_origin(request.host, request.headers.get("Origin"), needs_origin=is_websocket):
                raise _forbidden("open the address exactly as specchat printed it")
            if "token" in request.query:
                return _login_response(access, request.query["token"])
            if not access.is_valid_cookie(request.cookies.get(access.cookie_name, "")):
                raise _forbidden("run 'specchat web' again for a new address")
            response = await handler(request)
            if not response.prepared:
                response.headers.update(SECURITY_HEADERS)
            return response

        return check


def bind_loopback_socket(port: int) -> socket.socket:
    """A socket on the loopback address; port 0 selects a free port. UsageError when the port is not available."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise UsageError(f"port {port}: {error.strerror}; choose another one, or omit --port") from error
    return listener


def serve(command: Sequence[str], listener: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; calls `on_ready` with the login URL. Ends the processes of all tabs."""
    access = BrowserAccess(f"{LOOPBACK}:{listener.getsockname()[1]}")
    application = AuthenticatedServer(command, access, title="specchat").application()

    def on_start(_banner: object) -> None:
        on_ready(access.login_url)

    web.run_app(
        application, sock=listener, print=on_start, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_SECONDS,
        **CONNECTION_OPTIONS,
    )  # fmt: skip


def _login_response(access: BrowserAccess, token: str) -> web.Response:
    cookie = access.exchange_token(token)
    if cookie is None:
        raise _forbidden("this address has been used already; run 'specchat web' again")
    response = web.Response(status=303, headers={**SECURITY_HEADERS, "Location": "/"})
    response.set_cookie(access.cookie_name, cookie, httponly=True, samesite="Lax")
    return response


def _forbidden(message: str) -> web.HTTPForbidden:
    return web.HTTPForbidden(text=f"{message}\n", headers=SECURITY_HEADERS)


def _requested_size(request: web.Request, name: str, default: int) -> int:
    try:
        size = int(request.query.get(name, default))
    except ValueError:
        return default
    return size if size in VALID_SIZES else default
