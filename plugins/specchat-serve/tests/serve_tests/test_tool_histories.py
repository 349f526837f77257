"""Tools, calls and results in the messages of OpenAI's chat completions, and what is wrong with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specchat.chat.events import ToolCallDelta
from specchat.chat.tools import Tool, ToolCall, ToolResult
from specchat.chat.transcript import Turn
from specchat_serve.anthropic_messages import translate_message
from specchat_serve.api_errors import RequestError
from specchat_serve.engine_request import EngineRequest
from specchat_serve.openai_chat import translate_chat
from specchat_serve.openai_responses import translate_response
from specchat_serve.tool_fields import arguments_object, arguments_text, with_keys_in_order
from tests.each_row import each_row

READ = {"type": "function", "function": {"name": "read", "description": "Read.", "parameters": {"type": "object"}}}
WRITE = {"type": "function", "function": {"name": "write"}}
ASKED = {"role": "user", "content": "look"}


def call(call_id: str = "1", name: str = "read", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def result(call_id: str = "1", text: Any = "5") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def choose(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def read(*messages: dict[str, Any], **more: Any) -> EngineRequest:
    return translate_chat({"messages": list(messages) or [ASKED], **more}, ("ours",)).request


def test_tools_are_those_of_the_request():
    asked = read(tools=[READ, WRITE]).request

    assert (Tool("read", "Read.", '{"type": "object"}'), Tool("write")) == asked.tools
    assert "auto" == asked.tool_choice


@each_row(
    "choice, expected",
    [
        ("auto", "auto"), ("none", "none"), ("required", "required"), (None, "auto"),
        ({"type": "function", "function": {"name": "write"}}, "write"),
    ],
)  # fmt: skip
def test_the_choice_of_a_tool_is_that_of_the_request(choice, expected):
    assert expected == read(tools=[READ, WRITE], tool_choice=choice).request.tool_choice


def test_calls_stand_in_the_answer_and_results_before_the_next_one():
    asked = read(
        ASKED, calling(call("1"), call("2", "write", '{"a": 1}'), text="so"), result("1"), result("2", "written"),
        {"role": "assistant", "content": "done"}, {"role": "user", "content": "and now?"},
    )  # fmt: skip

    calls = (ToolCall("1", "read", "{}"), ToolCall("2", "write", '{"a": 1}'))
    results = (ToolResult("1", "read", "5"), ToolResult("2", "write", "written"))
    assert (
        Turn("look", answer="so", tool_calls=calls), Turn("", answer="done", tool_results=results)
    ) == asked.turns  # fmt: skip
    assert ("and now?", ()) == (asked.request.text, asked.request.tool_results)


def test_the_last_results_are_those_of_the_request_and_a_question_may_follow_them():
    alone = read(ASKED, calling(call()), result()).request
    followed = read(ASKED, calling(call()), result(), {"role": "user", "content": "quick"}).request

    assert ("", (ToolResult("1", "read", "5"),)) == (alone.text, alone.tool_results)
    assert ("quick", alone.tool_results) == (followed.text, followed.tool_results)


def test_results_have_the_order_of_their_calls_and_parts_of_text_are_lines():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    asked = read(ASKED, calling(call("1"), call("2", "write")), result("2", parts), result("1")).request

    assert (ToolResult("1", "read", "5"), ToolResult("2", "write", "one\ntwo")) == asked.tool_results


def test_an_answer_after_a_result_can_be_begun():
    asked = read(ASKED, calling(call()), result(), {"role": "assistant", "content": "It is "}).request

    assert ("It is ", 1) == (asked.answer_prefix, len(asked.tool_results))


def test_the_keys_of_arguments_have_the_order_of_the_schema_whatever_the_client_does_to_them():
    place = {"type": "object", "properties": {"line": {}, "column": {}}}
    schema = {"type": "object", "properties": {"path": {}, "at": {"type": "array", "items": place}, "text": {}}}
    move = {"type": "function", "function": {"name": "move", "parameters": schema}}
    written = {"path": "a", "at": [{"line": 1, "column": 2}], "text": "é", "else": 3}
    sorted_keys = json.dumps(written, indent=1, sort_keys=True)

    def call_in_prompt(arguments: str, name: str = "move") -> str:
        said = read(ASKED, calling(call(name=name, arguments=arguments)), result(), tools=[move])
        return said.turns[0].tool_calls[0].arguments

    assert json.dumps(written, ensure_ascii=False) == call_in_prompt(sorted_keys)
    as_they_are = [("move", "{broken"), ("unknown", sorted_keys)]
    assert [given for _, given in as_they_are] == [call_in_prompt(given, name) for name, given in as_they_are]


def test_arguments_that_are_nested_too_deep_to_be_put_in_order_stay_as_they_are():
    listed = ToolCall("1", "list", "[" * 700 + "]" * 700)

    assert listed == with_keys_in_order(listed, [Tool("list", "", '{"items": ' * 700 + "{}" + "}" * 700)])


def test_an_id_may_come_again_in_a_later_answer():
    asked = read(ASKED, calling(call()), result(), calling(call()), result("1", "6"))

    assert ("5", "6") == (asked.turns[1].tool_results[0].text, asked.request.tool_results[0].text)


@each_row(
    "messages, words",
    [
        ([ASKED, result()], "the result of '1' belongs to no call"),
        ([ASKED, calling(call()), result("2")], "the result of '2' belongs to no call"),
        ([ASKED, calling(call()), result(), result()], "or to one that has one"),
        ([ASKED, calling(call("1"), call("2")), result()], "no result of '2'"),
        ([ASKED, calling(call()), ASKED], "no result of '1'"),
        ([ASKED, calling(call())], "'1' at the end has no result"),
        ([ASKED, calling(call(), call()), result()], "the same id"),
        ([ASKED, {"role": "tool", "content": "5"}], "needs the tool_call_id"),
        ([ASKED, calling({"id": "1"}), result()], "a tool call has an id"),
        ([ASKED, calling(call(arguments={})), result()], "arguments, which are a text"),
        ([ASKED, {**ASKED, "tool_calls": [call()]}], "a list in a message of the assistant"),
        ([{"role": "function", "name": "read", "content": "5"}], "use tools"),
        ([ASKED, {"role": "assistant", "function_call": {"name": "read", "arguments": ""}}], "use tools"),
    ],
)
def test_a_history_with_calls_and_results_that_do_not_fit_is_an_error(messages, words):
    with pytest.raises(RequestError, match=words) as refused:
        read(*messages)

    assert "messages" == refused.value.api_error.param


@each_row(
    "fields, param, words",
    [
        ({"tools": {"a": 1}}, "tools", "give a list"),
        ({"tools": [{"type": "function"}]}, "tools", r"tools\[0\]: a tool is an object"),
        ({"tools": [READ, {"type": "custom", "custom": {}}]}, "tools", r"tools\[1\]: tool None: a name"),
        ({"tools": [{"type": "function", "function": {"name": "my tool"}}]}, "tools", "a name has 1 to 128"),
        ({"tools": [READ, READ]}, "tools", "two tools have the name 'read'"),
        ({"tool_choice": "required"}, "tool_choice", "no tools to choose from"),
        ({"tools": [READ], "tool_choice": "any"}, "tool_choice", "give auto, none, required"),
        ({"tools": [READ], "tool_choice": {"type": "function"}}, "tool_choice", "name None"),
        ({"tools": [READ], "tool_choice": choose("x")}, "tool_choice", "no tool 'x'"),
        ({"tools": [READ], "tool_choice": choose("auto")}, "tool_choice", "no tool with the name 'auto'"),
        ({"tools": [READ], "parallel_tool_calls": "no"}, "parallel_tool_calls", "true or false"),
        ({"functions": [{"name": "read"}]}, "functions", "use tools"),
        ({"function_call": {"name": "read"}}, "function_call", "use tools"),
    ],
)  # fmt: skip
def test_a_wrong_field_of_tools_is_an_error_with_its_name(fields, param, words):
    with pytest.raises(RequestError, match=words) as refused:
        read(**fields)

    assert param == refused.value.api_error.param


def test_an_answer_in_a_format_may_have_tools_that_it_must_not_call():
    assert read(tools=[READ], tool_choice="none", response_format={"type": "json_object"}).request.answer_format


@each_row("arguments", ['{"a": 1}', "{broken", '["a"]', "", '"text"', "[" * 100_000])
def test_arguments_are_an_object_and_return_as_they_were(arguments):
    made = arguments_object(arguments)

    assert isinstance(made, dict)
    assert arguments_object(arguments_text(made)) == made


def test_each_piece_of_arguments_is_a_chunk():
    reply = translate_chat({"messages": [ASKED]}, ("ours",)).reply
    sent = [reply.delta(each) for each in (ToolCallDelta(0, "1", "read"), ToolCallDelta(0, "1", arguments='{"a": '))]

    deltas = [json.loads(each.removeprefix(b"data: "))["choices"][0]["delta"] for each in sent]
    function = {"name": "read", "arguments": ""}
    assert [
        {"tool_calls": [{"index": 0, "id": "1", "type": "function", "function": function}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": '}}]},
    ] == deltas


def test_each_piece_of_arguments_is_an_event():
    arguments = ('{"a', '": 1}')
    pieces = (ToolCallDelta(0, "1", "read"), *(ToolCallDelta(0, "1", arguments=each) for each in arguments))
    message = translate_message({"messages": [ASKED], "max_tokens": 5}, ("ours",)).reply
    response = translate_response({"input": "look"}, ("ours",)).reply

    assert [0, 1, 1] == [message.delta(each).count(b"event: content_block_delta") for each in pieces]
    assert [0, 1, 1] == [response.delta(each).count(b"event: response.function_call_arg") for each in pieces]
