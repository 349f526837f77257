"""The transport to an MCP server at a URL: streamable HTTP, by the package `mcp`, with bounded responses.

The package bounds an event of a stream, and neither a stream nor a JSON response. It follows no redirect to another
origin, so the headers stay with the server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from specchat_mcp.server_settings import ServerSettings

MAX_RESPONSE_BYTES = 16 * 2**20
CONNECT_SECONDS = 10.0


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of a response, which fails when it is too long."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream, self._bytes_left = stream, MAX_RESPONSE_BYTES

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._bytes_left -= len(chunk)
            if self._bytes_left < 0:
                raise httpx2.ReadError(f"the server sent more than {MAX_RESPONSE_BYTES // 2**20} MiB for one request")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _bound(response: httpx2.Response) -> None:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _BoundedStream(response.stream)


@asynccontextmanager
async def http_transport(settings: ServerSettings) -> AsyncGenerator[tuple[Any, Any]]:
    """Exchange messages with the server."""
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=settings.call_seconds)
    client = httpx2.AsyncClient(headers=dict(settings.headers), timeout=timeout, event_hooks={"response": [_bound]})
    transport = streamable_http_client(settings.url, http_client=client, max_sse_event_size=MAX_RESPONSE_BYTES)
    async with client, transport as streams:
        yield streams
