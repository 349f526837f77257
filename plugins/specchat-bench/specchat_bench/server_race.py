"""The same chats over HTTP, ours beside other servers: what a client with a stop watch sees.

All speak OpenAI's `/v1/chat/completions`. Knows no engine, no command line and no table (`server_race_table.py`).
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from specchat.chat.attachments import with_attachments
from specchat.chat.request import Request
from specchat.errors import InputError, UsageError
from specchat_bench.builtin_prompts import WARM_UP_REQUESTS
from specchat_bench.measure import Progress

API = "/v1"
TIMEOUT_SECONDS = 600.0  # between two pieces of an answer: a prompt may be long
MAX_ERROR_BYTES = 300
DATA, DONE = b"data: ", b"[DONE]"
TEXT_FIELDS = ("content", "reasoning_content")  # what arrives counts, whether it is a thought or an answer


@dataclass(frozen=True)
class ServerAnswer:
    """One answer by the clock of its client; seconds are since the request was sent."""

    text: str
    tokens: int
    cached_tokens: int  # of the prompt, that were not computed
    first_text_seconds: float  # to the end, where there was no text
    seconds: float  # to the end of the stream

    @property
    def seconds_per_token(self) -> float:
        return self.seconds / max(self.tokens, 1)

    @property
    def decode_seconds_per_token(self) -> float:
        """Behind the first text, as if that were one token: drafts make it longer, for any server."""
        return (self.seconds - self.first_text_seconds) / max(self.tokens - 1, 1)


@dataclass(frozen=True)
class ChatServer:
    """A server that the user started, with its model and, in its name, its settings."""

    name: str
    url: str  # with or without /v1

    @classmethod
    def parse(cls, text: str) -> ChatServer:
        """NAME=URL, or a URL, which is then its own name. UsageError for anything else."""
        name, _, url = text.rpartition("=") if "://" in text.partition("=")[2] else ("", "", text)
        if urlsplit(url).scheme != "http" or not urlsplit(url).hostname:
            raise UsageError(f"{text}: give a server as http://ADDRESS:PORT or NAME=http://ADDRESS:PORT")
        return cls(name or urlsplit(url).netloc, url)

    def model(self) -> str:
        """The name of its model. InputError when no server is there."""
        with self._respond("GET", "/models", None) as response:
            try:
                return str(json.loads(response.read())["data"][0]["id"])
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise InputError(f"{self.url}: {API}/models lists no model") from error

    def answer(self, body: Mapping[str, Any]) -> ServerAnswer:
        """Answer as a stream and time it. InputError when the server refuses, breaks off, or counts no tokens."""
        started_at = perf_counter()
        texts, first_text_seconds, usage = list[str](), 0.0, dict[str, Any]()
        with self._respond("POST", "/chat/completions", json.dumps(body)) as response:
            for event in _events(response, self.url):
                text = "".join(_texts(event))
                if text and not texts:
                    first_text_seconds = perf_counter() - started_at
                texts += [text] if text else []
                usage = event.get("usage") or usage
        seconds = perf_counter() - started_at
        if not usage.get("completion_tokens"):
            raise InputError(f"{self.url}: an answer without the number of its tokens, or without any")
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return ServerAnswer("".join(texts), usage["completion_tokens"], cached, first_text_seconds or seconds, seconds)

    @contextmanager
    def _respond(self, method: str, path: str, body: str | None) -> Generator[http.client.HTTPResponse]:
        place = urlsplit(self.url)
        address = f"{place.path.rstrip('/').removesuffix(API)}{API}{path}"
        with closing(http.client.HTTPConnection(place.netloc, timeout=TIMEOUT_SECONDS)) as connection:
            try:
                connection.request(method, address, body, {"Content-Type": "application/json"})
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise InputError(f"{self.url}: no server answers there ({error}); start it first") from error
            if response.status != http.client.OK:
                output = response.read(MAX_ERROR_BYTES).decode(errors="replace")
                raise InputError(f"{self.url}: status {response.status}: {' '.join(output.split())}")
            yield response


def _events(response: http.client.HTTPResponse, url: str) -> Iterator[dict[str, Any]]:
    """The objects of a stream; lines without one are signs of life."""
    try:
        for line in response:
            if line.startswith(DATA):
                if (data := line.removeprefix(DATA).strip()) == DONE:
                    return
                event = json.loads(data)
                if "error" in event:
                    raise InputError(f"{url}: {event['error']}")
                yield event
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(f"{url}: the stream broke off: {error}") from error
    raise InputError(f"{url}: the stream ended without {DONE.decode()}")


def _texts(event: Mapping[str, Any]) -> Iterator[str]:
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        yield from (delta[name] for name in TEXT_FIELDS if delta.get(name))


@dataclass(frozen=True)
class RacedPrompt:
    """One prompt, answered once by each server. `ours` and `theirs` are by the name of the server."""

    kind: str
    ours: Mapping[str, ServerAnswer]
    theirs: Mapping[str, ServerAnswer]

    @property
    def fastest_of_theirs(self) -> str:
        """The name of the server, of all others, that took the fewest seconds for a token of this answer."""
        return _fastest(self.theirs)


def _fastest(answers: Mapping[str, ServerAnswer]) -> str:
    return min(answers, key=lambda name: answers[name].seconds_per_token)


@dataclass(frozen=True)
class ServerRace:
    """Ours and others, in the order in which they answer; the next prompt has the opposite order."""

    ours: Sequence[ChatServer]
    theirs: Sequence[ChatServer]
    max_tokens: int

    def __post_init__(self) -> None:
        names = [each.name for each in (*self.ours, *self.theirs)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"{twice}: two servers have this name; give them others as NAME=URL")

    def run(
        self, requests: Mapping[str, Sequence[Request]], prompt_count: int, progress: Progress
    ) -> Iterator[RacedPrompt]:
        """The first prompts of each kind; before them, another question of the kind warms all servers up."""
        servers, numbers = [*self.ours, *self.theirs], count(1)
        models = {each: each.model() for each in servers}
        for kind, prompts in requests.items():
            progress(f"warming up with a question of the kind {kind}")
            number = next(numbers)
            for server in servers:
                server.answer(self._body(models[server], WARM_UP_REQUESTS.get(kind, prompts[0]), number))
            for place, prompt in enumerate(prompts[:prompt_count], start=1):
                number = next(numbers)
                servers.reverse()
                answers = {each.name: each.answer(self._body(models[each], prompt, number)) for each in servers}
                ours, theirs = ({each.name: answers[each.name] for each in side} for side in (self.ours, self.theirs))
                fastest = _fastest(answers)
                progress(f"{kind} {place}: fastest {fastest}, {1 / answers[fastest].seconds_per_token:.1f} tokens/s")
                yield RacedPrompt(kind, ours, theirs)

    def _body(self, model: str, request: Request, number: int) -> dict[str, Any]:
        """Greedy. The system prompt has the number of the question, so that no server has its beginning in a cache."""
        return {
            "model": model,
            "messages": [
                {"role": "system", "content": f"Conversation {number}. You are a helpful assistant."},
                {"role": "user", "content": with_attachments(request.text, request.files, request.task)},
            ],
            "temperature": 0,
            "max_tokens": self.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_prompt": False,
            "chat_template_kwargs": {"enable_thinking": False},
        }
