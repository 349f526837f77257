"""Anthropic's `/v1/messages`: requests, messages and their events, and the counting of tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_tests.conftest import MODEL, Served, asking, becomes, config_of, raw, sse_events, until
from specchat.chat.events import CommittedToken, Event, Finished, PrefillProgress, StepDone, TextDelta, Totals
from specchat.chat.request import AnswerFormat, Request
from specchat.chat.transcript import Turn
from specchat.host.client import SessionRequest
from specchat_serve.answer import Answer
from specchat_serve.anthropic_messages import MessageReply, translate_count, translate_message
from specchat_serve.api_errors import RequestError
from specchat_serve.authorization import AccessPolicy
from specchat_serve.engine_request import EngineRequest
from tests.each_row import each_row

PATH = "/v1/messages"
HELLO = {"role": "user", "content": "hello"}
VERSION = {"anthropic-version": "2023-06-01"}


def post(served: Served, text: str, **body: Any) -> tuple[int, dict[str, Any]]:
    return raw(served, "POST", PATH, json.dumps(message(text, **body)))


def message(text: str, **body: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": text}], **body}


def read(**body: Any) -> EngineRequest:
    return translate_message({"max_tokens": 9, "messages": [HELLO], **body}, ("ours",)).request


def reply_after(*events: Event, stop: tuple[str, ...] = ()) -> MessageReply:
    reply = MessageReply("ours", Answer(stop=stop))
    for event in events:
        reply.answer.on_event(event)
    return reply


def step(*pieces: bytes) -> StepDone:
    return StepDone((), (), tuple(CommittedToken(1, each, "target") for each in pieces), 0.0, 0.0)


def test_a_question_is_answered(served):
    status, told = post(served, "write hello")

    assert (200, "message", "assistant", MODEL) == (status, told["type"], told["role"], told["model"])
    assert [{"type": "text", "text": "hello"}] == told["content"]
    assert ("end_turn", None) == (told["stop_reason"], told["stop_sequence"])
    assert (3, 2) == (told["usage"]["input_tokens"], told["usage"]["output_tokens"])


def test_a_stream_has_the_events_of_the_api(served):
    events = sse_events(served, PATH, message("slowly 12"))
    names = [name for name, _ in events]
    deltas = [told["delta"]["text"] for name, told in events if name == "content_block_delta"]

    assert all(name == told["type"] for name, told in events)
    assert ["message_start", "content_block_start"] == names[:2]
    assert ["content_block_stop", "message_delta", "message_stop"] == names[-3:]
    assert {"content_block_delta"} == set(names[2:-3])
    assert "word0 word1 " in "".join(deltas) and len(deltas) > 3
    begun = events[0][1]["message"]
    assert ([], None, 3) == (begun["content"], begun["stop_reason"], begun["usage"]["input_tokens"])
    assert "end_turn" == events[-2][1]["delta"]["stop_reason"]
    assert events[-2][1]["usage"]["output_tokens"] == 24


def test_thinking_is_a_block_before_the_text(served):
    _, whole = post(served, "think 3")
    events = sse_events(served, PATH, message("think 3"))
    starts = [(told["index"], told["content_block"]["type"]) for name, told in events if name == "content_block_start"]
    deltas = [told["delta"] for name, told in events if name == "content_block_delta"]

    assert [("thinking", "thought0 thought1 thought2 "), ("text", "so it is")] == [
        (block["type"], block[block["type"]]) for block in whole["content"]
    ]
    assert [(0, "thinking"), (1, "text")] == starts
    assert [0, 1] == [told["index"] for name, told in events if name == "content_block_stop"]
    assert "so it is" == "".join(delta.get("text", "") for delta in deltas)
    assert "thought0 thought1 thought2 " == "".join(delta.get("thinking", "") for delta in deltas)


@each_row("kind, mode", [("enabled", "on"), ("disabled", "off"), ("adaptive", None)])
def test_a_client_may_turn_thinking_on_and_off(kind, mode):
    assert mode == read(thinking={"type": kind, "budget_tokens": 1024}).request.thinking


def test_a_stop_text_that_ended_the_answer_is_named():
    ended = reply_after(
        TextDelta("one "), step(b"one", b" T", b"WO and ONE"), Finished("stop", Totals()), stop=("ONE", "TWO")
    ).whole()

    assert ("stop_sequence", "TWO") == (ended["stop_reason"], ended["stop_sequence"])


def test_other_ends_name_no_stop_text():
    finished = reply_after(step(b"one"), Finished("stop", Totals()), stop=("TWO",)).whole()
    cut = reply_after(step(b"one"), Finished("length", Totals())).whole()
    repeated = reply_after(Finished("repetition", Totals())).whole()

    for ended in (finished, repeated):
        assert ("end_turn", None) == (ended["stop_reason"], ended["stop_sequence"])
    assert "max_tokens" == cut["stop_reason"]


def test_cached_tokens_are_counted_apart():
    reply = reply_after(PrefillProgress(3, 30, 20), Finished("stop", Totals(prompt_tokens=30, cached_tokens=20)))

    counted = reply.whole()["usage"]

    assert (10, 20, 0) == tuple(
        counted[name] for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    assert b'"input_tokens": 10' in reply.begin()


def test_tokens_are_counted_without_an_answer(served, host):
    status, told = raw(served, "POST", f"{PATH}/count_tokens", json.dumps({"model": MODEL, "messages": [HELLO]}))

    assert (200, {"input_tokens": 3}) == (status, told)
    until(lambda: host.call("stats")["live_turns"] == 0)
    assert 1 == translate_count({"messages": [HELLO]}, ("ours",)).request.max_tokens


def test_fields_become_a_request():
    asked = read(
        system="be brief", max_tokens=5, temperature=0.5, top_p=0.9, top_k=4, stop_sequences=["END"],
        messages=[{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}, HELLO],
    )  # fmt: skip

    assert Request("hello", max_tokens=5, temperature=0.5, stop=("END",)) == asked.request
    assert (Turn("one", answer="1"),) == asked.turns
    assert {"prompt.system": "be brief", "sampling.top_p": 0.9, "sampling.top_k": 4} == asked.changes


def test_blocks_of_text_are_its_lines_and_a_thought_is_no_part_of_them():
    blocks = [{"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "two"}]
    answer = [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "1"}]

    asked = read(
        system=blocks, messages=[{"role": "user", "content": blocks}, {"role": "assistant", "content": answer}]
    )

    assert ("one\ntwo", "one\ntwo", "1") == (
        asked.changes["prompt.system"], asked.request.text, asked.request.answer_prefix
    )  # fmt: skip


def test_values_without_effect_and_unknown_fields_are_ignored():
    assert read() == read(
        tools=[],
        tool_choice={"type": "auto"},
        thinking={"type": "adaptive", "display": "omitted"},
        metadata={"user_id": "x"},
        unknown=1,
    )


def test_a_schema_is_the_form_of_the_answer():
    form = {"type": "json_schema", "schema": {"type": "object"}}

    asked = read(output_config={"effort": "low", "format": form})

    assert AnswerFormat.parse("schema", {"type": "object"}) == asked.request.answer_format
    assert read() == read(output_config={"effort": "low"})


@each_row(
    "body, param",
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"model": "other"}, "model"),
        ({"tools": [{"name": "my tool"}]}, "tools"),
        ({"tools": ["read"]}, "tools"),
        ({"tools": [{"type": "web_search_20250305", "name": "x"}], "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thread": {"id": "x"}}, "thread"),
        ({"tools": [{"name": "x"}], "tool_choice": {"type": "some"}}, "tool_choice"),
        ({"tools": [{"name": "x"}], "tool_choice": {"type": "tool", "name": "y"}}, "tool_choice"),
        ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "always"}}, "thinking"),
        ({"thinking": {"type": [1]}}, "thinking"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config"),
        ({"system": 5}, "system"),
        ({"stop_sequences": 5}, "stop_sequences"),
        ({"stream": 1}, "stream"),
        ({"messages": [5]}, "messages"),
        ({"messages": [{"role": [], "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": []}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]}, "messages"),
    ],
)
def test_a_wrong_or_unsupported_field_is_an_error_with_its_name(body, param):
    with pytest.raises(RequestError) as refused:
        read(**body)

    assert param == refused.value.api_error.param


@each_row(
    "path, body, status, kind",
    [
        (PATH, "{", 400, "invalid_request_error"),
        (PATH, json.dumps(message("hello", model="other")), 404, "not_found_error"),
        (PATH, json.dumps(message("fail")), 400, "invalid_request_error"),
        (PATH, json.dumps(message("crash", stream=True)), 500, "api_error"),
        (f"{PATH}/count_tokens", "[]", 400, "invalid_request_error"),
        (f"{PATH}/batches", "{}", 404, "not_found_error"),
    ],
)
def test_errors_are_those_of_anthropic(served, path, body, status, kind):
    told = raw(served, "POST", path, body)

    assert (status, "error", kind) == (told[0], told[1]["type"], told[1]["error"]["type"])
    assert told[1]["error"]["message"]


def test_a_thread_is_refused_with_the_code_by_which_the_package_sends_everything(served):
    status, told = raw(served, "POST", PATH, json.dumps(message("hello", thread={"id": "x"})))

    assert (400, "invalid_request_error") == (status, told["error"]["type"])
    assert {"error_code": "thread_unsupported_request", "unsupported": ["thread"]} == told["error"]["details"]


def test_an_error_in_a_stream_is_an_event(served):
    events = sse_events(served, PATH, message("slowly 100000"), after_first=served.cancel_answers)

    name, told = events[-1]
    assert ("error", "error", "overloaded_error") == (name, told["type"], told["error"]["type"])


def test_a_disconnected_client_cancels_its_answer(served, host):
    with asking(served, PATH, **message("slowly 1000000", stream=True)):
        until(lambda: host.call("stats")["live_turns"] == 1)

    assert becomes(lambda: host.call("stats")["live_turns"] == 0)


def test_the_models_have_the_form_of_the_api_that_the_client_speaks(served):
    _, models = raw(served, "GET", "/v1/models", **VERSION)
    _, model = raw(served, "GET", f"/v1/models/{MODEL}", **VERSION)

    assert [model] == models["data"] and ("model", MODEL, MODEL) == (model["type"], model["id"], models["first_id"])
    assert "not_found_error" == raw(served, "GET", "/v1/models/other", **VERSION)[1]["error"]["type"]


def test_the_key_of_the_api_is_the_token(runtime, served):
    body = json.dumps(message("write hello"))
    assert "permission_error" == raw(served, "POST", PATH, body, Origin="http://evil.example")[1]["error"]["type"]
    with Served(config_of(SessionRequest(), AccessPolicy("right"))) as guarded:
        status, told = raw(guarded, "POST", PATH, body, **{"x-api-key": "wrong"})
        assert (401, "authentication_error") == (status, told["error"]["type"])
        assert 200 == raw(guarded, "POST", PATH, body, **{"x-api-key": "right"})[0]
        assert 200 == raw(guarded, "POST", PATH, body, Authorization="Bearer right")[0]
