"""The API of Ollama: requests, lines of JSON, and what its clients ask before them."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from datetime import datetime
from typing import Any
from urllib.parse import urlparse

import pytest

from serve_tests.conftest import MODEL, Served, asking, becomes, config_of, raw, until
from specchat.chat.events import Finished, LoadingProgress, Routed, Totals
from specchat.chat.fim_request import MAX_FIM_TOKENS
from specchat.chat.request import AnswerFormat, Request
from specchat.chat.transcript import Turn
from specchat.host.client import SessionRequest
from specchat_serve.api_errors import RequestError
from specchat_serve.authorization import AccessPolicy
from specchat_serve.engine_request import EngineRequest
from specchat_serve.ollama_api import LinesReply, translate_generate, translate_ollama_chat
from tests.each_row import each_row

SCHEMA = {"type": "object"}
HELLO = {"role": "user", "content": "hello"}


def post(served: Served, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    return raw(served, "POST", path, json.dumps({"model": MODEL, "stream": False, **body}))


def lines(served: Served, path: str, **body: Any) -> list[dict[str, Any]]:
    """The lines of a stream, which is what Ollama does by default."""
    place = urlparse(served.address)
    with closing(http.client.HTTPConnection(place.hostname, place.port)) as connection:
        connection.request("POST", path, json.dumps({"model": MODEL, **body}))
        response = connection.getresponse()
        assert response.getheader("Content-Type") == "application/x-ndjson"
        return [json.loads(line) for line in response.read().splitlines()]


def chat(**body: Any) -> EngineRequest:
    return translate_ollama_chat({"model": "ours", "messages": [HELLO], **body}, ("ours",)).request


def generate(**body: Any) -> Any:
    return translate_generate({"model": "ours", "prompt": "hello", **body}, ("ours",)).request


def test_a_chat_is_a_stream_of_lines_unless_the_client_says_no(served):
    question = [{"role": "user", "content": "slowly 12"}]
    *parts, last = lines(served, "/api/chat", messages=question, options={"seed": 5})
    status, whole = post(served, "/api/chat", messages=question, options={"seed": 5})

    text = "".join(part["message"]["content"] for part in parts)
    assert (200, text) == (status, whole["message"]["content"])
    assert len(parts) > 3 and all(part["model"] == MODEL and not part["done"] for part in parts)
    assert (True, "stop", "") == (last["done"], last["done_reason"], last["message"]["content"])
    assert {"assistant"} == {part["message"]["role"] for part in [*parts, last, whole]}
    assert last.keys() == whole.keys()


def test_the_last_line_has_the_counts_and_durations(served):
    *_, last = lines(served, "/api/generate", prompt="guess 5")

    assert (3, 10) == (last["prompt_eval_count"], last["eval_count"])
    assert all(isinstance(last[name], int) for name in last if name.endswith("_duration"))
    assert last["total_duration"] > 0
    assert datetime.fromisoformat(last["created_at"]).tzinfo is not None


def test_durations_are_nanoseconds():
    reply = LinesReply("ours", "response")
    totals = Totals(prompt_tokens=4, completion_tokens=2, seconds=2.0, queue_seconds=0.25, prefill_seconds=0.25)
    for event in (
        LoadingProgress("target", 1, 2),
        Routed("plain", 1, "", 1),
        Finished("stop", totals),
    ):
        reply.answer.on_event(event)

    told = reply.whole()

    assert (250_000_000, 1_500_000_000) == (told["prompt_eval_duration"], told["eval_duration"])
    assert told["total_duration"] >= told["load_duration"] > 0


def test_a_prompt_is_answered(served):
    _, told = post(served, "/api/generate", prompt="write hello")

    assert ("hello", True, "stop") == (told["response"], told["done"], told["done_reason"])


def test_thinking_has_a_field_of_its_own(served):
    _, chatted = post(served, "/api/chat", messages=[{"role": "user", "content": "think 3"}])
    parts = lines(served, "/api/generate", prompt="think 3")

    assert ("thought0 thought1 thought2 ", "so it is") == (
        chatted["message"]["thinking"],
        chatted["message"]["content"],
    )
    assert "thought0 thought1 thought2 " == "".join(part.get("thinking", "") for part in parts)
    assert "so it is" == "".join(part["response"] for part in parts)


@each_row("think, mode", [(True, "on"), (False, "off"), ("high", "on"), (None, None)])
def test_a_client_may_turn_thinking_on_and_off(think, mode):
    assert mode == chat(think=think).request.thinking == generate(think=think).request.thinking


def test_a_conversation_is_one(served):
    said = [{"role": "user", "content": "what?"}, {"role": "assistant", "content": "this"}]

    _, told = post(served, "/api/chat", messages=[*said, {"role": "user", "content": "recall"}])

    assert "what?=this;" == told["message"]["content"]


def test_a_request_without_a_question_loads_the_models(served):
    _, generated = post(served, "/api/generate", keep_alive="5m")
    (chatted,) = lines(served, "/api/chat", messages=[])

    assert ("", True, "load") == (generated["response"], generated["done"], generated["done_reason"])
    assert ("", True, "load") == (chatted["message"]["content"], chatted["done"], chatted["done_reason"])


def test_unloading_is_left_to_the_engine(served):
    _, told = post(served, "/api/generate", keep_alive=0)

    assert "load" == told["done_reason"] and "other programs" in told["specchat"]["notices"][0]


def test_a_raw_prompt_and_a_suffix_are_completions(served):
    _, gap = post(served, "/api/generate", prompt="before", suffix="after")
    _, continued = post(served, "/api/generate", prompt="before", raw=True, options={"num_predict": 3})

    assert ("BEFORE AFTER", "stop") == (gap["response"], gap["done_reason"])
    assert ("BEF", "length") == (continued["response"], continued["done_reason"])
    assert MAX_FIM_TOKENS == generate(raw=True).max_tokens


def test_the_model_is_listed(served):
    status, tags = raw(served, "GET", "/api/tags")

    (model,) = tags["models"]
    assert (200, MODEL, MODEL) == (status, model["name"], model["model"])
    assert datetime.fromisoformat(model["modified_at"])
    assert {"parent_model", "format", "family", "families", "parameter_size", "quantization_level"} == set(
        model["details"]
    )


def test_clients_find_the_model_where_they_look_for_it(served):
    (listed,) = raw(served, "GET", "/api/tags")[1]["models"]
    post(served, "/api/generate", prompt="hello")
    (running,) = raw(served, "GET", "/api/ps")[1]["models"]

    assert 64 == len(listed["digest"]) and listed["digest"] == running["digest"]
    assert datetime.fromisoformat(running["expires_at"]) and "size_vram" in running
    assert (200, {"status": "success"}) == post(served, "/api/pull")


def test_each_line_has_the_probabilities_of_its_text(served):
    question = [{"role": "user", "content": "guess 2"}]
    whole = post(served, "/api/chat", messages=question, logprobs=True, top_logprobs=2)[1]
    *pieces, _ = lines(served, "/api/chat", messages=question, logprobs=True, top_logprobs=2)

    assert whole["message"]["content"] == "".join(each["token"] for each in whole["logprobs"])
    assert {2} == {len(each["top_logprobs"]) for each in whole["logprobs"]}
    for piece in pieces:
        assert piece["message"]["content"] == "".join(each["token"] for each in piece["logprobs"])
    assert "logprobs" not in post(served, "/api/chat", messages=question)[1]


def test_the_model_is_described_from_its_files(runtime):
    with Served(config_of(SessionRequest(), AccessPolicy(), "embedded")) as served:
        (model,) = raw(served, "GET", "/api/tags")[1]["models"]
        _, shown = post(served, "/api/show")

    assert model["size"] > 1_000_000 and model["details"]["parameter_size"].endswith("M")
    assert "safetensors" == model["details"]["format"]
    assert shown["details"] == model["details"] and ["completion", "tools"] == shown["capabilities"]
    assert shown["model_info"]["general.architecture"] == model["details"]["family"] != ""


def test_the_version_is_one_that_clients_can_compare(served):
    _, told = raw(served, "GET", "/api/version")

    assert all(part.isdigit() for part in told["version"].split("."))


def test_a_client_sees_that_a_server_runs(served):
    place = urlparse(served.address)
    for method in ("GET", "HEAD"):
        with closing(http.client.HTTPConnection(place.hostname, place.port)) as connection:
            connection.request(method, "/")
            assert 200 == connection.getresponse().status


def test_options_become_settings():
    asked = chat(
        options={
            "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "repeat_penalty": 1.1, "seed": 3,
            "num_predict": 7, "stop": ["END"], "num_ctx": 4096,
        }
    )  # fmt: skip

    assert Request("hello", max_tokens=7, seed=3, temperature=0.5, stop=("END",)) == asked.request
    assert asked.changes == {
        "sampling.top_p": 0.9, "sampling.top_k": 4, "sampling.min_p": 0.1, "sampling.repetition_penalty": 1.1
    }  # fmt: skip


def test_negative_limits_and_seeds_are_none():
    assert Request("hello") == chat(options={"num_predict": -1, "seed": -1}).request


@each_row("form", ["json", SCHEMA])
def test_a_format_is_the_form_of_the_answer(form):
    assert AnswerFormat.parse("schema", SCHEMA) == chat(format=form).request.answer_format
    assert AnswerFormat.parse("schema", SCHEMA) == generate(format=form).request.answer_format


def test_a_system_prompt_and_a_begun_answer():
    asked = chat(messages=[{"role": "system", "content": "be brief"}, HELLO, {"role": "assistant", "content": "oh, "}])

    assert ("be brief", "oh, ") == (asked.changes["prompt.system"], asked.request.answer_prefix)
    assert "be brief" == generate(system="be brief").changes["prompt.system"]
    assert (Turn("one", answer="1"),) == chat(
        messages=[{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}, HELLO]
    ).turns


def test_values_without_effect_and_unknown_fields_are_ignored():
    assert chat() == chat(
        tools=[], format="", keep_alive="1h", options={"num_ctx": 9, "mirostat": 0, "unknown": 1}, more=1
    )


@each_row(
    "body, param",
    [
        ({"model": None}, "model"),
        ({"model": "other"}, "model"),
        ({"tools": [{}]}, "tools"),
        ({"think": "much"}, "think"),
        ({"format": "xml"}, "format"),
        ({"stream": "no"}, "stream"),
        ({"options": [1]}, "options"),
        ({"options": {"temperature": "hot"}}, "temperature"),
        ({"options": {"num_predict": 1.5}}, "num_predict"),
        ({"options": {"stop": 5}}, "stop"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages"),
        ({"messages": [HELLO, {"role": "tool", "content": "5"}]}, "messages"),
    ],
)
def test_a_wrong_or_unsupported_field_is_an_error_with_its_name(body, param):
    with pytest.raises(RequestError) as refused:
        chat(**body)

    assert param == refused.value.api_error.param


@each_row(
    "body, param",
    [
        ({"prompt": 5}, "prompt"),
        ({"images": ["aGk="]}, "images"),
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"context": [1, 2]}, "context"),
        ({"suffix": "x", "options": {"temperature": 1}}, "temperature"),
        ({"suffix": "x", "format": "json"}, "suffix"),
        ({"suffix": "x", "system": "be brief"}, "prompt"),
    ],
)
def test_a_wrong_field_of_generate_is_an_error_with_its_name(body, param):
    with pytest.raises(RequestError) as refused:
        generate(**body)

    assert param == refused.value.api_error.param


@each_row(
    "path, body, status",
    [
        ("/api/chat", "{", 400),
        ("/api/chat", "[]", 400),
        ("/api/chat", json.dumps({"model": "other", "messages": [HELLO]}), 404),
        ("/api/generate", json.dumps({"model": MODEL, "prompt": "crash"}), 500),
        ("/api/generate", json.dumps({"model": MODEL, "prompt": "fail"}), 400),
        ("/api/show", "{}", 400),
        ("/api/show", '{"model": "other"}', 404),
        ("/api/embed", "{}", 501),
        ("/api/pull", "{}", 400),
        ("/api/pull", '{"model": "other"}', 404),
        ("/api/push", "{}", 404),
    ],
)
def test_errors_are_those_of_ollama(served, path, body, status):
    told = raw(served, "POST", path, body)

    assert status == told[0] and ["error"] == list(told[1]) and isinstance(told[1]["error"], str)


def test_an_error_in_a_stream_is_its_last_line(served):
    with closing(http.client.HTTPConnection(urlparse(served.address).netloc)) as connection:
        connection.request("POST", "/api/generate", json.dumps({"model": MODEL, "prompt": "slowly 100000"}))
        response = connection.getresponse()
        response.readline()
        served.cancel_answers()
        *_, last = response.read().splitlines()

    assert "the server cancelled the answer" in json.loads(last)["error"]


def test_a_disconnected_client_cancels_its_answer(served, host):
    with asking(served, "/api/generate", model=MODEL, prompt="slowly 1000000"):
        until(lambda: host.call("stats")["live_turns"] == 1)

    assert becomes(lambda: host.call("stats")["live_turns"] == 0)


def test_the_token_and_the_rules_for_websites_apply(runtime, served):
    assert 403 == raw(served, "GET", "/api/tags", Origin="http://evil.example")[0]
    assert 403 == raw(served, "POST", "/api/chat", "{}", Host="evil.example")[0]
    with Served(config_of(SessionRequest(), AccessPolicy("right"))) as guarded:
        status, told = raw(guarded, "GET", "/api/tags")
        assert 401 == status and "token" in told["error"]
        assert 200 == raw(guarded, "GET", "/api/tags", Authorization="Bearer right")[0]
