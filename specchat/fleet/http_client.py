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
from specchat.fleet.server_errors import INSTEAD, in_one_line, is_dropped
from specchat.fleet.server_metrics import Guessed, between, of_answer

PAGE_SECONDS = 1.0  # for a page of metrics; a server that takes longer is not asked for one


@dataclass(frozen=True)
class Patience:
    """How long a server may be silent, in seconds: when a connection is made, and between two words."""

    connect: float = 5.0
    silence: float = 300.0


USUAL_PATIENCE = Patience()


@dataclass(frozen=True)
class Said:
    """More of the answer."""

    text: str


@dataclass(frozen=True)
class Ended:
    """The answer is whole, with what the server told of it."""

    reason: str  # as the server calls it
    prompt_tokens: int = 0
    reused_tokens: int = 0
    tokens: int = 0
    guessed: Guessed | None = None


Piece = Said | Ended | ModelError


class Reply:
    """An answer on its way."""

    def __init__(self) -> None:
        self.pieces: queue.SimpleQueue[Piece] = queue.SimpleQueue()
        self.work: Future[None] = Future()

    def next(self, seconds: float) -> Piece | None:
        """The next piece, None when there is nothing within this time."""
        try:
            return self.pieces.get(timeout=seconds)
        except queue.Empty:
            return None

    def cancel(self) -> None:
        """Hang up; what is done already stays done."""
        self.work.cancel()


@dataclass
class _Heard:
    """What came of an answer so far."""

    pieces: int = 0
    reason: str = ""
    usage: Any = None
    metrics: Any = None

    def hear(self, chunk: Any) -> str:
        """One more chunk; its text."""
        self.usage = chunk.usage or self.usage
        self.metrics = (chunk.model_extra or {}).get("metrics") or self.metrics
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.reason = choice.finish_reason or self.reason
        text = choice.delta.content or ""
        self.pieces += bool(text)
        return text

    def ended(self, guessed: Guessed | None) -> Ended:
        """The end. A server that does not count tokens is taken to send one in each chunk."""
        usage = self.usage
        if usage is None:
            return Ended(self.reason, tokens=self.pieces, guessed=guessed)
        details = usage.prompt_tokens_details
        reused = (details.cached_tokens or 0) if details else 0
        return Ended(self.reason, usage.prompt_tokens, reused, usage.completion_tokens, guessed)


def read_key(path: str) -> str:
    """The key in a file, "" without one."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip() if path else ""
    except (OSError, UnicodeError) as error:
        raise ModelError(f"key_file {path}: cannot be read: {getattr(error, 'strerror', error)}; {INSTEAD}") from error


@dataclass(eq=False)
class Line:
    """A server: questions and pages go out, pieces come in. `url` ends in /v1, as OpenAI's does."""

    url: str
    key: str = ""
    patience: Patience = USUAL_PATIENCE
    _tells_itself: bool = field(default=False, init=False)  # of its guesses, so that no page is to be read

    def __post_init__(self) -> None:
        self._loop, self._over = asyncio.new_event_loop(), asyncio.Event()
        self._thread = Thread(target=self._run, name="fleet", daemon=True)
        silence = Timeout(self.patience.silence, connect=self.patience.connect)
        # The host has no proxies, so nobody has; without redirects a plain address needs no certificates, slow to load.
        is_safe = self.url.startswith("https:")
        self._http = DefaultAsyncHttpxClient(trust_env=False, follow_redirects=False, verify=is_safe, timeout=silence)
        self._client = AsyncOpenAI(
            base_url=self.url, api_key=self.key or "none", max_retries=0, timeout=silence, http_client=self._http
        )
        self._thread.start()

    @property
    def root(self) -> str:
        """Where everything lies that is not OpenAI's."""
        return self.url.rstrip("/").removesuffix("/v1")

    def ask(self, body: Mapping[str, Any]) -> Reply:
        """Begin an answer."""
        reply = Reply()
        reply.work = asyncio.run_coroutine_threadsafe(self._answer(body, reply), self._loop)
        return reply

    def page(self, address: str, seconds: float = PAGE_SECONDS) -> str | None:
        """What stands at an address, None when the server has no such page; ModelError when there is no server."""
        work = asyncio.run_coroutine_threadsafe(self._got(address, seconds), self._loop)
        try:
            return work.result(2 * (seconds + self.patience.connect))
        except Exception as error:
            raise in_one_line(error, self.url) from error

    def close(self) -> None:
        """Hang up for good; answers that are on their way end."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PAGE_SECONDS)

    def _run(self) -> None:
        """The life of the thread."""
        try:
            self._loop.run_until_complete(self._until_over())
        finally:
            self._loop.close()

    async def _until_over(self) -> None:
        await self._over.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._http.aclose()

    async def _answer(self, body: Mapping[str, Any], reply: Reply) -> None:
        """The work behind an answer; whatever goes wrong becomes its last piece."""
        try:
            before = await self._metrics()
            heard = await self._heard(body, reply)
            told = of_answer(heard.metrics)
            self._tells_itself = told is not None
            reply.pieces.put(heard.ended(told or between(before, await self._metrics())))
        except ModelError as error:
            reply.pieces.put(error)
        except Exception as error:  # noqa: BLE001 - the edge: nobody else hears of this thread
            reply.pieces.put(in_one_line(error, self.url))

    async def _heard(self, body: Mapping[str, Any], reply: Reply) -> _Heard:
        """The whole answer. A connection that is lost before the first word is made once more."""
        heard = _Heard()
        try:
            await self._stream(body, reply, heard)
        except Exception as error:
            if not is_dropped(error) or heard.pieces:
                raise self._cut(error, heard) from error
            heard = _Heard()
            await self._stream(body, reply, heard)
        if not heard.reason:
            raise self._cut(None, heard)
        return heard

    def _cut(self, error: Exception | None, heard: _Heard) -> Exception:
        if heard.pieces and (error is None or is_dropped(error)):
            return ModelError(
                f"the server at {self.url} hung up in the middle; what it said is kept, ask again; {INSTEAD}"
            )
        if error is None:
            return ModelError(f"the server at {self.url} answered nothing that can be understood; {INSTEAD}")
        return error

    async def _stream(self, body: Mapping[str, Any], reply: Reply, heard: _Heard) -> None:
        stream = await self._client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True})
        async with stream:
            async for chunk in stream:
                if text := heard.hear(chunk):
                    reply.pieces.put(Said(text))

    async def _metrics(self) -> str | None:
        """The page of metrics, if there is one soon, and if it is needed."""
        if self._tells_itself:
            return None
        try:
            return await self._get(f"{self.root}/metrics", PAGE_SECONDS)
        except Exception:  # noqa: BLE001 - an answer without numbers is an answer
            return None

    async def _got(self, address: str, seconds: float) -> str | None:
        """As `_get`, once more when the connection is lost."""
        try:
            return await self._get(address, seconds)
        except Exception as error:
            if not is_dropped(error):
                raise
            return await self._get(address, seconds)

    async def _get(self, address: str, seconds: float) -> str | None:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        found = await self._http.get(address, timeout=seconds, headers=headers)
        return found.text if found.status_code == 200 else None
