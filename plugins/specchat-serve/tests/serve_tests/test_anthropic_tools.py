"""Tool use in Anthropic's `/v1/messages`: blocks to a request, and calls to blocks and events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_tests.conftest import MODEL, Served, raw, sse_events
from specchat.chat.tools import Tool, ToolCall, ToolResult
from specchat.chat.transcript import Turn
from specchat_serve.anthropic_messages import translate_count, translate_message
from specchat_serve.api_errors import RequestError
from tests.each_row import each_row

PATH = "/v1/messages"
READ = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
WRITE = {"type": "custom", "name": "write"}
BOTH = {"role": "user", "content": 'call read {"path": "a.py"} & write {}'}
USE = {"type": "tool_use", "id": "1", "name": "read", "input": {"path": "a.py"}}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "five"}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 100, "messages": list(messages), "tools": [READ, WRITE], **more}


def post(served: Served, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    status, told = raw(served, "POST", PATH, json.dumps(body(*messages, **more)))
    assert 200 == status, told
    return told


def read(*messages: dict[str, Any], **more: Any) -> Any:
    return translate_message(body(*messages, **more) | {"model": "ours"}, ("ours",)).request


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_an_answer_has_its_calls_as_blocks(served):
    told = post(served, BOTH)

    assert ["text", "tool_use", "tool_use"] == [block["type"] for block in told["content"]]
    assert [("read", {"path": "a.py"}), ("write", {})] == [
        (each["name"], each["input"]) for each in told["content"][1:]
    ]
    assert ("tool_use", None) == (told["stop_reason"], told["stop_sequence"])


def test_a_stream_opens_a_block_for_each_call_and_sends_its_json_in_pieces(served):
    events = sse_events(served, PATH, body(BOTH))
    starts = [told["content_block"] for name, told in events if name == "content_block_start"]
    pieces = [told for name, told in events if name == "content_block_delta" and told["index"] == 1]

    assert ["text", "tool_use", "tool_use"] == [block["type"] for block in starts]
    assert ("read", {}) == (starts[1]["name"], starts[1]["input"]) and starts[1]["id"] != starts[2]["id"]
    assert {"input_json_delta"} == {told["delta"]["type"] for told in pieces}
    assert '{"path": "a.py"}' == "".join(told["delta"]["partial_json"] for told in pieces)
    assert [0, 1, 2] == [told["index"] for name, told in events if name == "content_block_stop"]
    assert "tool_use" == events[-2][1]["delta"]["stop_reason"]


def test_a_result_answers_its_call(served):
    told = post(served, BOTH)
    first, second = told["content"][1:]
    results = [
        {"type": "tool_result", "tool_use_id": second["id"], "content": "no such file", "is_error": True},
        {"type": "tool_result", "tool_use_id": first["id"], "content": [text("one"), text("two")]},
    ]

    answer = post(served, BOTH, {"role": "assistant", "content": told["content"]}, said("user", *results))

    assert f"[{first['id']} read: one\ntwo][{second['id']} write!: no such file]" == answer["content"][0]["text"]


def test_a_tool_can_be_forced_and_parallel_calls_switched_off(served):
    forced = post(served, {"role": "user", "content": "look"}, tool_choice={"type": "tool", "name": "write"})
    alone = post(served, BOTH, tool_choice={"type": "auto", "disable_parallel_tool_use": True})

    assert ["write"] == [block["name"] for block in forced["content"]]
    assert ["text", "tool_use"] == [block["type"] for block in alone["content"]]


def test_arguments_that_are_no_json_stand_in_an_object_and_return_as_they_were(served):
    asked = {"role": "user", "content": 'call read {"path": '}
    told = post(served, asked)

    assert {"INVALID_JSON": '{"path": '} == told["content"][1]["input"]
    history = read(
        asked, said("assistant", *told["content"]), said("user", RESULT | {"tool_use_id": told["content"][1]["id"]})
    )
    assert '{"path": ' == history.turns[0].tool_calls[0].arguments


def test_blocks_become_calls_and_results():
    asked = read(
        {"role": "user", "content": "look"}, said("assistant", {"type": "thinking", "thinking": "hm"}, text("so"), USE),
        said("user", RESULT, text("quick")),
    )  # fmt: skip

    call = ToolCall("1", "read", '{"path": "a.py"}')
    assert (Turn("look", answer="so", thinking="hm", tool_calls=(call,)),) == asked.turns
    assert ("quick", (ToolResult("1", "read", "five"),)) == (asked.request.text, asked.request.tool_results)
    assert (Tool("read", "Read.", '{"type": "object"}'), Tool("write")) == asked.request.tools


@each_row(
    "choice, expected",
    [("auto", "auto"), ("any", "required"), ("none", "none"), ("tool", "read")],
)
def test_the_choice_of_a_tool_is_that_of_the_request(choice, expected):
    asked = read({"role": "user", "content": "look"}, tool_choice={"type": choice, "name": "read"})

    assert expected == asked.request.tool_choice


def test_tools_count_as_tokens_of_the_prompt():
    counted = translate_count(body({"role": "user", "content": "look"}) | {"model": "ours"}, ("ours",))

    assert ["read", "write"] == [tool.name for tool in counted.request.tools]


@each_row(
    "messages, words",
    [
        ([said("user", RESULT)], "belongs to no call"),
        ([said("user", text("x")), said("assistant", USE), said("user", text("y"))], "no result of '1'"),
        ([said("user", USE)], "tool_use is a block of the assistant"),
        ([said("user", text("x")), said("assistant", RESULT)], "tool_result one of the user"),
        ([said("user", text("x")), said("assistant", USE | {"input": "{}"})], "an input, which is an object"),
        ([said("user", {"type": "tool_result"})], "needs the tool_use_id"),
        ([said("user", RESULT | {"content": [{"type": "image", "source": {}}]})], "type 'image' are not supported"),
    ],
)
def test_calls_and_results_that_do_not_fit_are_an_error(messages, words):
    with pytest.raises(RequestError, match=words) as refused:
        read(*messages)

    assert "messages" == refused.value.api_error.param
