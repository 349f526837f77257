"""Talks to a server with OpenAI's client library, on one thread with an event loop.

Only an event loop can close a connection while a read is waiting, so that the server notices a cancelled answer at
once, and not after its next token.
"""

import asyncio
import queue
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, TypeGuard

from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    Timeout,
)

from specchat.errors import ModelError
from specchat_fleet.bounded_body import HEADERS, BodyError, bound_body, expect_stream
from specchat_fleet.retry import asked_seconds, is_overload, seconds_until_retry
from specchat_fleet.server_metrics import MAX_COUNT, SpecDecodeCounts, counts_between, counts_of_response

FALLBACK_HINT = "--profile chat works without a server"
MAX_QUOTE_CHARS = 200
CLOSE_SECONDS = 1.0
# Some servers send a token in several pieces, and each piece has names and ids around it.
MAX_DELTAS_PER_TOKEN, MAX_OTHER_DELTAS = 4, 16
MAX_BYTES_PER_TOKEN, MAX_OTHER_BYTES = 2048, 2**20


@dataclass(frozen=True)
class ServerTimeouts:
    """Timeouts in seconds: for a new connection, between two chunks, and for whole requests."""

    connect_seconds: float = 5.0
    read_seconds: float = 300.0
    seconds_per_token: float = 5.0
    page_seconds: float = 5.0
    metrics_seconds: float = 1.0
    retry_seconds: float = 0.5  # the first wait for an overloaded server; each further one is twice as long

    def answer_seconds(self, max_tokens: int) -> float:
        return self.read_seconds + max_tokens * self.seconds_per_token


DEFAULT_TIMEOUTS = ServerTimeouts()
THINKING_FIELDS = ("reasoning_content", "reasoning")  # of most servers, and of newer vLLM and OpenRouter


@dataclass(frozen=True)
class TextChunk:
    text: str


@dataclass(frozen=True)
class ThinkingChunk:
    """Thinking that the server sends apart from the answer."""

    text: str


@dataclass(frozen=True)
class CallChunk:
    """A piece of a tool call. The first one has the name, and the id unless the server gives none."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Overloaded:
    """The server did not begin to answer; the question goes again after so many seconds."""

    seconds: float


@dataclass(frozen=True)
class StreamEnd:
    finish_reason: str  # the server's value
    prompt_tokens: int = 0
    reused_tokens: int = 0
    completion_tokens: int = 0
    spec_decode_counts: SpecDecodeCounts | None = None


AnswerChunk = TextChunk | ThinkingChunk | CallChunk
StreamItem = AnswerChunk | Overloaded | StreamEnd | ModelError


class ResponseStream:
    def __init__(self) -> None:
        self.items: queue.SimpleQueue[StreamItem] = queue.SimpleQueue()
        self.future: Future[None] = Future()

    def next_item(self, timeout_seconds: float) -> StreamItem | None:
        """The next item; None after the timeout."""
        try:
            return self.items.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def cancel(self) -> None:
        """Close the connection, unless the response is complete."""
        self.future.cancel()


@dataclass
class _ChunkAccumulator:
    max_tokens: int
    text_chunk_count: int = 0
    finish_reason: str = ""
    usage: Any = None
    other_fields: dict[str, Any] = field(default_factory=dict[str, Any])  # the last ones with numbers about the answer

    @property
    def is_too_long(self) -> bool:
        """Whether the server goes on where the answer has its length."""
        return self.text_chunk_count > self.max_tokens * MAX_DELTAS_PER_TOKEN + MAX_OTHER_DELTAS

    def add_chunk(self, chunk: Any) -> list[AnswerChunk]:
        self.usage = chunk.usage or self.usage
        others = chunk.model_extra or {}
        self.other_fields |= {name: others[name] for name in ("metrics", "timings") if others.get(name)}
        if not chunk.choices:
            return []
        choice = chunk.choices[0]
        self.finish_reason = _text(choice.finish_reason) or self.finish_reason
        others = choice.delta.model_extra or {}
        thinking = next((others[name] for name in THINKING_FIELDS if others.get(name)), "")
        chunks: list[AnswerChunk] = [ThinkingChunk(_text(thinking))] if thinking else []
        chunks += [TextChunk(_text(choice.delta.content))] if choice.delta.content else []
        chunks += map(_call_chunk, choice.delta.tool_calls or ())
        self.text_chunk_count += len(chunks)
        if self.is_too_long:
            self.finish_reason = "length"
            return []
        return chunks

    def to_stream_end(self, spec_decode_counts: SpecDecodeCounts | None) -> StreamEnd:
        """The end of the stream. Without a valid `usage`, each text chunk counts as one token."""
        prompt, completion = getattr(self.usage, "prompt_tokens", None), getattr(self.usage, "completion_tokens", None)
        if self.is_too_long or not (_is_count(prompt) and _is_count(completion)):
            return StreamEnd(self.finish_reason, 0, 0, self.text_chunk_count, spec_decode_counts)
        reused = getattr(self.usage.prompt_tokens_details, "cached_tokens", None)
        return StreamEnd(self.finish_reason, prompt, reused if _is_count(reused) else 0, completion, spec_decode_counts)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value < MAX_COUNT


def _text(value: Any) -> str:
    """A text of a server, "" for null. TypeError for anything else; half a character becomes "?"."""
    if not isinstance(value, str | None):
        raise TypeError("a text was expected")
    return (value or "").encode(errors="replace").decode()


def _call_chunk(call: Any) -> CallChunk:
    function = call.function
    name, arguments = (function.name, function.arguments) if function else ("", "")
    if not isinstance(call.index, int | None):
        raise TypeError("a number was expected")
    return CallChunk(call.index or 0, _text(call.id), _text(name), _text(arguments))


def read_api_key(path: str) -> str:
    """The API key in a file; "" without a path."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip() if path else ""
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", error)
        raise ModelError(f"api_key_file {path} is not readable: {reason}; {FALLBACK_HINT}") from error


@dataclass(eq=False)
class ServerClient:
    """The connection to one server. `url` ends in /v1, as OpenAI's does."""

    url: str
    api_key: str = ""
    timeouts: ServerTimeouts = DEFAULT_TIMEOUTS
    _metrics: str | None = field(default=None, init=False)  # the last metrics page; None: it is not asked for
    _open_answers: int = field(default=0, init=False)
    _begun_answers: int = field(default=0, init=False)  # since that page, and open ones from before it

    def __post_init__(self) -> None:
        self._loop, self._closed = asyncio.new_event_loop(), asyncio.Event()
        self._thread = Thread(target=self._run_loop, name="fleet", daemon=True)
        timeout = Timeout(self.timeouts.read_seconds, connect=self.timeouts.connect_seconds)
        # No proxies: the host has none. Without redirects, http URLs need no certificates, which are slow to load.
        is_https = self.url.startswith("https:")
        self._http = DefaultAsyncHttpxClient(
            trust_env=False, follow_redirects=False, verify=is_https, timeout=timeout,
            headers=HEADERS, event_hooks={"response": [bound_body]},
        )  # fmt: skip
        self._client = AsyncOpenAI(
            base_url=self.url, api_key=self.api_key or "none", max_retries=0, timeout=timeout, http_client=self._http
        )
        self._thread.start()

    @property
    def root_url(self) -> str:
        """The URL without /v1, for pages outside of OpenAI's API."""
        return self.url.rstrip("/").removesuffix("/v1")

    def stream_chat(self, body: Mapping[str, Any]) -> ResponseStream:
        response = ResponseStream()
        response.future = asyncio.run_coroutine_threadsafe(self._run_request(body, response), self._loop)
        return response

    def get_page(self, url: str) -> str | None:
        """The text of a page; None when it does not exist. ModelError without a server."""
        try:
            return asyncio.run_coroutine_threadsafe(self._get_with_retry(url), self._loop).result()
        except Exception as error:
            raise _to_model_error(error, self.url) from error

    def begin_metrics(self) -> None:
        """Read the metrics page, from which the first answer counts on; a later answer has that of the one before."""
        self._metrics = asyncio.run_coroutine_threadsafe(self._metrics_page(), self._loop).result()

    def close(self) -> None:
        """Cancel all responses, close the connections, and end the thread."""
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(CLOSE_SECONDS)

    def _run_loop(self) -> None:
        try:
            self._loop.run_until_complete(self._wait_until_closed())
        finally:
            self._loop.close()

    async def _wait_until_closed(self) -> None:
        await self._closed.wait()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()

    async def _run_request(self, body: Mapping[str, Any], response: ResponseStream) -> None:
        """Run a chat request. An error becomes the last item of the stream."""
        before, max_tokens, is_first = self._metrics, int(body["max_tokens"]), not self._begun_answers
        self._open_answers, self._begun_answers = self._open_answers + 1, self._begun_answers + 1
        expect_stream(max_tokens * MAX_BYTES_PER_TOKEN + MAX_OTHER_BYTES)
        try:
            async with asyncio.timeout(self.timeouts.answer_seconds(max_tokens)):
                accumulator = await self._stream_with_retry(body, response)
            counts = counts_of_response(accumulator.other_fields)
            if before is not None and counts is None:
                is_alone = is_first and self._begun_answers == 1
                counts = counts_between(before if is_alone else None, await self._next_metrics())
            response.items.put(accumulator.to_stream_end(counts))
        except ModelError as error:
            response.items.put(error)
        except Exception as error:  # noqa: BLE001 - the edge of the thread
            response.items.put(_to_model_error(error, self.url))
        finally:
            self._open_answers -= 1

    async def _stream_with_retry(self, body: Mapping[str, Any], response: ResponseStream) -> _ChunkAccumulator:
        """Stream a response. Before the first text, asks again: once after a broken connection, and under load."""
        breaks = overloads = 0
        while True:
            accumulator = _ChunkAccumulator(body["max_tokens"])
            try:
                await self._stream(body, response, accumulator)
            except Exception as error:
                wait = seconds_until_retry(error, overloads, self.timeouts.retry_seconds)
                is_broken = _is_connection_error(error)
                if accumulator.text_chunk_count or (wait is None and not (is_broken and not breaks)):
                    raise self._interrupted_error(error, accumulator) from error
                breaks, overloads = breaks + is_broken, overloads + (wait is not None)
                if wait is not None:
                    response.items.put(Overloaded(wait))
                    await asyncio.sleep(wait)
                continue
            if not accumulator.finish_reason:
                raise self._interrupted_error(None, accumulator)
            return accumulator

    def _interrupted_error(self, error: Exception | None, accumulator: _ChunkAccumulator) -> Exception:
        if accumulator.text_chunk_count and (error is None or _is_connection_error(error)):
            lost = f"the server at {self.url} disconnected during the answer"
            return ModelError(f"{lost}; the partial answer is stored, ask again; {FALLBACK_HINT}")
        if error is None:
            return ModelError(f"the server at {self.url} sent no valid answer; {FALLBACK_HINT}")
        return error

    async def _stream(self, body: Mapping[str, Any], response: ResponseStream, accumulator: _ChunkAccumulator) -> None:
        stream = await self._client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True})
        async with stream:
            async for chunk in stream:
                for item in accumulator.add_chunk(chunk):
                    response.items.put(item)
                if accumulator.is_too_long:
                    break

    async def _next_metrics(self) -> str | None:
        self._begun_answers = self._open_answers - 1
        self._metrics = await self._metrics_page()
        return self._metrics

    async def _metrics_page(self) -> str | None:
        """The metrics page; None when it is missing, slow or too long."""
        try:
            async with asyncio.timeout(self.timeouts.metrics_seconds):
                return await self._get(f"{self.root_url}/metrics")
        except Exception:  # noqa: BLE001 - metrics are optional
            return None

    async def _get_with_retry(self, url: str) -> str | None:
        """`_get`, with one retry after a connection error."""
        async with asyncio.timeout(self.timeouts.page_seconds):
            try:
                return await self._get(url)
            except Exception as error:
                if not _is_connection_error(error):
                    raise
                return await self._get(url)

    async def _get(self, url: str) -> str | None:
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        response = await self._http.get(url, headers=headers, timeout=None)  # the caller has a deadline
        return response.text if response.status_code == 200 else None


# The errors of a server, as one line each: what happened, where, and what to do instead.


def _to_model_error(error: Exception, url: str) -> ModelError:
    return ModelError(f"{_describe(error, url)}; {FALLBACK_HINT}")


def _is_connection_error(error: Exception) -> bool:
    """Whether the connection failed or broke, so that a retry can help."""
    return (isinstance(error, APIConnectionError) or _is_transport_error(error)) and not _is_timeout(error)


def _is_timeout(error: Exception) -> bool:
    """Whether the server sent nothing for too long."""
    return isinstance(error, APITimeoutError | TimeoutError) or (
        _is_transport_error(error) and "Timeout" in type(error).__name__
    )


def _is_transport_error(error: Exception) -> bool:
    """During a stream, OpenAI's client does not wrap errors of its transport: httpx, or httpx2 in newer releases."""
    return type(error).__module__.startswith("httpx")


def _describe(error: Exception, url: str) -> str:
    if _is_timeout(error):
        return f"the server at {url} did not respond in time"
    if _is_connection_error(error):
        return f"no server answers at {url}"
    match error:
        case BodyError():
            return f"the server at {url} {error}"
        case APIStatusError(status_code=401 | 403):
            return f"the server at {url} needs an API key; write it to a file, and set models.api_key_file"
        case APIStatusError(status_code=404):
            return f"the server at {url} does not have this: {_server_message(error)}"
        case APIStatusError() if is_overload(error):
            asked = asked_seconds(error)
            until = f", and asks to wait {asked:.0f} s" if asked else ""
            return f"the server at {url} is overloaded{until}: {_server_message(error)}"
        case APIStatusError(status_code=code):
            return f"the server at {url} refused with {code}: {_server_message(error)}"
        case APIError():
            return f"the server at {url} failed: {_server_message(error)}"
        case _:
            return f"the server at {url} does not follow OpenAI's API ({type(error).__name__})"


def _server_message(error: APIError) -> str:
    body = error.body
    while isinstance(body, dict):
        body = body.get("message") or body.get("error") or body.get("detail") or error.message
    line = " ".join(str(body or error.message).split())
    return line if len(line) <= MAX_QUOTE_CHARS else f"{line[:MAX_QUOTE_CHARS]}…"
