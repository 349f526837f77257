"""How much a server may send: bytes of a body, and of one event of a stream. Knows no API; the caller has the deadline.

The limits hold before a library collects a body or a line, and a packed body, which could be a thousand times as large
as what arrives, is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

MAX_PAGE_BYTES = 8 * 2**20  # of a list of models, or of an error
MAX_EVENT_BYTES = 2**20  # of a stream: all arguments of a tool call may come in one
EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
KNOWN_END_BYTES = max(map(len, EVENT_ENDS)) - 1
HEADERS = {"Accept-Encoding": "identity"}

_max_stream_bytes: ContextVar[int | None] = ContextVar("max_stream_bytes", default=None)  # None: a page


class BodyError(Exception):
    """What a server does wrong, as a predicate."""


def expect_stream(max_bytes: int) -> None:
    """Let the requests of this task have a stream of so many bytes, and no page."""
    _max_stream_bytes.set(max_bytes)


async def bound_body(response: Any) -> None:
    """The hook of an HTTP client for each response, before it reads the body."""
    stream_bytes = _max_stream_bytes.get()
    limits = (MAX_PAGE_BYTES, MAX_PAGE_BYTES) if stream_bytes is None else (stream_bytes, MAX_EVENT_BYTES)
    read = response.aiter_raw
    response.aiter_raw = lambda *arguments: _bounded(read, arguments, response.headers, *limits)


async def _bounded(
    read: Callable[..., AsyncIterator[bytes]], arguments: Any, headers: Any, max_bytes: int, max_event_bytes: int
) -> AsyncIterator[bytes]:
    if headers.get("content-encoding", "identity") != "identity":
        raise BodyError("sent a packed body, which it was asked not to do")
    body_bytes = event_bytes = 0
    end = b""  # of what came before, for an event that ends between two pieces
    async for piece in read(*arguments):
        body_bytes += len(piece)
        if body_bytes > max_bytes:
            raise BodyError(f"sent more than {max_bytes:,} bytes, which no answer to this needs")
        known = end + piece
        last_end = max(known.rfind(each) for each in EVENT_ENDS)
        event_bytes = event_bytes + len(piece) if last_end < 0 else len(known) - last_end
        if event_bytes > max_event_bytes:
            raise BodyError(f"sent more than {max_event_bytes:,} bytes in one piece of an answer")
        end = known[-KNOWN_END_BYTES:]
        yield piece
