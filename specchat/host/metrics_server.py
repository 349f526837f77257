"""Serves the metrics page over HTTP, on the loopback address only, in a thread of its own.

The page holds no conversation text. Still, a website open in a browser could reach the port through DNS rebinding, so
the Host header must name the loopback address. The server handles one reader at a time and drops slow readers.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import SHUT_RDWR
from socketserver import TCPServer
from threading import Thread, Timer
from typing import Any

from specchat.errors import HostError

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
METRICS_PATH = "/metrics"
READ_TIMEOUT_SECONDS = 2.0
REQUEST_SECONDS = 5.0  # for a whole request: a byte a second would keep the only thread busy
MAX_PORT = 65535


class MetricsServer:
    """Opens and closes the metrics port. A file keeps the port number for the next host."""

    def __init__(self, render_page: Callable[[], bytes], port_file: Path | None = None) -> None:
        self._render_page, self._port_file = render_page, port_file
        self._server: HTTPServer | None = None

    @property
    def port(self) -> int:
        """The open port; 0 when closed."""
        return self._server.server_port if self._server else 0

    def set_port(self, port: int) -> None:
        """Serve on this port; 0 closes the server. On HostError (port not available) nothing changes."""
        if not 0 <= port <= MAX_PORT:
            raise HostError(f"{port} is not a port; give a number from 1 to {MAX_PORT}, or 0 for none")
        if port != self.port:
            opened = _bind(port, self._render_page) if port else None
            self.close()
            self._server = opened
            if opened:
                Thread(target=opened.serve_forever, name="metrics", daemon=True).start()
        if self._port_file:
            self._port_file.write_text(f"{port}\n", encoding="ascii")

    def restore_port(self) -> None:
        """Serve on the port of the previous host, if it is available."""
        try:
            if self._port_file and self._port_file.is_file():
                self.set_port(int(self._port_file.read_text(encoding="ascii")))
        except (HostError, ValueError, OSError) as error:
            log.warning("metrics: %s", error)

    def close(self) -> None:
        """Stop serving, without waiting: the server loop polls twice a second."""
        server, self._server = self._server, None
        if server:
            Thread(target=_shut_down, args=(server,), name="metrics", daemon=True).start()


def _bind(port: int, page: Callable[[], bytes]) -> HTTPServer:
    class Handler(_RequestHandler):
        allowed_hosts = (f"{LOOPBACK}:{port}", f"localhost:{port}")
        render_page = staticmethod(page)

    try:
        return _LoopbackServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise HostError(f"metrics: port {port} is not available ({error.strerror}); choose another port") from None


def _shut_down(server: HTTPServer) -> None:
    server.shutdown()
    server.server_close()


class _LoopbackServer(HTTPServer):
    def server_bind(self) -> None:
        """Bind as the parent class does, without its DNS lookup of the host name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.socket.getsockname()[1]


class _RequestHandler(BaseHTTPRequestHandler):
    timeout = READ_TIMEOUT_SECONDS
    server_version = "specchat"
    sys_version = ""
    allowed_hosts: tuple[str, ...]  # values of the Host header
    render_page: Callable[[], bytes]

    def handle(self) -> None:
        """Handle a request, and cut a client that takes longer than REQUEST_SECONDS, however busy it seems."""
        cut = Timer(REQUEST_SECONDS, self._cut)
        cut.daemon = True
        cut.start()
        try:
            super().handle()
        except OSError:
            pass  # it was cut, or has disconnected
        finally:
            cut.cancel()

    def _cut(self) -> None:
        with suppress(OSError):  # already closed
            self.connection.shutdown(SHUT_RDWR)

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.allowed_hosts:
            self.send_error(403, "use the host name 127.0.0.1")
        elif self.path != METRICS_PATH:
            self.send_error(404, f"the only page is {METRICS_PATH}")
        else:
            from specchat.host.metrics_page import CONTENT_TYPE

            body = self.render_page()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scrape every few seconds would fill the host log."""
