"""Tools in the API of Ollama: calls are whole, and older clients send them back without ids."""

from __future__ import annotations

from typing import Any

import pytest

from serve_tests.conftest import Served
from serve_tests.test_ollama_api import lines, post
from specchat.chat.tools import Tool, ToolResult
from specchat_serve.api_errors import RequestError
from specchat_serve.ollama_api import translate_ollama_chat
from tests.each_row import each_row

READ = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
WRITE = {"type": "function", "function": {"name": "write"}}
TOOLS = [READ, WRITE]
BOTH = {"role": "user", "content": 'call read {"path": "a.py"} & write {}'}
LOOK = {"role": "user", "content": "look"}


def chat(served: Served, *messages: dict[str, Any]) -> dict[str, Any]:
    status, told = post(served, "/api/chat", messages=list(messages), tools=TOOLS)
    assert 200 == status, told
    return told


def read(*messages: dict[str, Any]) -> Any:
    body = {"model": "ours", "messages": list(messages), "tools": TOOLS}
    return translate_ollama_chat(body, ("ours",)).request


def calling(*names: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": {}}} for name in names]}


def result(text: str, **fields: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, **fields}


def test_an_answer_has_its_calls_with_arguments_as_objects(served):
    told = chat(served, BOTH)

    assert [("read", {"path": "a.py"}), ("write", {})] == [
        (call["function"]["name"], call["function"]["arguments"]) for call in told["message"]["tool_calls"]
    ]
    assert ("so ", "stop") == (told["message"]["content"], told["done_reason"])


def test_a_stream_has_all_calls_in_the_line_before_the_last(served):
    *parts, calls, last = lines(served, "/api/chat", messages=[BOTH], tools=TOOLS)

    assert (False, True) == (calls["done"], last["done"])
    assert ["read", "write"] == [call["function"]["name"] for call in calls["message"]["tool_calls"]]
    assert all("tool_calls" not in part["message"] for part in [*parts, last])


def test_a_result_without_an_id_answers_the_call_of_its_name(served):
    told = chat(served, BOTH)["message"]
    for call in told["tool_calls"]:
        del call["id"]
    first, second = (f"messages[1].tool_calls[{number}]" for number in range(2))

    answer = chat(served, BOTH, told, result("done", tool_name="write"), result("five", tool_name="read"))

    assert f"[{first} read: five][{second} write: done]" == answer["message"]["content"]


def test_a_result_with_an_id_answers_its_call(served):
    told = chat(served, BOTH)["message"]
    first, second = (call["id"] for call in told["tool_calls"])

    answer = chat(served, BOTH, told, result("done", tool_call_id=second), result("five", tool_call_id=first))

    assert f"[{first} read: five][{second} write: done]" == answer["message"]["content"]


def test_results_of_two_calls_of_one_tool_have_the_order_of_the_calls():
    asked = read(LOOK, calling("read", "read"), result("one", tool_name="read"), result("two"))

    assert ["one", "two"] == [each.text for each in asked.request.tool_results]
    assert 2 == len({each.call_id for each in asked.request.tool_results})


def test_tools_are_those_of_the_request():
    assert (Tool("read", "", '{"type": "object"}'), Tool("write")) == read(LOOK).request.tools


def test_the_older_name_of_a_tool_is_known():
    (given,) = read(LOOK, calling("read"), result("one", name="read")).request.tool_results

    assert ToolResult(given.call_id, "read", "one") == given


@each_row(
    "messages, words",
    [
        ([LOOK, result("one", tool_name="read")], "the result of 'read' belongs to no call"),
        ([LOOK, calling("read"), result("one", tool_name="write")], "the result of 'write' belongs to no call"),
        ([LOOK, calling("read"), LOOK], "there is no result of"),
        ([LOOK, {"role": "assistant", "tool_calls": [{"function": {"name": "read", "arguments": "{}"}}]}], "object"),
        ([LOOK, {"role": "assistant", "tool_calls": [{}]}], "a function with a name"),
        ([{**LOOK, "tool_calls": [{}]}], "a list in a message of the assistant"),
        ([LOOK, calling("read"), {"role": "tool", "content": "one", "tool_name": 5}], "tool_name must be a text"),
    ],
)
def test_calls_and_results_that_do_not_fit_are_an_error(messages, words):
    with pytest.raises(RequestError, match=words):
        read(*messages)
