"""The one thread that talks to a server, by OpenAI's own client. Whoever asks waits for pieces and can leave at once.

An event loop, because only there a connection can be closed while something waits on it: a server must learn that
nobody listens any more before it says its next word, not after.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

from specchat.errors import ModelError
from specchat.fleet.server_errors import FALLBACK_HINT, is_connection_error, to_model_error
from specchat.fleet.server_metrics import SpecDecodeCounts, counts_between, counts_of_response

METRICS_TIMEOUT_SECONDS = 1.0  # for a page of metrics; a server that takes longer is not asked for one


@dataclass(frozen=True)
class ServerTimeouts:
    """How long a server may be silent, in seconds: when a connection is made, and between two words."""

    connect_seconds: float = 5.0
    read_seconds: float = 300.0


DEFAULT_TIMEOUTS = ServerTimeouts()


@dataclass(frozen=True)
class TextChunk:
    """More of the answer."""

    text: str


@dataclass(frozen=True)
class StreamEnd:
    """The answer is whole, with what the server told of it."""

    finish_reason: str  # as the server calls it
    prompt_tokens: int = 0
    reused_tokens: int = 0
    completion_tokens: int = 0
    spec_decode_counts: SpecDecodeCounts | None = None


StreamItem = TextChunk | StreamEnd | ModelError


class ResponseStream:
    """An answer on its way."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[StreamItem] = queue.SimpleQueue()
        self.future: Future[None] = Future()

    def next_item(self, timeout_seconds: float) -> StreamItem | None:
        """The next piece, None when there is nothing within this time."""
        try:
            return self.items.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def cancel(self) -> None:
        """Hang up; what is done already stays done."""
        self.future.cancel()


@dataclass
class _ChunkAccumulator:
    """What came of an answer so far."""

    text_chunk_count: int = 0
    finish_reason: str = ""
    usage: Any = None
    metrics: Any = None

    def add_chunk(self, chunk: Any) -> str:
        """One more chunk; its text."""
        self.usage = chunk.usage or self.usage
        self.metrics = (chunk.model_extra or {}).get("metrics") or self.metrics
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.finish_reason = choice.finish_reason or self.finish_reason
        text = choice.delta.content or ""
        self.text_chunk_count += bool(text)
        return text

    def to_stream_end(self, spec_decode_counts: SpecDecodeCounts | None) -> StreamEnd:
        """The end. A server that does not count tokens is taken to send one in each chunk."""
        usage = self.usage
        if usage is None:
            return StreamEnd(
                self.finish_reason, completion_tokens=self.text_chunk_count, spec_decode_counts=spec_decode_counts
            )
        details = usage.prompt_tokens_details
        reused = (details.cached_tokens or 0) if details else 0
        return StreamEnd(self.finish_reason, usage.prompt_tokens, reused, usage.completion_tokens, spec_decode_counts)


def read_api_key(path: str) -> str:
    """The key in a file, "" without one."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip() if path else ""
    except (OSError, UnicodeError) as error:
        raise ModelError(
            f"key_file {path}: cannot be read: {getattr(error, 'strerror', error)}; {FALLBACK_HINT}"
        ) from error


@dataclass(eq=False)
class ServerClient:
    """A server: questions and pages go out, pieces come in. `url` ends in /v1, as OpenAI's does."""

    url: str
    api_key: str = ""
    timeouts: ServerTimeouts = DEFAULT_TIMEOUTS
    _has_metrics_in_response: bool = field(default=False, init=False)  # of its guesses, so that no page is to be read

    def __post_init__(self) -> None:
        self._loop, self._closed = asyncio.new_event_loop(), asyncio.Event()
        self._thread = Thread(target=self._run_loop, name="fleet", daemon=True)
        silence = Timeout(self.timeouts.read_seconds, connect=self.timeouts.connect_seconds)
        # The host has no proxies, so nobody has; without redirects a plain address needs no certificates, slow to load.
        is_safe = self.url.startswith("https:")
        self._http = DefaultAsyncHttpxClient(trust_env=False, follow_redirects=False, verify=is_safe, timeout=silence)
        self._client = AsyncOpenAI(
            base_url=self.url, api_key=self.api_key or "none", max_retries=0, timeout=silence, http_client=self._http
        )
        self._thread.start()

    @property
    def root_url(self) -> str:
        """Where everything lies that is not OpenAI's."""
        return self.url.rstrip("/").removesuffix("/v1")

    def stream_chat(self, body: Mapping[str, Any]) -> ResponseStream:
        """Begin an answer."""
        reply = ResponseStream()
        reply.future = asyncio.run_coroutine_threadsafe(self._run_request(body, reply), self._loop)
        return reply

    def get_page(self, url: str, timeout_seconds: float = METRICS_TIMEOUT_SECONDS) -> str | None:
        """What stands at an address, None when the server has no such page; ModelError when there is no server."""
        work = asyncio.run_coroutine_threadsafe(self._get_with_retry(url, timeout_seconds), self._loop)
        try:
            return work.result(2 * (timeout_seconds + self.timeouts.connect_seconds))
        except Exception as error:
            raise to_model_error(error, self.url) from error

    def close(self) -> None:
        """Hang up for good; answers that are on their way end."""
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(METRICS_TIMEOUT_SECONDS)

    def _run_loop(self) -> None:
        """The life of the thread."""
        try:
            self._loop.run_until_complete(self._wait_until_closed())
        finally:
            self._loop.close()

    async def _wait_until_closed(self) -> None:
        await self._closed.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._http.aclose()

    async def _run_request(self, body: Mapping[str, Any], response: ResponseStream) -> None:
        """The work behind an answer; whatever goes wrong becomes its last piece."""
        try:
            before = await self._metrics_page()
            heard = await self._stream_with_retry(body, response)
            told = counts_of_response(heard.metrics)
            self._has_metrics_in_response = told is not None
            response.items.put(heard.to_stream_end(told or counts_between(before, await self._metrics_page())))
        except ModelError as error:
            response.items.put(error)
        except Exception as error:  # noqa: BLE001 - the edge: nobody else hears of this thread
            response.items.put(to_model_error(error, self.url))

    async def _stream_with_retry(self, body: Mapping[str, Any], response: ResponseStream) -> _ChunkAccumulator:
        """The whole answer. A connection that is lost before the first word is made once more."""
        heard = _ChunkAccumulator()
        try:
            await self._stream(body, response, heard)
        except Exception as error:
            if not is_connection_error(error) or heard.text_chunk_count:
                raise self._interrupted_error(error, heard) from error
            heard = _ChunkAccumulator()
            await self._stream(body, response, heard)
        if not heard.finish_reason:
            raise self._interrupted_error(None, heard)
        return heard

    def _interrupted_error(self, error: Exception | None, accumulator: _ChunkAccumulator) -> Exception:
        if accumulator.text_chunk_count and (error is None or is_connection_error(error)):
            return ModelError(
                f"the server at {self.url} hung up in the middle; what it said is kept, ask again; {FALLBACK_HINT}"
            )
        if error is None:
            return ModelError(f"the server at {self.url} answered nothing that can be understood; {FALLBACK_HINT}")
        return error

    async def _stream(self, body: Mapping[str, Any], response: ResponseStream, accumulator: _ChunkAccumulator) -> None:
        stream = await self._client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True})
        async with stream:
            async for chunk in stream:
                if text := accumulator.add_chunk(chunk):
                    response.items.put(TextChunk(text))

    async def _metrics_page(self) -> str | None:
        """The page of metrics, if there is one soon, and if it is needed."""
        if self._has_metrics_in_response:
            return None
        try:
            return await self._get(f"{self.root_url}/metrics", METRICS_TIMEOUT_SECONDS)
        except Exception:  # noqa: BLE001 - an answer without numbers is an answer
            return None

    async def _get_with_retry(self, url: str, timeout_seconds: float) -> str | None:
        """As `_get`, once more when the connection is lost."""
        try:
            return await self._get(url, timeout_seconds)
        except Exception as error:
            if not is_connection_error(error):
                raise
            return await self._get(url, timeout_seconds)

    async def _get(self, url: str, timeout_seconds: float) -> str | None:
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        found = await self._http.get(url, timeout=timeout_seconds, headers=headers)
        return found.text if found.status_code == 200 else None
