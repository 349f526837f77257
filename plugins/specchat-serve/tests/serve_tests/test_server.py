"""Programs that speak the HTTP API of OpenAI, here its official client, are answered by the host."""

from __future__ import annotations

import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import openai
import pytest

from serve_tests.conftest import MODEL, PATIENCE_SECONDS, Served, asking, becomes, config_of, raw, until
from specchat.history.history_reader import HistoryReader
from specchat.host.client import SessionRequest
from specchat.host.protocol import MAX_LINE_BYTES
from specchat.profile.settings import read_settings
from specchat_serve import server as server_module
from specchat_serve.authorization import AccessPolicy
from tests.each_row import each_row
from tests.host.conftest import kill_host


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def ask(served: Served, *messages: dict[str, Any], **more: Any) -> Any:
    return served.client.chat.completions.create(model=MODEL, messages=list(messages), **more)


def text_of(served: Served, *messages: dict[str, Any], **more: Any) -> str:
    return ask(served, *messages, **more).choices[0].message.content


def stream(served: Served, *messages: dict[str, Any], **more: Any) -> list[Any]:
    return list(ask(served, *messages, stream=True, **more))


def test_the_official_client_is_answered(served):
    completion = ask(served, user("count 3"), seed=5)

    assert completion.choices[0].message.content == "word0 word1 seed 5 turn 0"
    assert (completion.model, completion.object) == (MODEL, "chat.completion")
    assert (completion.choices[0].message.role, completion.choices[0].finish_reason) == ("assistant", "stop")
    assert [MODEL] == [model.id for model in served.client.models.list()]
    assert served.client.models.retrieve(MODEL).owned_by == "specchat"


def test_a_stream_has_the_text_of_a_complete_answer(served):
    chunks = stream(served, user("slowly 12"), seed=5)

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text_of(
        served, user("slowly 12"), seed=5
    )
    assert len(chunks) > 3 and chunks[0].choices[0].delta.role == "assistant"
    assert ["stop"] == [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason]
    assert len({chunk.id for chunk in chunks}) == 1 and all(chunk.usage is None for chunk in chunks)


def test_the_usage_has_speculation_statistics(served):
    whole = ask(served, user("guess 5"), seed=5).usage
    *_, last = stream(served, user("guess 5"), seed=5, stream_options={"include_usage": True})

    assert (whole.prompt_tokens, whole.completion_tokens, whole.total_tokens) == (3, 10, 13)
    assert (whole.specchat["tokens_per_step"], whole.specchat["steps"], whole.specchat["seed"]) == (2.0, 5, 5)
    assert last.choices == [] and last.usage == whole


def test_the_settings_of_a_request_count_for_it_alone(served):
    question = user("settings sampling.top_p prompt.system")

    assert '[0.5, "be brief"]' == text_of(served, {"role": "system", "content": "be brief"}, question, top_p=0.5)
    assert '[1.0, ""]' == text_of(served, question)


def test_a_conversation_continues_in_the_session_with_its_history(served, host):
    first = text_of(served, user("count 02"), seed=1)
    before = settled_session_count(host)

    second = text_of(served, user("count 02"), assistant(first), user("count 1"), seed=1)
    third = text_of(
        served, user("count 02"), assistant(first), user("count 1"), assistant(second), user("count 1"), seed=1
    )

    assert [second, third] == ["seed 1 turn 1", "seed 1 turn 2"]
    assert before == settled_session_count(host)


def settled_session_count(host) -> int:
    """The number of sessions once requests of earlier tests, which may have been cut off, have opened theirs."""
    counts = [host.call("stats")["sessions"]]
    while counts[-5:] != [counts[-1]] * 5:
        time.sleep(0.05)
        counts.append(host.call("stats")["sessions"])
    return counts[-1]


def test_an_unknown_history_is_sent_to_the_engine(served):
    said = [user("what?"), assistant("this"), user("and?"), assistant("that")]

    assert text_of(served, *said, user("recall")) == "what?=this;and?=that;"
    assert text_of(served, *said[:3], assistant("no, that"), user("recall")) == "what?=this;and?=no, that;"
    assert text_of(served, *said[:2], user("recall")) == "what?=this;"
    assert text_of(served, *said, user("recall")) == "what?=this;and?=that;"


def test_a_failed_or_cancelled_exchange_is_not_in_the_history(served):
    said = [user("the same beginning of both"), assistant("yes")]
    with pytest.raises(openai.InternalServerError):
        ask(served, *said, user("crash"))
    with ask(served, *said, user("slowly 100000"), stream=True) as chunks:
        next(iter(chunks))

    assert text_of(served, *said, user("recall")) == "the same beginning of both=yes;"


def test_nothing_is_stored_in_the_history(served, host):
    ask(served, user("write a secret"))
    with closing(HistoryReader(Path(host.call("hello")["history_path"]))) as history:
        assert [] == history.threads()


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_disconnected_client_cancels_its_answer(served, host, is_streamed):
    with asking(served, stream=is_streamed, messages=[user("slowly 1000000")]):
        until(lambda: host.call("stats")["live_turns"] == 1)

    assert becomes(lambda: host.call("stats")["live_turns"] == 0)


def test_more_questions_than_connections_wait_for_their_turn(served, host):
    with ThreadPoolExecutor(11) as clients:
        answers = list(clients.map(lambda number: text_of(served, user("slowly 5"), seed=number), range(11)))

    assert [f"seed {number} turn 0" for number in range(11)] == [answer[answer.index("seed") :] for answer in answers]
    assert host.call("stats")["sessions"] <= 9


@each_row(
    "body, status, words",
    [
        ({"model": "gpt-5"}, 404, "no model 'gpt-5'; this server has 'org/ours'"),
        ({"messages": []}, 400, "ends with a message of the user"),
        ({"n": 0}, 400, "n: give a number"),
        ({"tools": [{"type": "function"}]}, 400, "tools[0]: a tool is an object"),
        ({"messages": [user(" ")]}, 400, "empty"),
        ({"temperature": 9}, 400, "between 0 and 5"),
        ({"messages": [user("fail")]}, 400, "too long"),
        ({"messages": [user("crash")]}, 500, "the engine failed"),
        ({"messages": [user("crash")], "stream": True}, 500, "the engine failed"),
    ],
)
def test_an_invalid_request_gets_an_error_object_of_openai(served, body, status, words):
    told = raw(served, "POST", "/v1/chat/completions", json.dumps({"messages": [user("hello")], **body}))

    assert told[0] == status and words in told[1]["error"]["message"]
    assert {"message", "type", "param", "code"} == set(told[1]["error"])


@each_row(
    "method, path, body, status",
    [
        ("POST", "/v1/completions", "{}", 400),
        ("POST", "/v1/nothing", "{}", 404),
        ("GET", "/nothing", "", 404),
        ("GET", "/v1/models/other", "", 404),
        ("GET", "/v1/chat/completions", "", 405),
        ("POST", "/v1/chat/completions", "{", 400),
        ("POST", "/v1/chat/completions", "[]", 400),
        ("POST", "/v1/chat/completions", r'{"messages": [{"role": "user", "content": "\ud800"}]}', 400),
    ],
)
def test_every_other_request_gets_an_error_object(served, method, path, body, status):
    told = raw(served, method, path, body)

    assert told[0] == status and told[1]["error"]["message"]


def test_what_is_left_out_stands_in_each_answer_and_once_in_the_log(served):
    bodies = [
        json.dumps({"messages": [{"role": "user", "content": "hello"}], name: 5}) for name in ("odd", "odd", "new")
    ]
    told = [raw(served, "POST", "/v1/chat/completions", body)[1]["usage"]["specchat"]["notices"] for body in bodies]

    odd, new = (f"{name} is left out: this server does not know it" for name in ("odd", "new"))
    assert [[odd], [odd], [new]] == told
    assert [1, 1] == [served.said.count(odd), served.said.count(new)]


def test_a_request_over_the_size_limit_is_an_error(served):
    told = raw(served, "POST", "/v1/chat/completions", " " * (MAX_LINE_BYTES + 1))

    assert told[0] == 413 and told[1]["error"]["message"]


UNFINISHED = {
    "no header": b"",
    "a part of a header": b"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nX",
    "no body": b"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\n",
    "a part of a body": b"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\n{}",
    "a part of a chunk": b"POST /api/chat HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
    "a body of a page": b"GET /health HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\n",
    "a body for no page": b"POST /nowhere HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\n",
    "a body of another site": b"POST /v1/apply HTTP/1.1\r\nHost: evil\r\nContent-Length: 100\r\n\r\n",
}


def test_an_unfinished_request_is_closed_wherever_it_ends(runtime, monkeypatch):
    monkeypatch.setattr(server_module, "REQUEST_SECONDS", 0.2)
    for name, seconds in (("keepalive_timeout", 0.2), ("lingering_time", 0.1)):
        monkeypatch.setitem(server_module.RUN_APP_OPTIONS, name, seconds)
    with Served(config_of(SessionRequest(), AccessPolicy())) as served:
        place = urlparse(served.address)
        for name, begun in UNFINISHED.items():
            with socket.create_connection((place.hostname, place.port), timeout=PATIENCE_SECONDS) as peer:
                peer.sendall(begun.replace(b"{host}", place.netloc.encode()))
                said = b"".join(iter(lambda: peer.recv(2**16), b""))  # until the server closes
            expected = b"403" if "site" in name else b"" if "header" in name else b"408"
            assert expected == said[9:12], name


def test_the_openai_client_raises_its_own_errors(served):
    with pytest.raises(openai.NotFoundError, match="this server has 'org/ours'"):
        served.client.chat.completions.create(model="other", messages=[user("hello")])
    with pytest.raises(openai.BadRequestError) as refused:
        ask(served, user("fail"))
    assert refused.value.code == "context_length_exceeded"


@each_row("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_requests_from_websites_are_not_accepted(served, headers):
    assert raw(served, "GET", "/v1/models", **headers)[0] == 403


def test_with_a_token_every_request_needs_it(runtime):
    with Served(config_of(SessionRequest(), AccessPolicy("right"))) as served:
        assert text_of(served, user("write hello")) == "hello"
        assert raw(served, "GET", "/v1/models")[0] == 401
        assert raw(served, "GET", "/v1/models", Authorization="Bearer wrong")[0] == 401


def test_a_web_page_that_has_the_token_can_ask_and_read(runtime):
    page = {"Origin": "https://notes.example"}
    with Served(config_of(SessionRequest(), AccessPolicy("right"))) as served:
        place = urlparse(served.address)
        with closing(http.client.HTTPConnection(place.hostname, place.port)) as connection:
            connection.request("OPTIONS", "/v1/chat/completions", "", {"Host": place.netloc, **page})
            allowed = connection.getresponse()
            allowed.read()
            connection.request("GET", "/v1/models", "", {**page, "Authorization": "Bearer right"})
            models = connection.getresponse()
            models.read()

    assert (200, "Authorization, Content-Type") == (allowed.status, allowed.getheader("Access-Control-Allow-Headers"))
    assert (200, page["Origin"]) == (models.status, models.getheader("Access-Control-Allow-Origin"))


@pytest.mark.parametrize("path", ["/v1/messages", "/api/chat", "/v1/completions"])
def test_a_browser_may_send_the_headers_of_every_client(runtime, path):
    with Served(config_of(SessionRequest(), AccessPolicy("right"))) as served:
        place = urlparse(served.address)
        asked = {"Origin": "https://notes.example", "Access-Control-Request-Headers": "x-api-key, x-stainless-os"}
        with closing(http.client.HTTPConnection(place.hostname, place.port)) as connection:
            connection.request("OPTIONS", path, "", asked)
            allowed = connection.getresponse()

    assert (200, "x-api-key, x-stainless-os") == (allowed.status, allowed.getheader("Access-Control-Allow-Headers"))


def preflight(served: Served, path: str, origin: str) -> tuple[int, str | None, str | None]:
    """The status of the answer, the origin that may go on, and whether with cookies."""
    place = urlparse(served.address)
    with closing(http.client.HTTPConnection(place.hostname, place.port)) as connection:
        connection.request("OPTIONS", path, "", {"Host": place.netloc, "Origin": origin})
        answer = connection.getresponse()
        return answer.status, *(answer.getheader(f"Access-Control-Allow-{it}") for it in ("Origin", "Credentials"))


APIS = ["/v1/chat/completions", "/v1/messages", "/api/chat", "/completion"]


@each_row("origin", ["http://evil.example", "http://notlocalhost", "http://localhost.evil.example", "null"])
def test_a_browser_is_told_no_origin_where_there_is_no_token(served, origin):
    for path in APIS:
        assert (200, None, None) == preflight(served, path, origin)
        assert 403 == raw(served, "POST", path, "{}", Origin=origin)[0]


@each_row("origin", ["http://localhost", "http://localhost:8080", "http://127.0.0.1:3000", "http://[::1]:3000"])
def test_a_page_of_this_machine_can_read_that_it_needs_a_token(served, origin):
    for path in APIS:
        assert (200, origin, "true") == preflight(served, path, origin)
        assert 403 == raw(served, "POST", path, "{}", Origin=origin)[0]


def test_a_page_from_anywhere_may_send_the_token(runtime):
    with Served(config_of(SessionRequest(), AccessPolicy("right"))) as served:
        for path in APIS:
            assert (200, "web.example", "true") == preflight(served, path, "web.example")


@each_row("path", ["/health", "/v1/health"])
def test_without_the_token_the_health_is_all_that_is_said(runtime, path):
    with Served(config_of(SessionRequest(), AccessPolicy("right"))) as served:
        assert (200, {"status": "ok"}) == raw(served, "GET", path)
        assert MODEL == raw(served, "GET", path, Authorization="Bearer right")[1]["model"]
        assert 403 == raw(served, "GET", path, Host="evil.example")[0]


@each_row("path", ["/v1/chat/completions", "/v1/responses", "/v1/completions", "/completion", "/v1/messages"])
def test_a_wrong_token_is_an_error_of_its_own_type(runtime, path):
    with Served(config_of(SessionRequest(), AccessPolicy("right"))) as served:
        refused = raw(served, "POST", path, "{}", Authorization="Bearer wrong")

    assert (401, "authentication_error") == (refused[0], refused[1]["error"]["type"])


def test_a_begun_answer_is_continued_and_not_repeated(served):
    begun = {"role": "assistant", "content": "oh, "}

    assert "hello" == text_of(served, user("write hello"), begun)
    assert "hello" == "".join(
        chunk.choices[0].delta.content or "" for chunk in stream(served, user("write hello"), begun)
    )
    assert "write hello=oh, hello;" == text_of(
        served, user("write hello"), {"role": "assistant", "content": "oh, hello"}, user("recall")
    )


@pytest.mark.parametrize(
    ("profile", "error", "words"),
    [("broken", openai.InternalServerError, "no such model")],
)
def test_a_model_that_cannot_be_loaded_is_an_error_for_every_request(runtime, profile, error, words):
    with Served(config_of(SessionRequest(settings=read_settings(profile)), AccessPolicy())) as served:
        for _ in range(2):
            with pytest.raises(error, match=words):
                ask(served, user("hello"))


def test_a_client_that_disconnects_while_a_model_loads_cancels_its_answer(runtime, host):
    with Served(config_of(SessionRequest(settings=read_settings("endless")), AccessPolicy())) as served:
        with asking(served, messages=[user("hello")]):
            until(lambda: "loading the target model" in served.said)

        assert becomes(lambda: host.call("stats")["live_turns"] == 0)
    kill_host()  # it would load for ever


def test_after_a_killed_host_only_one_answer_fails(served):
    first = text_of(served, user("count 2"), seed=1)
    with ask(served, user("slowly 100000"), stream=True) as chunks:
        next(iter(chunks))
        kill_host()

        with pytest.raises(openai.APIError, match="the engine process"):
            list(chunks)

    assert text_of(served, user("count 2"), assistant(first), user("recall")) == f"count 2={first};"


def test_thinking_has_a_field_of_its_own_and_is_never_content(served):
    message = ask(served, user("think 3")).choices[0].message
    deltas = [chunk.choices[0].delta for chunk in stream(served, user("think 3"))]

    assert (message.reasoning_content, message.content) == ("thought0 thought1 thought2 ", "so it is")
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == message.reasoning_content
    assert "".join(delta.content or "" for delta in deltas) == message.content
    assert ask(served, user("think 3")).usage.completion_tokens_details.reasoning_tokens == 3


def test_an_answer_without_thinking_has_no_such_field(served):
    assert not hasattr(ask(served, user("count 3")).choices[0].message, "reasoning_content")


def test_an_answer_with_thinking_continues_in_its_session(served, host):
    first = text_of(served, user("think 3"))
    before = settled_session_count(host)

    assert text_of(served, user("think 3"), assistant(first), user("recall")) == "think 3=so it is;"
    assert settled_session_count(host) == before
