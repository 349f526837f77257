"""`/v1/completions`: continuations and gaps, by OpenAI's client and by hand."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from serve_tests.conftest import MODEL, Served, asking, becomes, config_of, raw, until
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import TokenBias
from specchat.errors import UsageError
from specchat.host.client import SessionRequest
from specchat.profile.keys import Sampling
from specchat.profile.settings import read_settings
from specchat_serve.api_errors import RequestError
from specchat_serve.authorization import AccessPolicy
from specchat_serve.completer import NO_GAPS
from specchat_serve.openai_completions import DEFAULT_MAX_TOKENS, translate_completion
from tests.each_row import each_row
from tests.host.conftest import kill_host

PATH = "/v1/completions"


def complete(served: Served, prompt: str, **more: Any) -> Any:
    return served.client.completions.create(model=MODEL, prompt=prompt, max_tokens=100, **more)


def read(**body: Any) -> FimRequest:
    return translate_completion({"prompt": "before", **body}, ("ours",)).request


def test_the_official_client_gets_a_completion(served):
    completion = complete(served, "before", suffix="after")

    assert (completion.choices[0].text, completion.choices[0].finish_reason) == ("BEFORE AFTER", "stop")
    assert (completion.object, completion.model) == ("text_completion", MODEL)
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (6, 12)


def test_a_stream_has_the_text_of_a_whole_completion(served):
    *chunks, last = complete(served, "before", stream=True, stream_options={"include_usage": True})

    first, *pieces, end = [(chunk.choices[0].text, chunk.choices[0].finish_reason) for chunk in chunks]
    assert (("BEF", None), ("", "stop")) == (first, end)
    assert ("ORE ", {None}) == ("".join(text for text, _ in pieces), {reason for _, reason in pieces})
    assert ([], 7) == (last.choices, last.usage.completion_tokens)


def test_a_stream_of_a_gap_ends_before_its_stop_text(served):
    chunks = list(complete(served, "before", suffix="after", stop=["E A"], stream=True))

    assert "BEFOR" == "".join(chunk.choices[0].text for chunk in chunks)
    assert "stop" == chunks[-1].choices[0].finish_reason


def test_a_text_is_streamed_before_the_completion_is_over(served):
    with complete(served, "endless", stream=True) as chunks:
        assert "begun" == next(iter(chunks)).choices[0].text
        assert 1 == served.server.connection_pool.running_count

    assert becomes(lambda: served.server.connection_pool.running_count == 0)


def test_a_host_that_is_killed_in_a_stream_ends_it_with_an_error(served):
    with complete(served, "endless", stream=True) as chunks:
        texts = iter(chunks)
        assert "begun" == next(texts).choices[0].text
        kill_host()

        with pytest.raises(openai.APIError, match="the engine process was killed"):
            list(texts)

    assert "BEFORE " == complete(served, "before").choices[0].text


def test_a_limit_and_a_stop_text_end_it(served):
    cut = served.client.completions.create(model=MODEL, prompt="before", max_tokens=3).choices[0]
    stopped = complete(served, "one\ntwo\nthree", stop=["THREE", "\n"]).choices[0]

    assert (cut.text, cut.finish_reason) == ("BEF", "length")
    assert (stopped.text, stopped.finish_reason) == ("ONE", "stop")


def test_a_model_without_fim_tokens_refuses_a_suffix_and_continues_a_prompt(runtime):
    with Served(config_of(SessionRequest(settings=read_settings("no gaps")), AccessPolicy())) as served:
        for _ in range(2):
            with pytest.raises(openai.BadRequestError, match="no fill-in-the-middle tokens"):
                complete(served, "before", suffix="after")

        assert "BEFORE " == complete(served, "before").choices[0].text
    assert NO_GAPS.startswith("suffix: ")


def test_a_completion_waits_for_the_models(runtime, host):
    host.call("unload")

    with Served(config_of(SessionRequest(settings=read_settings("another")), AccessPolicy())) as served:
        assert "BEFORE " == complete(served, "before").choices[0].text


def test_a_model_that_cannot_be_loaded_is_an_error(runtime):
    with (
        Served(config_of(SessionRequest(settings=read_settings("broken")), AccessPolicy())) as served,
        pytest.raises(openai.InternalServerError, match="no such model"),
    ):
        complete(served, "before")


def test_a_disconnected_client_cancels_its_completion(served):
    with asking(served, PATH, prompt="slowly"):
        until(lambda: served.server.connection_pool.running_count == 1)

    assert becomes(lambda: served.server.connection_pool.running_count == 0)


def test_the_smallest_request_has_the_limit_of_openai():
    asked = read(prompt=["before"])

    assert ("before", "", DEFAULT_MAX_TOKENS) == (
        asked.prefix, asked.suffix, asked.max_tokens
    )  # fmt: skip


def test_values_without_effect_and_unknown_fields_are_ignored():
    assert read() == read(n=1, echo=False, temperature=0, best_of=1, user="x", suffix=None)


def test_a_prompt_is_raw_and_sampled_and_a_gap_is_neither():
    sampled = read(temperature=0.7, top_p=0.5, top_k=-1, seed=7, max_tokens=5000)

    assert (True, Sampling(temperature=0.7, top_p=0.5, seed=7)) == (sampled.is_raw, sampled.sampling)
    assert (False, Sampling()) == (read(suffix="x", seed=7).is_raw, read(suffix="x", seed=7).sampling)


@each_row(
    "body, param",
    [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 2, "best_of": 3}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"echo": "yes"}, "echo"),
        ({"echo": True, "suffix": "x"}, "suffix"),
        ({"prompt": [1, 2], "suffix": "x"}, "suffix"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [[1], [True]]}, "prompt"),
        ({"prompt": ["a"] * 65, "n": 2}, "prompt"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": 5}, "logit_bias"),
        ({"temperature": 0.7, "suffix": "x"}, "temperature"),
        ({"temperature": 9}, None),
        ({"prompt": ""}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"suffix": 5}, "suffix"),
        ({"stop": 5}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"model": "other"}, "model"),
    ],
)
def test_an_unsupported_field_is_an_error_with_its_name(body, param):
    with pytest.raises(RequestError) as refused:
        read(**body)

    assert param == refused.value.api_error.param


def test_a_limit_that_is_too_large_is_an_error(served):
    with pytest.raises(UsageError, match="between 1 and 1024"):
        read(suffix="x", max_tokens=5000)

    assert 400 == raw(served, "POST", PATH, json.dumps({"prompt": "x", "max_tokens": 0}))[0]


def test_each_prompt_has_its_answers_in_order(served):
    whole = served.client.completions.create(model=MODEL, prompt=["one", "two"], n=2, max_tokens=20)
    chunks = list(served.client.completions.create(model=MODEL, prompt=["one", "two"], n=2, max_tokens=20, stream=True))

    assert [(0, "ONE "), (1, "ONE "), (2, "TWO "), (3, "TWO ")] == [(each.index, each.text) for each in whole.choices]
    assert (6, 16) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    for choice in whole.choices:
        own = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == choice.index]
        assert (choice.text, "stop") == ("".join(each.text for each in own), own[-1].finish_reason)
    assert 4 == len(whole.usage.specchat["choices"])


def test_tokens_are_prompts_and_the_prompt_is_repeated(served):
    ids = list(b"ab")
    one, two = complete(served, ids), complete(served, [ids, list(b"c")], echo=True)
    chunks = list(complete(served, ids, echo=True, stream=True))

    assert "AB " == one.choices[0].text
    assert ["abAB ", "cC "] == [each.text for each in two.choices]
    assert "abAB " == "".join(chunk.choices[0].text for chunk in chunks)


def test_probabilities_of_a_repeated_prompt_have_the_old_form(served):
    """As lm-evaluation-harness reads them: of the prompt, whose first token has none."""
    logprobs = complete(served, "ab", echo=True, logprobs=1).choices[0].logprobs

    assert (["a", "b"], [0, 1]) == (logprobs.tokens[:2], logprobs.text_offset[:2])
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs)
    assert {"b": logprobs.token_logprobs[1]} == logprobs.top_logprobs[1]


def test_answers_of_one_prompt_differ_by_their_seeds():
    given = translate_completion({"prompt": "x", "n": 3, "seed": 7}, ("ours",))
    drawn = translate_completion({"prompt": "x", "n": 2}, ("ours",))

    assert [7, 8, 9] == [each.sampling.seed for each in (given.request, *given.other_requests)]
    assert drawn.request.sampling.seed + 1 == drawn.other_requests[0].sampling.seed
    assert read(n=1).sampling.seed is None


def test_a_bias_is_given_by_the_id_of_a_token():
    assert (TokenBias(5, -100.0), TokenBias(7, 2.5)) == read(logit_bias={"5": -100, "7": 2.5}).logit_bias
    assert (TokenBias(5, -100.0), TokenBias(7, 1.0)) == read(logit_bias=[[5, False], [7, 1]]).logit_bias
    assert () == read(logit_bias={}).logit_bias
