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
METRICS_PATH = "/metrics"
READ_TIMEOUT_SECONDS = 2.0
MAX_PORT = 65535


class MetricsServer:
    """Opened and closed as clients of the host wish; the port is kept in a file, for the host that comes after."""

    def __init__(self, render_page: Callable[[], str], port_file: Path | None = None) -> None:
        self._render_page, self._port_file = render_page, port_file
        self._server: HTTPServer | None = None

    @property
    def port(self) -> int:
        """Where it listens, 0 when it is closed."""
        return self._server.server_port if self._server else 0

    def set_port(self, port: int) -> None:
        """Listen there from now on, 0: nowhere. HostError when the port is not to be had; then nothing changes."""
        if not 0 <= port <= MAX_PORT:
            raise HostError(f"{port} is no port; give one up to {MAX_PORT}, or 0 for none")
        if port != self.port:
            opened = _bind(port, self._render_page) if port else None
            self.close()
            self._server = opened
            if opened:
                Thread(target=opened.serve_forever, name="meters", daemon=True).start()
        if self._port_file:
            self._port_file.write_text(f"{port}\n", encoding="ascii")

    def restore_port(self) -> None:
        """Listen where the host before did, if it can be."""
        try:
            if self._port_file and self._port_file.is_file():
                self.set_port(int(self._port_file.read_text(encoding="ascii")))
        except (HostError, ValueError, OSError) as error:
            log.warning("metrics: %s", error)

    def close(self) -> None:
        """Listen no longer."""
        server, self._server = self._server, None
        if server:
            Thread(
                target=_shut_down, args=(server,), name="meters", daemon=True
            ).start()  # its loop looks up twice a second


def _bind(port: int, render_page: Callable[[], str]) -> HTTPServer:
    class Reader(_RequestHandler):
        names = (f"{LOOPBACK}:{port}", f"localhost:{port}")
        written = staticmethod(render_page)

    try:
        return _LoopbackServer((LOOPBACK, port), Reader)
    except OSError as error:
        raise HostError(f"metrics: port {port} is not to be had ({error.strerror}); take another one") from None


def _shut_down(server: HTTPServer) -> None:
    server.shutdown()
    server.server_close()


class _LoopbackServer(HTTPServer):
    def server_bind(self) -> None:
        """As its parent does, but without asking the network how our number is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.socket.getsockname()[1]


class _RequestHandler(BaseHTTPRequestHandler):
    """One request for the page."""

    timeout = READ_TIMEOUT_SECONDS
    server_version = "specchat"
    sys_version = ""
    allowed_hosts: tuple[str, ...]  # under which we may be asked
    render_page: Callable[[], str]

    def do_GET(self) -> None:
        """Tell, if it is us who are asked, and this."""
        if self.headers.get("Host") not in self.allowed_hosts:
            self.send_error(403, "ask for 127.0.0.1")
        elif self.path != METRICS_PATH:
            self.send_error(404, f"there is only {METRICS_PATH}")
        else:
            body = self.render_page().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Readers come every few seconds; the log of the host is for what goes wrong."""
