"""The own API of llama-server, as plugins of editors use it, with a fake engine."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import urlparse

import pytest

from serve_tests.conftest import MODEL, Served, config_of, raw
from specchat.host.client import SessionRequest
from specchat.profile.keys import Sampling
from specchat.profile.settings import read_settings
from specchat_serve.api_errors import RequestError
from specchat_serve.authorization import AccessPolicy
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


HELLO = [{"role": "user", "content": "hello"}]


def post(served: Served, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    return raw(served, "POST", path, json.dumps(body))


def test_a_plugin_of_an_editor_gets_the_text_of_a_gap(served):
    status, told = post(served, "/infill", **EDITOR)
    request = translate_infill(EDITOR, ("ours",)).request

    assert (200, {"content", "timings/prompt_n"}) == (status, told.keys()) and told["content"]
    assert ("a.py\nx\n\ndef f():\n    re", "\n", 64, False) == (
        request.prefix, request.suffix, request.max_tokens, request.is_raw
    )  # fmt: skip
    whole = post(served, "/infill", **{**EDITOR, "response_fields": []})[1]
    assert whole["stop"] and "eos" == whole["stop_type"] and [] == whole["specchat"]["notices"]
    assert {"prompt_n", "predicted_ms", "draft_n", "draft_n_accepted"} <= whole["timings"].keys()


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
        (translate_llama_completion, {"prompt": [[1, 2], []]}, "prompt"),
        (translate_llama_completion, {"prompt": {"prompt_string": 5}}, "prompt"),
        (translate_llama_completion, {"prompt": {"prompt_string": "x", "multimodal_data": "iVBO"}}, "prompt"),
        (translate_llama_completion, {"prompt": ["x", "y"], "n": 65}, "prompt"),
        (translate_llama_completion, {"prompt": "x", "n_cmpl": 0}, "n_cmpl"),
        (translate_llama_completion, {"prompt": "x", "response_fields": "content"}, "response_fields"),
        (translate_infill, {"input_prefix": "x", "input_extra": "text"}, "input_extra"),
        *(
            (translate_infill, {"input_prefix": "x", "input_extra": [extra]}, "input_extra")
            for extra in ({}, "x", {"filename": "ok"}, {"filename": 1, "text": "a"}, {"filename": 1, "text": 2})
        ),
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
    asked = {"prompt": [97, 98], "n_probs": 2, "logit_bias": [[5, False]]}
    request = translate_llama_completion(asked, ("ours",)).request
    tokens = post(served, "/completion", prompt="ab", n_probs=2)[1]["completion_probabilities"]

    assert ((97, 98), True, -100.0) == (request.prompt_ids, request.wants_probabilities, request.logit_bias[0].bias)
    assert ["A", "B", " "] == [token["token"] for token in tokens]
    assert [(65, [65, 120], [*b"A"])] == [
        (token["id"], [each["id"] for each in token["top_logprobs"]], token["bytes"]) for token in tokens[:1]
    ]
    assert "completion_probabilities" not in post(served, "/completion", prompt="ab")[1]


def test_probabilities_are_those_of_sampling_where_nothing_else_changes_them(served):
    asked = {"prompt": "ab", "n_probs": 2, "post_sampling_probs": True}
    [token, *_] = post(served, "/completion", **asked, temperature=1)[1]["completion_probabilities"]
    others = [post(served, "/completion", **asked, **more)[1] for more in ({}, {"temperature": 1, "top_k": 3})]

    assert (0.5, [0.5, 0.25]) == (token["prob"], [each["prob"] for each in token["top_probs"]])
    for other in others:
        assert "logprob" in other["completion_probabilities"][0]
        assert "post_sampling_probs" in other["specchat"]["notices"][0]


def events(served: Served, **body: Any) -> list[dict[str, Any]]:
    with closing(http.client.HTTPConnection(urlparse(served.address).netloc)) as connection:
        connection.request("POST", "/completion", json.dumps({**body, "stream": True}))
        lines = connection.getresponse().read().decode().strip().split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_stream_with_likely_tokens_has_an_event_for_each_token(served):
    *pieces, _ = events(served, prompt="été", n_probs=1)

    assert [("É", "É"), ("T", "T"), ("É", "É"), (" ", " ")] == [
        (piece["content"], *(token["token"] for token in piece["completion_probabilities"])) for piece in pieces
    ]


def test_the_pieces_of_a_stream_have_their_tokens(served):
    *pieces, last = events(served, prompt="abc")

    assert [("ABC", [65, 66, 67]), (" ", [32])] == [(piece["content"], piece["tokens"]) for piece in pieces]
    assert [] == last["tokens"]
    assert [65, 66, 67, 32] == post(served, "/completion", prompt="abc", return_tokens=True)[1]["tokens"]
    assert [] == post(served, "/completion", prompt="abc")[1]["tokens"]


def test_an_answer_repeats_its_settings(served):
    asked = {"prompt": "a\nb", "n_predict": 9, "seed": 4, "repeat_penalty": 1.1, "stop": ["x"], "logit_bias": {"5": -2}}
    told = post(served, "/completion", **asked)[1]
    settings = told["generation_settings"]

    assert {**settings, "n_predict": 9, "seed": 4, "repeat_penalty": 1.1, "stop": ["x"]} == settings
    assert [{"token": 5, "bias": -2}] == settings["logit_bias"]
    assert ("a\nb", True, False) == (told["prompt"], told["has_new_line"], told["truncated"])
    assert not post(served, "/completion", prompt="a")[1]["has_new_line"]


def test_the_word_that_ended_an_answer_is_told(served):
    told = post(served, "/completion", prompt="abc", stop=["z", "C"])[1]

    assert ("AB", "word", "C") == (told["content"], told["stop_type"], told["stopping_word"])


def test_an_answer_has_the_fields_that_were_asked_for(served):
    fields = ["content", "generation_settings/n_predict", "timings/none", "none"]
    told = post(served, "/completion", prompt="ab", n_predict=2, response_fields=fields)[1]

    assert {"content": "AB", "generation_settings/n_predict": 2} == told


def test_several_prompts_have_an_answer_each(served):
    prompts = [[97, 98], "ab", {"prompt_string": "ab"}, [97, "b"]]
    answers = post(served, "/completion", prompt=prompts)[1]

    assert ["AB "] * 4 == [answer["content"] for answer in answers]
    assert [0, 1, 2, 3] == [answer["index"] for answer in answers]
    assert "ABCD " == post(served, "/completion", prompt=[97, "bc", 100])[1]["content"]
    assert 2 == len(post(served, "/completion", prompt="ab", n=2)[1])
    *pieces, first, second = events(served, prompt=["ab", "cd"])
    assert [(0, "AB "), (1, "CD ")] == [(piece["index"], piece["content"]) for piece in pieces]
    assert (0, 1) == (first["index"], second["index"])


@each_row("bias", [[["ab", -3]], {"ab": -3}, [[97, -3], [98, -3]], {"97": -3, "98": -3}])
def test_a_bias_is_of_the_tokens_of_a_text(served, bias):
    settings = post(served, "/completion", prompt="x", logit_bias=bias)[1]["generation_settings"]

    assert [{"token": 97, "bias": -3}, {"token": 98, "bias": -3}] == settings["logit_bias"]
    for path, body in (("/v1/chat/completions", {"messages": HELLO}), ("/v1/completions", {"prompt": "x"})):
        assert 200 == post(served, path, **body, logit_bias=bias)[0]


@each_row(
    "name, body",
    [
        ("logit_bias", {"prompt": "x", "logit_bias": {f"a{number}": 1 for number in range(300)}}),
        ("prompt", {"prompt": [5, *(f"a{number}" for number in range(300))]}),
    ],
)
def test_too_many_texts_are_an_error_that_names_their_field(served, name, body):
    status, told = post(served, "/completion", **body)

    assert (400, name) == (status, told["error"]["param"])
    assert told["error"]["message"].startswith(f"{name}: give at most")


def test_a_completion_goes_on_to_its_limit_if_it_is_asked(served):
    told = post(served, "/completion", prompt="ab", ignore_eos=True, logit_bias={"5": -2})[1]["generation_settings"]
    plain = post(served, "/completion", prompt="ab", ignore_eos=False)[1]["generation_settings"]

    assert ([{"token": 5, "bias": -2}, {"token": 0, "bias": None}], True) == (told["logit_bias"], told["ignore_eos"])
    assert ([], False) == (plain["logit_bias"], plain["ignore_eos"])
    assert 200 == post(served, "/v1/completions", prompt="ab", ignore_eos=True)[0]


def test_a_completion_has_the_form_of_a_schema(served):
    schema = {"type": "object"}

    assert "in the form of schema" == post(served, "/completion", prompt="ab", json_schema=schema)[1]["content"]
    asked = {"prompt": "ab", "json_schema": schema, "max_tokens": 40}
    assert "in the form of schema" == post(served, "/v1/completions", **asked)[1]["choices"][0]["text"]


@pytest.mark.parametrize("path", ["/models", "/health"])
def test_a_path_leads_to_the_same_with_and_without_a_version(served, path):
    told = raw(served, "GET", path)

    assert 200 == told[0]
    assert told == raw(served, "GET", f"/v1{path}")


def test_a_body_finds_its_api_under_both_paths(served):
    assert "chat.completion" == post(served, "/chat/completions", messages=HELLO)[1]["object"]
    assert "response" == post(served, "/responses", input="hello")[1]["object"]
    assert post(served, "/completions", prompt="before")[1]["stop"] is True


def test_texts_in_place_of_ids_fail_as_the_engine_does(runtime):
    settings = read_settings("broken")
    with Served(config_of(SessionRequest(settings=settings), AccessPolicy())) as broken:
        status, told = post(broken, "/completion", prompt="x", logit_bias={"ab": 1})

    assert 503 == status and "no such model" in told["error"]["message"]
