"""A server at a URL that sends anything: its start or its call ends in one line, in time, with bounded memory."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from started_servers import PATIENT_SECONDS, call

from specchat_mcp.server_settings import ServerSettings
from tests import hostile_server
from tests.each_row import each_row
from tests.hostile_server import MIB, Reply, deep_json, drip, flood, head, page

CALL_SECONDS = 2.0
MAX_SENT_BYTES = 40 * MIB  # 16 MiB are read, and what lies in the buffers of both sockets
ID = "the id of the request"


class HostileMcp(ThreadingHTTPServer):
    """A server with one tool, `go`, that answers one method with a hostile reply."""

    daemon_threads = True

    def __init__(self, method: str, reply: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.method, self.reply, self.sent_bytes, self.is_closing = method, reply, 0, threading.Event()
        self.address = f"http://127.0.0.1:{self.server_port}/mcp"


class _Handler(BaseHTTPRequestHandler):
    server: HostileMcp

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send(iter([head("405 No", Content_Length=0)]))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tool = {"name": "go", "inputSchema": {"type": "object"}}
        results = {
            "initialize": {
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "1"},
            },
            "tools/list": {"tools": [tool]},
            "tools/call": {"content": [{"type": "text", "text": "well"}]},
        }  # fmt: skip
        if request["method"] == self.server.method:
            self._send(self.server.reply(), str(request.get("id")).encode())
        elif "id" not in request:
            self._send(iter([head("202 Accepted", Content_Length=0)]))
        elif request["method"] in results:
            self._send(
                page(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": results[request["method"]]}))()
            )
        else:
            error = {"code": -32601, "message": "no such method"}
            self._send(page(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}))())

    def _send(self, pieces: Iterator[bytes], request_id: bytes = b"") -> None:
        self.close_connection = True
        with suppress(OSError):
            for piece in pieces:
                if self.server.is_closing.wait(0 if piece else hostile_server.PAUSE_SECONDS):
                    return
                self.wfile.write(piece.replace(ID.encode(), request_id))
                self.server.sent_bytes += len(piece)


@contextmanager
def hostile_mcp(method: str, reply: Reply) -> Iterator[HostileMcp]:
    server = HostileMcp(method, reply)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.is_closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def events(*pieces: bytes) -> Reply:
    """A stream of events that goes on with the last piece without an end."""
    begin = head(Content_Type="text/event-stream")
    return lambda: itertools.chain([begin, *pieces[:-1]], itertools.repeat(pieces[-1]))


def dripping_events(piece: bytes) -> Reply:
    return lambda: itertools.chain(
        [head(Content_Type="text/event-stream")], itertools.cycle([hostile_server.NOTHING, piece])
    )  # fmt: skip


def result(content: bytes) -> Reply:
    body = b'{"jsonrpc":"2.0","id":' + ID.encode() + b',"result":' + content + b"}"
    return lambda: iter([head(Content_Type="application/json"), body])


NOTE = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n\n'
REPLIES = [
    ("no header", hostile_server.hang),
    ("headers byte by byte", hostile_server.dripping_headers),
    ("headers without an end", hostile_server.endless_headers),
    ("a body byte by byte", drip(Content_Type="application/json")),
    ("a body without an end", flood(b" " * 2**16, Content_Type="application/json")),
    ("an error without an end", flood(b" " * 2**16, status="500 No")),
    ("a chunk without an end", hostile_server.endless_chunk),
    ("a packed body", hostile_server.gzip_bomb),
    ("deep JSON", page(deep_json(1_000_000))),
    ("a deep result", result(b'{"content":' + deep_json(1_000_000) + b"}")),
    ("a result that is a number", result(b"5")),
    ("no UTF-8", page(b"\xff\xfe")),
    ("an empty body", page(b"")),
    ("an odd type", page(b"<html>", Content_Type="text/html")),
    ("an event without an end", events(b"data: ", b"x" * 2**16)),
    ("events without an end", events(NOTE)),
    ("comments for ever", dripping_events(b": I am alive\n\n")),
    ("deep events", events(b"data: " + deep_json(100_000) + b"\n\n")),
    ("an event of another request", dripping_events(b'data: {"jsonrpc":"2.0","id":999,"result":{}}\n\n')),
    ("a redirect to another host", lambda: iter([head("307 No", Location="http://127.0.0.1:9/", Content_Length=0)])),
    ("a redirect in a circle", lambda: iter([head("307 No", Location="/mcp", Content_Length=0)])),
]


def check_line(text: str) -> None:
    assert "\n" not in text and "\x1b" not in text and len(text) < 400, text[:500]


@each_row("name, reply", REPLIES)
def test_a_call_over_http_ends_in_a_line(start, name, reply):
    with hostile_mcp("tools/call", reply) as server:
        servers = start(
            ServerSettings("web", url=server.address, start_seconds=PATIENT_SECONDS, call_seconds=CALL_SECONDS)
        )
        outcome = call(servers, "web__go")

        assert outcome.is_error, outcome.text[:200]
        check_line(outcome.text)
        assert server.sent_bytes < MAX_SENT_BYTES


@pytest.mark.full
@each_row("name, reply", REPLIES)
def test_a_start_over_http_ends_in_a_line(start, name, reply):
    with hostile_mcp("initialize", reply) as server:
        servers = start(
            ServerSettings("web", url=server.address, start_seconds=CALL_SECONDS, call_seconds=CALL_SECONDS)
        )

        assert () == servers.tools(threading.Event())
        [notice] = servers.take_notices()
        check_line(notice)
        assert server.sent_bytes < MAX_SENT_BYTES


@each_row("name, reply", REPLIES[:2])
def test_a_stop_ends_a_call_that_would_wait(start, name, reply):
    with hostile_mcp("tools/call", reply) as server:
        servers = start(ServerSettings("web", url=server.address, start_seconds=PATIENT_SECONDS, call_seconds=3600))
        [tool] = servers.tools(threading.Event())
        stopped = threading.Event()
        threading.Timer(0.2, stopped.set).start()

        assert "the user stopped the call" in tool.run({}, stopped).text
