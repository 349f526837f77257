"""`/health` and `/metrics`: the state of the server and what it has answered, without texts."""

from __future__ import annotations

import http.client
import time
from contextlib import closing
from typing import Any
from urllib.parse import urlparse

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from serve_tests.conftest import MODEL, Served, asking, config_of, raw, until
from specchat.chat.events import CommittedToken, Finished, StepDone, Totals
from specchat.host.client import SessionRequest
from specchat_serve.answer_counts import AnswerCounts
from specchat_serve.authorization import AccessPolicy
from specchat_serve.metrics_page import metrics_page
from tests.host.conftest import kill_host

SECRET = "write a secret of the user"


def page_of(served: Served) -> str:
    place = urlparse(served.address)
    with closing(http.client.HTTPConnection(place.hostname, place.port)) as connection:
        connection.request("GET", "/metrics", "", {"Authorization": "Bearer right"})
        response = connection.getresponse()
        assert response.getheader("Content-Type").startswith("application/openmetrics-text")
        return response.read().decode()


def samples(page: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(page)
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def settled_samples(served: Served) -> dict[tuple[str, ...], float]:
    """The samples once no request is counted as running: a client has its answer a moment earlier."""
    deadline = time.monotonic() + 120
    while (found := samples(page_of(served)))["vllm:num_requests_running",] and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


@pytest.fixture
def counted(runtime) -> Any:
    with Served(config_of(SessionRequest(), AccessPolicy("right"))) as served:
        yield served


def ask(served: Served, text: str) -> None:
    served.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}])


def test_requests_tokens_and_drafters_are_counted(counted):
    ask(counted, "guess 5")
    raw(counted, "POST", "/api/chat", "{", Authorization="Bearer right")
    raw(counted, "GET", "/v1/models")
    raw(counted, "GET", f"/{SECRET}".replace(" ", "-"), Authorization="Bearer right")

    found = settled_samples(counted)

    assert (3, 10) == (found["vllm:prompt_tokens_total",], found["vllm:generation_tokens_total",])
    assert 5 == found["specchat:accepted_tokens_total", "lookup"]
    assert 5 == found["specchat:draft_tokens_total", "draft"]
    assert 1 == found["specchat:answers_total", "stop"]
    assert 1 == found["specchat:http_requests_total", "/v1/chat/completions", "200"]
    assert 1 == found["specchat:http_requests_total", "/api/chat", "400"]
    assert 1 == found["specchat:http_requests_total", "/v1/models", "401"]
    assert 1 == found["specchat:http_requests_total", "unknown", "404"]
    assert 1000 == found["specchat:memory_bytes", "target"]
    assert (0, 0, 1) == tuple(
        found[name,] for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "specchat:models_loaded")
    )


def test_running_answers_are_counted(served):
    body = {"messages": [{"role": "user", "content": "slowly 1000000"}]}
    with asking(served, **body), asking(served, **body):
        until(lambda: samples(page_of(served))["vllm:num_requests_running",] == 2)

    until(lambda: samples(page_of(served))["vllm:num_requests_running",] == 0)
    assert samples(page_of(served))["specchat:answers_total", "cancelled"] >= 2


def test_waiting_requests_and_steps_are_on_the_page():
    counts = AnswerCounts()
    step = StepDone((1,), (0,), (CommittedToken(1, b"x", "suffix"),), 0.0, 0.0, (b"x",), ("suffix",))
    for event in (step, Finished("stop", Totals(prompt_tokens=4))):
        counts.on_event(event)

    found = samples(metrics_page(counts, {}, 8, 3, {}).decode())

    assert (8, 3) == (found["vllm:num_requests_running",], found["vllm:num_requests_waiting",])
    assert 1 == found["specchat:accepted_tokens_total", "suffix"]


def test_no_text_of_a_conversation_is_on_the_page(counted):
    ask(counted, SECRET)

    assert "secret" not in page_of(counted)


def test_the_health_has_the_state_of_the_engine(counted):
    ask(counted, "write hello")
    assert {"status": "ok", "engine": "ready", "model": MODEL} == raw(
        counted, "GET", "/health", Authorization="Bearer right"
    )[1]

    kill_host()

    told = raw(counted, "GET", "/health", Authorization="Bearer right")
    assert (200, "not running") == (told[0], told[1]["engine"])


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_the_token_and_the_rules_for_websites_apply(counted, served, path):
    assert ((401, "authentication_error") if path == "/metrics" else (200, {"status": "ok"})) == _unknown(counted, path)
    assert 403 == raw(served, "GET", path, Origin="http://evil.example")[0]
    assert 403 == raw(served, "GET", path, Host="evil.example")[0]


def _unknown(counted: Served, path: str) -> tuple[int, Any]:
    """What a client without the token gets: the type of an error, or the body."""
    status, body = raw(counted, "GET", path)
    return status, body["error"]["type"] if "error" in body else body
