"""`/v1/responses`, by OpenAI's client and by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import openai
import pytest

from serve_tests.conftest import MODEL, Served, asking, becomes, config_of, raw, sse_events, until
from specchat.chat.events import CommittedToken, Finished, LikelyToken, StepDone, TextDelta, Totals
from specchat.chat.request import AnswerFormat, Request
from specchat.chat.transcript import Turn
from specchat.host.client import SessionRequest
from specchat_serve.api_errors import RequestError
from specchat_serve.authorization import AccessPolicy
from specchat_serve.engine_request import EngineRequest
from specchat_serve.openai_responses import translate_response
from tests.each_row import each_row

PATH = "/v1/responses"
SCHEMA = {"type": "object"}


def respond(served: Served, text: Any, **more: Any) -> Any:
    return served.client.responses.create(model=MODEL, input=text, **more)


def read(**body: Any) -> EngineRequest:
    return translate_response({"input": "hello", **body}, ("ours",)).request


def item(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def test_the_official_client_is_answered(served):
    told = respond(served, "guess 5", extra_body={"seed": 5})

    assert told.output_text.startswith("word0 so word1 so ")
    assert ("completed", MODEL, False) == (told.status, told.model, told.store)
    assert (3, 10, 13) == (told.usage.input_tokens, told.usage.output_tokens, told.usage.total_tokens)
    assert 2.0 == told.usage.specchat["tokens_per_step"]


def test_a_stream_has_the_events_of_the_client(served):
    with served.client.responses.stream(model=MODEL, input="slowly 12", extra_body={"seed": 5}) as stream:
        events = list(stream)
        final = stream.get_final_response()

    names = [event.type for event in events]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == final.output_text == respond(served, "slowly 12", extra_body={"seed": 5}).output_text
    assert [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta",
    ] == names[:5]  # fmt: skip
    assert [
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
    ] == names[-4:]  # fmt: skip
    assert list(range(len(events))) == [event.sequence_number for event in events]
    assert names.count("response.output_text.delta") > 3


def test_thinking_is_an_item_of_reasoning_before_the_message(served):
    whole = respond(served, "think 3")
    with served.client.responses.stream(model=MODEL, input="think 3") as stream:
        events = list(stream)
        final = stream.get_final_response()

    assert ["reasoning", "message"] == [each.type for each in whole.output] == [each.type for each in final.output]
    assert "thought0 thought1 thought2 " == whole.output[0].content[0].text == final.output[0].content[0].text
    assert ("so it is", 3) == (final.output_text, final.usage.output_tokens_details.reasoning_tokens)
    added = [(event.output_index, event.item.id) for event in events if event.type == "response.output_item.added"]
    assert [(0, final.output[0].id), (1, final.output[1].id)] == added
    thought = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    assert thought == final.output[0].content[0].text
    assert "off" == read(reasoning={"effort": "none"}).request.thinking


def test_a_conversation_is_a_list_of_items(served):
    told = respond(served, [item("user", "what?"), item("assistant", "this"), {"role": "user", "content": "recall"}])

    assert "what?=this;" == told.output_text


def test_an_answer_that_is_cut_is_incomplete():
    reply = translate_response({"input": "hello"}, ("ours",)).reply
    reply.answer.on_event(Finished("length", Totals()))

    assert ("incomplete", "max_output_tokens") == (
        reply.whole()["status"], reply.whole()["incomplete_details"]["reason"]
    )  # fmt: skip
    assert b"event: response.incomplete\n" in reply.end()


@each_row("fields, likely", [({"top_logprobs": 1}, 1), ({"include": ["message.output_text.logprobs"]}, 0)])
def test_the_probabilities_of_the_text_stand_in_its_part_and_in_its_pieces(fields, likely):
    assert read(**fields).request.wants_probabilities
    reply, pieces, sent = translate_response({"input": "hello", **fields}, ("ours",)).reply, (b"one ", b"two"), b""
    for piece in pieces:
        token = CommittedToken(1, piece, "target", 0.5, (LikelyToken(b"it", 0.5), LikelyToken(b"x", 0.25)))
        reply.answer.on_event(StepDone((), (), (token,), 0.0, 0.0))
        sent += reply.delta(reply.answer.on_event(TextDelta(piece.decode())))
    reply.answer.on_event(Finished("stop", Totals()))
    events = [
        json.loads(line.removeprefix(b"data: ")) for line in (sent + reply.end()).splitlines() if line[:1] == b"d"
    ]

    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [["one "], ["two"]] == [[each["token"] for each in event["logprobs"]] for event in deltas]
    [done] = [event for event in events if event["type"] == "response.output_text.done"]
    [part] = events[-1]["response"]["output"][0]["content"]
    assert ["one ", "two"] == [each["token"] for each in done["logprobs"]] == [e["token"] for e in part["logprobs"]]
    assert (math.log(0.5), likely) == (part["logprobs"][0]["logprob"], len(part["logprobs"][0]["top_logprobs"]))


def test_a_client_reads_the_probabilities_of_a_response(served):
    include = ["message.output_text.logprobs"]
    told = respond(served, "count 2", include=include, top_logprobs=2)

    assert 2 == told.top_logprobs
    assert told.output_text == "".join(each.token for each in told.output[0].content[0].logprobs)
    assert [] == respond(served, "count 2").output[0].content[0].logprobs


def test_fields_become_a_request():
    asked = read(instructions="be brief", max_output_tokens=5, temperature=0.5, top_p=0.9)

    assert Request("hello", max_tokens=5, temperature=0.5) == asked.request
    assert {"prompt.system": "be brief", "sampling.top_p": 0.9} == asked.changes


def test_items_of_reasoning_without_a_text_are_left_out():
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}

    said = [item("developer", "be brief"), item("user", "1"), thought, item("assistant", "2"), item("user", "3")]
    asked = read(input=said)

    assert ((Turn("1", answer="2"),), "be brief") == (asked.turns, asked.changes["prompt.system"])


@each_row("form", [{"type": "json_schema", "name": "x", "schema": SCHEMA}, {"type": "json_object"}])
def test_a_format_is_the_form_of_the_answer(form):
    assert AnswerFormat.parse("schema", SCHEMA) == read(text={"format": form}).request.answer_format


def test_values_without_effect_and_unknown_fields_are_ignored():
    assert read() == read(
        tools=[], tool_choice="auto", store=True, background=False, truncation="disabled", include=[],
        reasoning={"effort": "low"}, text={"format": {"type": "text"}}, previous_response_id=None, more=1,
    )  # fmt: skip


@each_row(
    "body, param",
    [
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [{"type": "namespace", "name": "a", "tools": [{"type": "namespace"}]}]}, "tools"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"instructions": 5}, "instructions"),
        ({"text": {"format": {"type": "xml"}}}, "text"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": [5]}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "5"}]}, "input"),
        ({"input": [{"role": "narrator", "content": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
    ],
)
def test_a_wrong_or_unsupported_field_is_an_error_with_its_name(body, param):
    with pytest.raises(RequestError) as refused:
        read(**body)

    assert param == refused.value.api_error.param


def test_errors_are_those_of_openai(served):
    with pytest.raises(openai.BadRequestError, match="stores no responses"):
        respond(served, "hello", previous_response_id="resp_1")
    with pytest.raises(openai.NotFoundError, match="no model"):
        served.client.responses.create(model="other", input="hello")
    with pytest.raises(openai.BadRequestError):
        respond(served, "fail")
    assert 400 == raw(served, "POST", PATH, "{")[0]


def test_an_error_in_a_stream_is_a_failed_response(served):
    events = sse_events(served, PATH, {"input": "slowly 100000"}, after_first=served.cancel_answers)

    name, told = events[-1]
    assert ("response.failed", "failed") == (name, told["response"]["status"])
    assert "cancelled" in told["response"]["error"]["message"]


def test_a_disconnected_client_cancels_its_answer(served, host):
    with asking(served, PATH, input="slowly 1000000", stream=True):
        until(lambda: host.call("stats")["live_turns"] == 1)

    assert becomes(lambda: host.call("stats")["live_turns"] == 0)


def test_embeddings_are_refused_with_the_reason(served):
    with pytest.raises(openai.InternalServerError, match="no embeddings") as refused:
        served.client.embeddings.create(model=MODEL, input="hello")

    assert 501 == refused.value.status_code


@pytest.mark.parametrize("path", [PATH, "/v1/completions", "/v1/embeddings"])
def test_the_token_and_the_rules_for_websites_apply(runtime, served, path):
    assert 403 == raw(served, "POST", path, "{}", Origin="http://evil.example")[0]
    assert 403 == raw(served, "POST", path, "{}", Host="evil.example")[0]
    with Served(config_of(SessionRequest(), AccessPolicy("right"))) as guarded:
        assert 401 == raw(guarded, "POST", path, json.dumps({"input": "hello", "prompt": "hello"}))[0]
