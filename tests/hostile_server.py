"""A server on loopback that sends what no server should: for tests of what talks to servers, whatever their protocol.

A reply is an iterator of pieces of bytes, from the status line on. It may be endless: it ends when the client has left,
or with the test. How much it could send is counted, as a measure of what a client keeps.
"""

from __future__ import annotations

import gzip
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Reply = Callable[[], Iterator[bytes]]
MIB = 2**20
PAUSE_SECONDS = 0.01  # between two pieces that drip
NOTHING = b""  # a pause without a byte


@dataclass
class HostileServer:
    replies: Mapping[str, Reply]  # by the beginning of a path; the first one that fits
    address: str = ""
    requests: list[str] = field(default_factory=list[str])  # their first lines
    tokens: list[str] = field(default_factory=list[str])  # the header `Authorization` of each; "" for none
    sent_bytes: int = 0
    is_closing: threading.Event = field(default_factory=threading.Event)

    def answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as received, suppress(OSError):
            line = received.readline().decode()
            pairs = [each.decode().partition(":") for each in iter(received.readline, b"\r\n")]
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            received.read(int(headers.get("content-length", 0)))
            self.requests.append(line.strip())
            self.tokens.append(headers.get("authorization", ""))
            path = line.split(" ")[1]
            for piece in next(reply for start, reply in self.replies.items() if path.startswith(start))():
                if self.is_closing.wait(0 if piece else PAUSE_SECONDS):
                    return
                connection.sendall(piece)
                self.sent_bytes += len(piece)
            connection.shutdown(socket.SHUT_WR)


@contextmanager
def hostile(replies: Mapping[str, Reply]) -> Iterator[HostileServer]:
    server = HostileServer(replies)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.address = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=server.answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield server
        finally:
            server.is_closing.set()
            listener.shutdown(socket.SHUT_RDWR)


def head(status: str = "200 OK", **headers: object) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def page(body: bytes | str, **headers: object) -> Reply:
    """A whole page."""
    data = body.encode() if isinstance(body, str) else body
    return lambda: iter([head(**{"Content_Length": len(data), "Content_Type": "application/json", **headers}), data])


def flood(piece: bytes, begin: bytes = b"", **headers: object) -> Reply:
    """A body without an end, as fast as the client takes it."""
    return lambda: itertools.chain([head(**headers) + begin], itertools.repeat(piece))


def drip(piece: bytes = b" ", begin: bytes = b"", **headers: object) -> Reply:
    """A body that goes on byte by byte: never silent for long, and never at its end."""
    return lambda: itertools.chain([head(**headers) + begin], itertools.cycle([NOTHING, piece]))


def hang(begin: bytes = b"") -> Iterator[bytes]:
    """Nothing more after this."""
    return itertools.chain([begin] if begin else [], itertools.repeat(NOTHING))


def endless_headers() -> Iterator[bytes]:
    return itertools.chain([b"HTTP/1.1 200 OK\r\n"], itertools.repeat(b"X: " + b"y" * 1000 + b"\r\n"))


def dripping_headers() -> Iterator[bytes]:
    return itertools.chain([b"HTTP/1.1 200 OK\r\nX: "], itertools.cycle([NOTHING, b"y"]))


def endless_chunk() -> Iterator[bytes]:
    """A piece of a body whose length is almost 4 GiB."""
    begin = head(Transfer_Encoding="chunked", Content_Type="text/event-stream") + b"fffffff0\r\n"
    return itertools.chain([begin], itertools.repeat(b"x" * 2**16))


def gzip_bomb() -> Iterator[bytes]:
    """256 MiB in about 1 MiB."""
    return page(gzip.compress(b" " * (32 * MIB), 1) * 8, Content_Encoding="gzip")()


def redirect_loop() -> Iterator[bytes]:
    return iter([head("307 Temporary Redirect", Location="/again", Content_Length=0)])


def deep_json(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def event(value: object) -> bytes:
    """A server-sent event; bytes as they are."""
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"
