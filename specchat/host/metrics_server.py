"""Where meters are read: one page over HTTP, on this machine alone. Serves on a thread of its own, so no answer waits.

The page holds no text, yet a website that a browser shows could reach the port by a name of its own for our number:
whoever asks must call us by number. One reader at a time, and one that dawdles is cut off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import TCPServer
from threading import Thread
from typing import Any

from specchat.errors import HostError
from specchat.host.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
PATH = "/metrics"
DAWDLING_SECONDS = 2.0
LARGEST_PORT = 65535


class MetersDoor:
    """Opened and closed as clients of the host wish; the port is kept in a file, for the host that comes after."""

    def __init__(self, page: Callable[[], str], remembered: Path | None = None) -> None:
        self._page, self._remembered = page, remembered
        self._server: HTTPServer | None = None

    @property
    def port(self) -> int:
        """Where it listens, 0 when it is closed."""
        return self._server.server_port if self._server else 0

    def move(self, port: int) -> None:
        """Listen there from now on, 0: nowhere. HostError when the port is not to be had; then nothing changes."""
        if not 0 <= port <= LARGEST_PORT:
            raise HostError(f"{port} is no port; give one up to {LARGEST_PORT}, or 0 for none")
        if port != self.port:
            opened = _listening(port, self._page) if port else None
            self.close()
            self._server = opened
            if opened:
                Thread(target=opened.serve_forever, name="meters", daemon=True).start()
        if self._remembered:
            self._remembered.write_text(f"{port}\n", encoding="ascii")

    def reopen(self) -> None:
        """Listen where the host before did, if it can be."""
        try:
            if self._remembered and self._remembered.is_file():
                self.move(int(self._remembered.read_text(encoding="ascii")))
        except (HostError, ValueError, OSError) as error:
            log.warning("metrics: %s", error)

    def close(self) -> None:
        """Listen no longer."""
        server, self._server = self._server, None
        if server:
            Thread(target=_end, args=(server,), name="meters", daemon=True).start()  # its loop looks up twice a second


def _listening(port: int, page: Callable[[], str]) -> HTTPServer:
    class Reader(_Reader):
        names = (f"{LOOPBACK}:{port}", f"localhost:{port}")
        written = staticmethod(page)

    try:
        return _Server((LOOPBACK, port), Reader)
    except OSError as error:
        raise HostError(f"metrics: port {port} is not to be had ({error.strerror}); take another one") from None


def _end(server: HTTPServer) -> None:
    server.shutdown()
    server.server_close()


class _Server(HTTPServer):
    def server_bind(self) -> None:
        """As its parent does, but without asking the network how our number is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.socket.getsockname()[1]


class _Reader(BaseHTTPRequestHandler):
    """One request for the page."""

    timeout = DAWDLING_SECONDS
    server_version = "specchat"
    sys_version = ""
    names: tuple[str, ...]  # under which we may be asked
    written: Callable[[], str]

    def do_GET(self) -> None:
        """Tell, if it is us who are asked, and this."""
        if self.headers.get("Host") not in self.names:
            self.send_error(403, "ask for 127.0.0.1")
        elif self.path != PATH:
            self.send_error(404, f"there is only {PATH}")
        else:
            body = self.written().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Readers come every few seconds; the log of the host is for what goes wrong."""
