"""A server and a fake host for the tests of a file, with real sockets and OpenAI's client."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self
from urllib.parse import urlparse

import openai
import pytest
from aiohttp import web

from specchat.host.client import Conversation, SessionRequest
from specchat_serve import replies
from specchat_serve.authorization import AccessPolicy
from specchat_serve.served_models import ServedModel
from specchat_serve.server import RUN_APP_OPTIONS, ApiServer, ServeConfig, bind_socket
from tests.host.conftest import world

MODEL = "org/ours"
PATIENCE_SECONDS = 120.0


@dataclass
class Served:
    """A server on a thread, and its messages for the user."""

    offer: ServeConfig
    address: str = ""
    said: list[str] = field(default_factory=list)

    @cached_property
    def server(self) -> ApiServer:
        return ApiServer(self.offer, self.said.append)

    @cached_property
    def client(self) -> Any:
        return openai.OpenAI(
            base_url=f"{self.address}/v1", api_key=self.offer.access_policy.token or "none", max_retries=0
        )

    def __enter__(self) -> Self:
        self._loop, begun = asyncio.new_event_loop(), Event()
        self._thread = Thread(target=self._run, args=(begun,))
        self._thread.start()
        assert begun.wait(120)
        return self

    def __exit__(self, *_error: object) -> None:
        self.client.close()
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(20)
        until(lambda: self.server.connection_pool.running_count == 0)  # else its threads go on with the next host
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()

    def cancel_answers(self) -> None:
        """Cancel the running answers, as the end of the server does."""
        for stream in list(self.server.connection_pool._busy.values()):
            stream.cancelled.set()

    def _run(self, begun: Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._runner = web.AppRunner(self.server.application(), **RUN_APP_OPTIONS)
        self._loop.run_until_complete(self._runner.setup())
        listening = bind_socket("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._loop.run_until_complete(web.SockSite(self._runner, listening).start())
        begun.set()
        self._loop.run_forever()


def config_of(session_request: SessionRequest, access_policy: AccessPolicy, target: str = "") -> ServeConfig:
    """Of a server with one model."""
    return ServeConfig((ServedModel((MODEL,), session_request, target),), access_policy)


@pytest.fixture(autouse=True)
def no_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, what a stream begins with would depend on the load; test_signs_of_life.py has them."""
    monkeypatch.setattr(replies, "FIRST_SIGN_SECONDS", 600.0)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Path]:
    """One runtime folder for the tests of a file; its host is killed at the end."""
    with pytest.MonkeyPatch.context() as patch:
        yield from world(patch)


@pytest.fixture(scope="module")
def served(runtime) -> Iterator[Served]:
    """A server without a token."""
    with Served(config_of(SessionRequest(), AccessPolicy())) as server:
        yield server


@pytest.fixture
def host(runtime) -> Iterator[Conversation]:
    """Another client, for the statistics of the host."""
    with Conversation(SessionRequest(is_stored=False)) as client:
        yield client


def becomes(is_so: Callable[[], bool]) -> bool:
    """Whether something is so, now or after a while."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def until(is_so: Callable[[], bool]) -> None:
    assert becomes(is_so), "waited for too long"


def raw(served: Served, method: str, path: str, body: str = "", **headers: str) -> tuple[int, dict[str, Any]]:
    """What no client would send."""
    place = urlparse(served.address)
    with closing(http.client.HTTPConnection(place.hostname, place.port)) as connection:
        connection.request(method, path, body, {"Host": place.netloc, **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@contextmanager
def asking(served: Served, path: str = "/v1/chat/completions", **body: Any) -> Iterator[None]:
    """A client that waits for its answer, and in the end hangs up."""
    place = urlparse(served.address)
    with closing(http.client.HTTPConnection(place.hostname, place.port)) as connection:
        connection.request("POST", path, json.dumps(body))
        yield


def sse_events(
    served: Served, path: str, body: dict[str, Any], after_first: Callable[[], None] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """The named events of a stream. `after_first` is called when the first line has come."""
    place = urlparse(served.address)
    with closing(http.client.HTTPConnection(place.hostname, place.port)) as connection:
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        assert response.status == 200
        received = response.readline()
        if after_first is not None:
            after_first()
        received += response.read()
    events = [event.split("\n", 1) for event in received.decode().strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]
