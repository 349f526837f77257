"""Function calls in `/v1/responses`, by OpenAI's client and a fake engine."""

from __future__ import annotations

from typing import Any

import pytest

from serve_tests.conftest import MODEL, Served
from specchat.chat.tools import Tool, ToolCall, ToolResult
from specchat.chat.transcript import Turn
from specchat_serve.api_errors import RequestError
from specchat_serve.openai_responses import translate_response
from tests.each_row import each_row

READ = {"type": "function", "name": "read", "description": "Read.", "parameters": {"type": "object"}, "strict": False}
WRITE = {"type": "function", "name": "write", "parameters": None, "strict": False}
BOTH = {"role": "user", "content": 'call read {"path": "a.py"} & write {}'}
LOOK = {"role": "user", "content": "look"}
CALL = {"type": "function_call", "call_id": "1", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "1", "output": "five"}


def respond(served: Served, *items: Any, **more: Any) -> Any:
    return served.client.responses.create(model=MODEL, input=list(items), tools=[READ, WRITE], **more)


def read(*items: dict[str, Any], **more: Any) -> Any:
    return translate_response({"input": list(items), "tools": [READ, WRITE], **more}, ("ours",)).request


def test_calls_are_items_of_the_output(served):
    told = respond(served, BOTH)

    assert ["message", "function_call", "function_call"] == [item.type for item in told.output]
    assert [("read", '{"path": "a.py"}'), ("write", "{}")] == [(item.name, item.arguments) for item in told.output[1:]]
    assert ("completed", "auto", True) == (told.status, told.tool_choice, told.parallel_tool_calls)
    assert ["read", "write"] == [tool.name for tool in told.tools]
    assert 2 == len({item.call_id for item in told.output[1:]})


def test_a_stream_has_the_events_of_calls(served):
    with served.client.responses.stream(model=MODEL, input=[BOTH], tools=[READ, WRITE]) as stream:
        events = list(stream)
        final = stream.get_final_response()

    first = [event for event in events if getattr(event, "output_index", None) == 1]
    pieces = [event.delta for event in first if event.type == "response.function_call_arguments.delta"]
    assert [
        "response.output_item.added", *["response.function_call_arguments.delta"] * len(pieces),
        "response.function_call_arguments.done", "response.output_item.done",
    ] == [event.type for event in first]  # fmt: skip
    assert ("", '{"path": "a.py"}') == (first[0].item.arguments, first[-1].item.arguments)
    assert first[-2].arguments == "".join(pieces) == final.output[1].arguments
    assert {final.output[1].id} == {getattr(event, "item_id", None) or event.item.id for event in first}
    assert list(range(len(events))) == [event.sequence_number for event in events]


def test_an_answer_of_calls_alone_has_no_message(served):
    told = respond(served, LOOK, tool_choice={"type": "function", "name": "write"})
    with served.client.responses.stream(model=MODEL, input=[LOOK], tools=[READ], tool_choice="required") as stream:
        added = [event.item.type for event in stream if event.type == "response.output_item.added"]

    assert (["write"], ["function_call"]) == ([item.name for item in told.output], added)


def test_an_output_answers_its_call(served):
    told = respond(served, BOTH)
    first, second = told.output[1:]
    outputs = [
        {"type": "function_call_output", "call_id": first.call_id, "output": "five"},
        {"type": "function_call_output", "call_id": second.call_id, "output": [{"type": "input_text", "text": "done"}]},
    ]

    answer = respond(served, BOTH, *(item.model_dump(exclude_none=True) for item in told.output), *outputs)

    assert f"[{first.call_id} read: five][{second.call_id} write: done]" == answer.output_text


def test_one_call_is_sent_where_the_client_wants_no_parallel_ones(served):
    told = respond(served, BOTH, parallel_tool_calls=False)

    assert (["message", "function_call"], False) == ([item.type for item in told.output], told.parallel_tool_calls)


def test_items_become_calls_and_results():
    asked = read(LOOK, {"type": "reasoning", "id": "rs_1", "summary": []}, CALL, OUTPUT)

    assert (Turn("look", answer="", tool_calls=(ToolCall("1", "read", "{}"),)),) == asked.turns
    assert ("", (ToolResult("1", "read", "five"),)) == (asked.request.text, asked.request.tool_results)
    assert (Tool("read", "Read.", '{"type": "object"}'), Tool("write")) == asked.request.tools


@each_row(
    "items, words",
    [
        ([LOOK, OUTPUT], "belongs to no call"), ([LOOK, CALL, LOOK], "no result of '1'"),
        ([LOOK, {**CALL, "arguments": {}}, OUTPUT], "arguments, which are a text"),
        ([LOOK, CALL, {"type": "function_call_output"}], "needs the call_id"),
    ],
)  # fmt: skip
def test_calls_and_outputs_that_do_not_fit_are_an_error(items, words):
    with pytest.raises(RequestError, match=words) as refused:
        read(*items)

    assert "input" == refused.value.api_error.param


@each_row("tool", [{"type": "function"}, "read", {"type": "custom"}, {"type": "namespace", "name": "x"}, {}])
def test_other_tools_are_an_error(tool):
    with pytest.raises(RequestError) as refused:
        read(LOOK, tools=[tool])

    assert "tools" == refused.value.api_error.param
