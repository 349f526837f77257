"""Streams speak before their first text: headers and a sign of life at once, and errors after it in the stream."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from threading import Event
from urllib.parse import urlparse

from aiohttp import ClientConnectionResetError, web

from serve_tests.conftest import MODEL, PATIENCE_SECONDS, Served, asking, raw, until
from specchat.chat.events import LoadingProgress, PrefillProgress
from specchat_serve import replies
from specchat_serve.answer import Answer
from tests.each_row import each_row

READING = [{"role": "user", "content": "read"}]  # the fake engine reads until it is cancelled
STREAMS = [
    ("/v1/chat/completions", {"messages": READING}, ": reading 1 of 3 tokens", "the server cancelled"),
    ("/v1/responses", {"input": "read"}, ": reading 1 of 3 tokens", "response.failed"),
    ("/v1/messages", {"messages": READING, "max_tokens": 5}, ": reading 1 of 3 tokens", "event: error"),
    ("/api/chat", {"model": MODEL, "messages": READING}, '"content": ""', "the server cancelled"),
    ("/api/generate", {"model": MODEL, "prompt": "read"}, '"response": ""', "the server cancelled"),
    ("/v1/completions", {"prompt": "slowly"}, ": waiting for the engine", "the server cancelled"),
    ("/completion", {"prompt": "slowly"}, ": waiting for the engine", "the server cancelled"),
]


def first_and_last(served: Served, path: str, body: dict[str, object], sign: str) -> tuple[str, str]:
    """Of a stream whose answer is cancelled when the sign has come."""
    with closing(http.client.HTTPConnection(urlparse(served.address).netloc)) as connection:
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        line = response.readline().decode()
        while line and sign not in line:
            line = response.readline().decode()
        served.cancel_answers()
        return line, response.read().decode()


@each_row("path, body, sign, failure", STREAMS)
def test_a_stream_speaks_while_the_prompt_is_read(served, monkeypatch, path, body, sign, failure):
    monkeypatch.setattr(replies, "FIRST_SIGN_SECONDS", 0.1)
    monkeypatch.setattr(replies, "SIGN_SECONDS", 0.05)

    first, last = first_and_last(served, path, body, sign)

    assert sign in first and failure in last


def test_a_stage_is_the_last_thing_that_was_told():
    answer = Answer()
    stages = [answer.stage]
    for event in (LoadingProgress("loading", 1, 4), PrefillProgress(900, 3000)):
        answer.on_event(event)
        stages.append(answer.stage)

    assert ["waiting for the engine", LoadingProgress("loading", 1, 4).text, "reading 900 of 3,000 tokens"] == stages


def test_an_error_before_the_first_sign_has_its_own_status(served):
    with closing(http.client.HTTPConnection(urlparse(served.address).netloc)) as connection:
        body = {"messages": [{"role": "user", "content": "fail"}], "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))

        assert 400 == connection.getresponse().status


def test_a_client_that_leaves_before_the_end_of_a_stream_is_no_fault(served, caplog, monkeypatch):
    left = Event()

    async def write_eof(_response, _data=b""):
        left.set()
        raise ClientConnectionResetError("Cannot write to closing transport")

    with monkeypatch.context() as patch:
        patch.setattr(web.StreamResponse, "write_eof", write_eof)
        with asking(served, stream=True, messages=[{"role": "user", "content": "hello"}]):
            assert left.wait(PATIENCE_SECONDS)
            until(lambda: not served.server.connection_pool.running_count)

    assert 200 == raw(served, "GET", "/health")[0]
    assert [] == [record for record in caplog.records if record.name == "aiohttp.server"]
