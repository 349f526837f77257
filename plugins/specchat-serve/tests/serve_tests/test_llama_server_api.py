"""The own API of llama-server, as plugins of editors use it, with a fake engine."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import urlparse

import pytest

from serve_tests.conftest import MODEL, Served, raw
from specchat.profile import Sampling
from specchat_serve.api_errors import RequestError
from specchat_serve.llama_server_api import (
    translate_detokenize,
    translate_infill,
    translate_llama_completion,
    translate_template,
    translate_tokenize,
)
from tests.each_row import each_row

# As llama.vim asks.
EDITOR = {
    "input_prefix": "def f():\n", "input_suffix": "\n", "input_extra": [{"text": "x", "filename": "a.py"}],
    "prompt": "    re", "n_predict": 64, "n_indent": 4, "top_k": 40, "top_p": 0.9, "stream": False,
    "cache_prompt": True, "samplers": ["top_k", "top_p", "infill"], "t_max_prompt_ms": 500, "t_max_predict_ms": 1000,
    "response_fields": ["content", "timings/prompt_n"],
}  # fmt: skip


def post(served: Served, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    return raw(served, "POST", path, json.dumps(body))


def test_a_plugin_of_an_editor_gets_the_text_of_a_gap(served):
    status, told = post(served, "/infill", **EDITOR)
    request = translate_infill(EDITOR, ("ours",)).request

    assert 200 == status and told["content"] and told["stop"] and "eos" == told["stop_type"]
    assert ("def f():\n    re", "\n", 64, False) == (request.prefix, request.suffix, request.max_tokens, request.is_raw)
    assert ["input_extra is left out: the text around the gap is all that is read"] == told["specchat"]["notices"]
    assert {"prompt_n", "predicted_ms", "draft_n", "draft_n_accepted"} <= told["timings"].keys()


def test_a_completion_is_that_of_a_raw_prompt(served):
    body = {"prompt": "before", "n_predict": 3, "temperature": 0.7, "repeat_penalty": 1.1, "seed": -1, "stop": []}
    request = translate_llama_completion(body, ("ours",)).request

    assert (True, Sampling(temperature=0.7, repetition_penalty=1.1), 3) == (
        request.is_raw, request.sampling, request.max_tokens
    )  # fmt: skip
    assert ("BEF", "limit") == tuple(map(post(served, "/completion", **body)[1].get, ("content", "stop_type")))
    assert post(served, "/completion", prompt="before", n_predict=-1)[1]["tokens_predicted"] > 3


def test_a_stream_has_pieces_and_a_last_event(served):
    with closing(http.client.HTTPConnection(urlparse(served.address).netloc)) as connection:
        connection.request("POST", "/completion", json.dumps({"prompt": "before", "stream": True}))
        lines = connection.getresponse().read().decode().strip().split("\n\n")
    *pieces, last = (json.loads(line.removeprefix("data: ")) for line in lines)

    assert "BEFORE " == "".join(piece["content"] for piece in pieces) and not any(piece["stop"] for piece in pieces)
    assert (True, "", MODEL) == (last["stop"], last["content"], last["model"])


@each_row(
    "translate, body, param",
    [
        (translate_llama_completion, {}, "prompt"),
        (translate_llama_completion, {"prompt": [[1, 2]]}, "prompt"),
        (translate_llama_completion, {"prompt": "x", "n_probs": 21}, "n_probs"),
        (translate_tokenize, {"content": 5}, "content"),
        (translate_detokenize, {"tokens": "ab"}, "tokens"),
        (translate_detokenize, {"tokens": [1, "b"]}, "tokens"),
        (translate_template, {"messages": []}, "messages"),
        (translate_llama_completion, {"prompt": "x", "grammar": "root ::= x"}, "grammar"),
        (translate_infill, {"input_prefix": 5}, "input_prefix"),
        (translate_infill, {"input_prefix": "x", "json_schema": {"type": "object"}}, "json_schema"),
    ],
)
def test_a_wrong_field_is_an_error_with_its_name(translate, body, param):
    with pytest.raises(RequestError) as refused:
        translate(body, ("ours",))

    assert param == refused.value.api_error.param


def test_the_server_tells_its_window_and_its_slots(served):
    _, props = raw(served, "GET", "/props")
    slots = raw(served, "GET", "/slots")[1]

    assert (MODEL, len(slots)) == (props["model_alias"], props["total_slots"])
    assert not any(slot["is_processing"] for slot in slots)
    assert {props["default_generation_settings"]["n_ctx"]} == {slot["n_ctx"] for slot in slots}


def test_a_text_has_tokens_and_tokens_have_a_text(served):
    assert (200, {"tokens": [97, 98]}) == post(served, "/tokenize", content="ab")
    assert (200, {"tokens": [{"id": 97, "piece": "a"}]}) == post(served, "/tokenize", content="a", with_pieces=True)
    assert (200, {"content": "ab"}) == post(served, "/detokenize", tokens=[97, 98])
    assert (200, {"tokens": []}) == post(served, "/tokenize")
    assert (200, {"content": ""}) == post(served, "/detokenize", tokens=[])


def test_a_text_to_tokenize_has_control_tokens_unless_it_says_no():
    default = translate_tokenize({"content": "x"}, ("ours",)).request
    other = translate_tokenize({"content": "x", "add_special": True, "parse_special": False}, ("ours",)).request

    assert (False, True, True, False) == (
        default.adds_start, default.parses_special, other.adds_start, other.parses_special
    )  # fmt: skip


def test_likely_tokens_stand_beside_those_of_a_completion(served):
    request = translate_llama_completion(
        {"prompt": [97, 98], "n_probs": 2, "logit_bias": [[5, False]]}, ("ours",)
    ).request

    assert ((97, 98), True, -100.0) == (request.prompt_ids, request.wants_probabilities, request.logit_bias[0].bias)
    assert [] == post(served, "/completion", prompt="ab", n_probs=2)[1]["completion_probabilities"]


@pytest.mark.parametrize("path", ["/models", "/health"])
def test_a_path_leads_to_the_same_with_and_without_a_version(served, path):
    told = raw(served, "GET", path)

    assert 200 == told[0]
    assert told == raw(served, "GET", f"/v1{path}")


def test_a_body_finds_its_api_under_both_paths(served):
    hello = [{"role": "user", "content": "hello"}]

    assert "chat.completion" == post(served, "/chat/completions", messages=hello)[1]["object"]
    assert "response" == post(served, "/responses", input="hello")[1]["object"]
    assert post(served, "/completions", prompt="before")[1]["stop"] is True
