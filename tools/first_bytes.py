"""How soon a stream of `specchat serve` speaks, and how long it is silent: a long cold prompt through each API.

    python -m tools.first_bytes --address http://127.0.0.1:8011 --words 3000

A server must run there, `specchat serve --port 8011` with the model that is measured. Each request has a text of its
own, so that no part of it is in the cache. Prints the row of each API.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import urlparse

from specchat_bench.columns import markdown_table

WORDS = ["river", "stone", "light", "garden", "window", "paper", "summer", "bridge", "letter", "music", "winter"]
TASK = "Which of these words comes first? "
Body = Mapping[str, Any]


def messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def requests_of(text: str, model: str = "") -> dict[str, Body]:
    """The body of each streamed API, by its path; a short answer is enough."""
    chat, limit = messages(text), {"max_tokens": 8, "stream": True}
    return {
        "/v1/chat/completions": {"messages": chat, **limit},
        "/v1/completions": {"prompt": text, **limit},
        "/v1/responses": {"input": text, "max_output_tokens": 8, "stream": True},
        "/v1/messages": {"messages": chat, **limit},
        "/api/chat": {"model": model, "messages": chat, "options": {"num_predict": 8}},
        "/api/generate": {"model": model, "prompt": text, "options": {"num_predict": 8}},
        "/completion": {"prompt": text, "n_predict": 8, "stream": True},
    }


@dataclass(frozen=True)
class Received:
    """Seconds from the request to the headers, to each part of the body, and to the first text."""

    headers: float
    parts: tuple[float, ...]
    text: float

    @property
    def longest_silence(self) -> float:
        """The longest time without a byte before the first text."""
        moments = [0.0, self.headers, *(each for each in self.parts if each <= self.text)]
        return max(after - before for before, after in pairwise(moments))

    @property
    def signs(self) -> int:
        """Parts of the body before the first text."""
        return sum(each < self.text for each in self.parts)

    def row(self, path: str) -> list[str]:
        numbers = self.headers * 1000, self.parts[0] * 1000
        return [
            f"`{path}`",
            *(f"{each:.0f}" for each in numbers),
            str(self.signs),
            f"{self.longest_silence:.1f}",
            f"{self.text:.1f}",
        ]


def texts(value: object) -> Iterator[str]:
    """What a chunk says under the names that the APIs have for text."""
    if isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in ("content", "text", "delta", "response") and isinstance(each, str):
                yield each
            elif name != "usage":
                yield from texts(each)


def has_text(line: bytes) -> bool:
    """Whether a line of a stream, an event or JSON alone, holds text of the answer."""
    data = line.strip().removeprefix(b"data:").strip()
    return data.startswith(b"{") and any(texts(json.loads(data)))


def model_of(address: str) -> str:
    """The name of the first model of the server."""
    with closing(http.client.HTTPConnection(urlparse(address).netloc, timeout=60)) as connection:
        connection.request("GET", "/v1/models")
        return json.load(connection.getresponse())["data"][0]["id"]


def listen(address: str, path: str, body: Body) -> Received:
    """Ask, and read line by line to the end."""
    with closing(http.client.HTTPConnection(urlparse(address).netloc, timeout=600)) as connection:
        began = time.monotonic()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        headers, parts, text = time.monotonic() - began, list[float](), 0.0
        if response.status != 200:
            raise SystemExit(f"{path}: status {response.status}: {response.read().decode()}")
        while line := response.readline():
            if line.strip():
                parts.append(time.monotonic() - began)
            if not text and has_text(line):
                text = parts[-1]
    if not text:
        raise SystemExit(f"{path}: no text came")
    return Received(headers, tuple(parts), text)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.first_bytes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--address", default="http://127.0.0.1:8011")
    parser.add_argument("--words", type=int, default=3000, help="of the prompt, each a token of most models")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    draw, model = random.Random(options.seed), model_of(options.address)
    rows = []
    for path in requests_of(""):
        text = TASK + " ".join(draw.choices(WORDS, k=options.words))
        rows.append(listen(options.address, path, requests_of(text, model)[path]).row(path))
    columns = ["API", "headers, ms", "first sign, ms", "signs before the text", "longest silence, s", "first text, s"]
    print(markdown_table(columns, rows))


if __name__ == "__main__":
    main()
