"""Parsing of request bodies, and the errors for invalid ones."""

from __future__ import annotations

import json
import math

import pytest

from serve_tests.conftest import MODEL
from specchat.chat.events import (
    CommittedToken,
    Event,
    Finished,
    LikelyToken,
    StepDone,
    TextDelta,
    ThinkingDelta,
    Totals,
)
from specchat.chat.request import AnswerFormat, Request, TokenBias
from specchat.chat.transcript import Turn
from specchat.errors import ContextError, HostError, InputError, UsageError
from specchat_serve.api_errors import RequestError, to_api_error
from specchat_serve.engine_request import GREETING, EngineRequest
from specchat_serve.openai_chat import ChatReply, translate_chat
from specchat_serve.openai_objects import error_body
from specchat_serve.replies import TranslatedRequest
from tests.each_row import each_row

SCHEMA = {"type": "object"}


def chat(*pairs: tuple[str, object]) -> list[dict[str, object]]:
    return [{"role": role, "content": content} for role, content in pairs]


def translate(messages: list[dict[str, object]] | None = None, **more: object) -> TranslatedRequest:
    body = {"messages": chat(("user", "hello")) if messages is None else messages, **more}
    return translate_chat(body, ("ours", "also-ours"))


def read(messages: list[dict[str, object]] | None = None, **more: object) -> EngineRequest:
    return translate(messages, **more).request


def test_the_smallest_request():
    assert EngineRequest(Request("hello")) == read()


def test_an_answer_that_the_client_began_is_continued():
    asked = read(chat(("user", "one"), ("assistant", "1"), ("user", "two"), ("assistant", "2 is ")))

    assert (Request("two", answer_prefix="2 is "), (Turn("one", answer="1"),)) == (asked.request, asked.turns)


def test_before_the_first_words_of_the_assistant_stands_a_greeting():
    asked = read(chat(("assistant", "How can I help?"), ("user", "hello")))

    assert (Turn(GREETING, answer="How can I help?"),) == asked.turns


def test_every_name_of_the_model_is_its_name():
    assert read() == read(model="ours") == read(model="also-ours")


def test_request_fields_replace_profile_values():
    translated = translate(
        model="ours",
        max_tokens=5,
        seed=3,
        temperature=0.5,
        stop="END",
        stream=True,
        stream_options={"include_usage": True},
    )

    assert Request("hello", max_tokens=5, seed=3, temperature=0.5, stop=("END",)) == translated.request.request
    assert translated.is_streamed and translated.reply.includes_usage


def test_the_newer_name_of_the_limit_counts():
    assert 7 == read(max_tokens=5, max_completion_tokens=7).request.max_tokens


def test_sampling_fields_become_settings():
    changes = read(chat(("system", "be brief"), ("user", "hello")), top_p=0.9, top_k=4).changes

    assert {"prompt.system": "be brief", "sampling.top_p": 0.9, "sampling.top_k": 4} == changes
    assert {} == read().changes


def test_messages_become_exchanges_and_a_question():
    rules = chat(("developer", "be brief"), ("system", "be kind"))
    asked = read(
        [
            *rules,
            *chat(("user", "one"), ("assistant", "1"), ("user", "two"), ("assistant", None), ("user", "3")),
        ]
    )

    assert (Turn("one", answer="1"), Turn("two", answer="")) == asked.turns
    assert {"prompt.system": "be brief\n\nbe kind"} == asked.changes
    assert "3" == asked.request.text


def test_messages_of_one_side_in_a_row_are_one_and_a_late_system_is_the_users():
    asked = read(
        chat(("user", "a"), ("user", "b"), ("assistant", "1"), ("assistant", "2"), ("user", "c"), ("system", "d"))
    )

    assert (Turn("a\n\nb", answer="1\n\n2"),) == asked.turns
    assert "c\n\nd" == asked.request.text


def test_parts_of_text_are_its_lines():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    assert "one\ntwo" == read(chat(("user", parts))).request.text


@each_row(
    "form, structure",
    [
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, AnswerFormat.parse("schema", SCHEMA)),
        ({"type": "json_object"}, AnswerFormat.parse("schema", SCHEMA)),
        ({"type": "text"}, None),
        (None, None),
    ],
)
def test_a_response_format_is_the_form_of_the_answer(form, structure):
    assert structure == read(response_format=form).request.answer_format


def test_neutral_values_and_unknown_fields_are_ignored():
    neutral = {
        "n": 1,
        "tools": [],
        "logprobs": False,
        "tool_choice": "auto",
        "logit_bias": None,
    }

    assert read() == read(**neutral, user="somebody", store=True, cache_prompt=True)


@each_row(
    "body, param",
    [
        ({"n": 129}, "n"),
        ({"n": 2, "best_of": 4}, "best_of"),
        ({"tools": [{}]}, "tools"),
        ({"functions": [{}]}, "functions"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"presence_penalty": "much"}, "presence_penalty"),
        ({"logprobs": "yes"}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -2}, "top_logprobs"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_regex": "a", "structured_outputs": {"choice": ["b"]}}, "guided_regex"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"seed": True}, "seed"),
        ({"temperature": "hot"}, "temperature"),
        ({"stop": [""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stream_options": [1]}, "stream_options"),
        ({"logit_bias": {"5": "much"}}, "logit_bias"),
        ({"grammar": "root ::= x"}, "grammar"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages"),
        ({"messages": chat(("narrator", "hello"))}, "messages"),
        ({"messages": chat(("user", 5))}, "messages"),
        ({"messages": chat(("user", [5]))}, "messages"),
        ({"messages": chat(("user", [{"type": "image_url", "image_url": {"url": "data:"}}]))}, "messages"),
        ({"messages": chat(("user", "x"), ("assistant", "y")), "response_format": {"type": "json_object"}}, "messages"),
        ({"messages": chat(("system", ""))}, "messages"),
        ({"messages": chat(("user", ""))}, "messages"),
        ({"messages": chat(("user", ""), ("assistant", "hello"), ("user", "hello"))}, "messages"),
        ({"messages": chat(("user", "hello"), ("tool", "5"))}, "messages"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}]}, "messages"),
    ],
)
def test_an_unsupported_field_is_an_error_with_its_name(body, param):
    with pytest.raises(RequestError) as refused:
        read(**{"messages": None, **body})

    assert (400, param) == (refused.value.api_error.status, refused.value.api_error.param)


@each_row("limit", [{"max_tokens": 0}, {"max_completion_tokens": 0, "max_tokens": 5}])
def test_a_limit_of_zero_tokens_is_an_error(limit):
    with pytest.raises(UsageError, match="at least 1"):
        read(**limit)


@each_row(
    "error, status, kind",
    [
        (UsageError("no"), 400, "invalid_request_error"),
        (ContextError("no"), 400, "invalid_request_error"),
        (InputError("no"), 400, "invalid_request_error"),  # of a chat template that refuses a conversation
        (HostError("no"), 503, "server_error"),
        (RequestError("no", status=404), 404, "invalid_request_error"),
    ],
)
def test_our_errors_have_a_status(error, status, kind):
    fault = to_api_error(error)

    assert (status, kind, "no") == (
        fault.status,
        error_body(fault)["error"]["type"],
        error_body(fault)["error"]["message"],
    )


@each_row(
    "fields, thinking",
    [
        ({}, None), ({"chat_template_kwargs": {"enable_thinking": False}}, "off"),
        ({"chat_template_kwargs": {"thinking": True}}, "on"), ({"chat_template_kwargs": {}}, None),
        ({"reasoning_effort": "none"}, "off"), ({"reasoning_effort": "high"}, None),
    ],
)  # fmt: skip
def test_a_client_may_turn_thinking_on_and_off(fields, thinking):
    assert read(**fields).request.thinking == thinking


@each_row("options, field", [({"enable_thinking": "yes"}, "enable_thinking"), (True, "chat_template_kwargs")])
def test_wrong_options_of_the_template_are_refused(options, field):
    with pytest.raises(RequestError, match=f"{field}: give"):
        read(chat_template_kwargs=options)


def test_probabilities_are_computed_for_a_client_that_wants_them():
    assert read(logprobs=True, top_logprobs=2).request.wants_probabilities
    assert not read().request.wants_probabilities


def reply_with_tokens(*events: Event) -> ChatReply:
    """The reply to a request with logprobs after a step with these tokens and texts."""
    reply = translate(logprobs=True, top_logprobs=1).reply
    for event in events:
        reply.answer.on_event(event)
    return reply


def step(*tokens: tuple[bytes, float]) -> StepDone:
    committed = (
        CommittedToken(1, text, "target", p, (LikelyToken(b"it", 0.5), LikelyToken(b"x", 0.25))) for text, p in tokens
    )
    return StepDone((), (), tuple(committed), 0.0, 0.0)


def test_logprobs_are_those_of_the_tokens_of_the_text():
    events = (
        step((b"hm", 1.0)), ThinkingDelta("hm"), step((b"</think>\n", 1.0), (b"\xc3", 0.5)), step((b"\xa9 so", 0.25)),
        TextDelta("\u00e9 so"), step((b"<end>", 1.0)), Finished("stop", Totals()),
    )  # fmt: skip

    first, second = reply_with_tokens(*events).whole()["choices"][0]["logprobs"]["content"]
    assert (math.log(0.5), [0xC3]) == (first["logprob"], first["bytes"])
    assert (math.log(0.25), [*b"\xa9 so"]) == (second["logprob"], second["bytes"])
    assert [("it", math.log(0.5))] == [(each["token"], each["logprob"]) for each in second["top_logprobs"]]
    assert b'"logprobs": {"content": [{"token"' in reply_with_tokens(*events).end()  # what no chunk had


def test_the_step_that_ends_a_thought_has_the_first_tokens_of_the_text():
    events = (
        step((b"so", 1.0)), ThinkingDelta("so"), step((b" hm", 1.0), (b"</think>", 1.0), (b"so", 0.5)),
        ThinkingDelta(" hm"), TextDelta("so"), Finished("stop", Totals()),
    )  # fmt: skip

    [token] = reply_with_tokens(*events).whole()["choices"][0]["logprobs"]["content"]
    assert math.log(0.5) == token["logprob"]


def test_each_chunk_of_a_stream_has_the_logprobs_of_its_tokens():
    reply, pieces = translate(logprobs=True).reply, (b"one ", b"two", b" three")
    sent = list[list[str]]()
    for piece in pieces:
        reply.answer.on_event(StepDone((), (), (CommittedToken(1, piece, "target", 0.5),), 0.0, 0.0))
        delta = reply.answer.on_event(TextDelta(piece.decode()))
        chunk = json.loads(reply.delta(delta).removeprefix(b"data: "))
        sent.append([each["token"] for each in chunk["choices"][0]["logprobs"]["content"]])
    reply.answer.on_event(Finished("stop", Totals()))

    assert [["one "], ["two"], [" three"]] == sent
    assert b'"logprobs": {"content": [], "refusal": null}' in reply.end()


def test_a_probability_of_zero_has_the_smallest_logprob():
    reply = reply_with_tokens(step((b"so", 0.0)), TextDelta("so"), Finished("stop", Totals()))

    assert -9999.0 == reply.whole()["choices"][0]["logprobs"]["content"][0]["logprob"]


def test_without_the_field_there_are_no_logprobs():
    assert translate().reply.whole()["choices"][0]["logprobs"] is None


def test_a_question_has_several_answers_with_other_seeds(served):
    whole = served.client.chat.completions.create(model=MODEL, messages=chat(("user", "count 2")), n=3, seed=7)
    drawn = served.client.chat.completions.create(model=MODEL, messages=chat(("user", "count 2")), n=2)
    chunks = list(
        served.client.chat.completions.create(model=MODEL, messages=chat(("user", "count 2")), n=3, seed=7, stream=True)
    )

    texts = [choice.message.content for choice in whole.choices]
    assert [0, 1, 2] == [choice.index for choice in whole.choices] and texts[0].replace("seed 7", "seed 9") == texts[2]
    assert 1 < len({choice.message.content for choice in drawn.choices})
    for choice in whole.choices:
        own = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == choice.index]
        assert "assistant" == own[0].delta.role
        assert choice.message.content == "".join(each.delta.content or "" for each in own)
    assert 3 * whole.usage.specchat["choices"][0]["steps"] == sum(
        each["steps"] for each in whole.usage.specchat["choices"]
    )


def test_biases_reach_the_engine():
    assert (TokenBias(5, -100.0),) == read(logit_bias={"5": -100}).request.logit_bias
