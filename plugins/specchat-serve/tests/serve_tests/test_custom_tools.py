"""Custom tools, whose input is one text, and namespaces, by OpenAI's client and a fake engine."""

from __future__ import annotations

from typing import Any

from serve_tests.conftest import MODEL, Served
from specchat.chat.tools import ToolCall
from specchat_serve.openai_chat import translate_chat
from specchat_serve.openai_responses import translate_response
from tests.each_row import each_row

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /x+/"}
PATCH = {"type": "custom", "name": "patch", "description": "Apply a patch."}
READ = {"type": "function", "name": "read", "description": "Read.", "parameters": {"type": "object"}}
NOTES = {"type": "namespace", "name": "notes", "description": "Notes.", "tools": [READ, PATCH]}
ASKED = {"role": "user", "content": 'call patch {"input": "a\\nb"}'}
GROUPED = {"role": "user", "content": 'call notes.read {"path": "a"} & notes.patch {"input": "x"}'}


def respond(served: Served, *items: Any, **more: Any) -> Any:
    return served.client.responses.create(model=MODEL, input=list(items), **more)


def events_of(served: Served, *items: Any, **more: Any) -> list[Any]:
    return list(served.client.responses.create(model=MODEL, input=list(items), stream=True, **more))


def test_a_call_of_a_custom_tool_has_its_input(served):
    (_, called) = respond(served, ASKED, tools=[PATCH]).output
    events = events_of(served, ASKED, tools=[PATCH])

    assert ("custom_tool_call", "patch", "a\nb") == (called.type, called.name, called.input)
    told = [event for event in events if event.type.startswith("response.custom_tool_call_input")]
    assert [("delta", "a\nb"), ("done", "a\nb")] == [
        (event.type.rpartition(".")[2], getattr(event, "delta", None) or event.input) for event in told
    ]
    assert events[-1].response.output[1].id == told[0].item_id
    assert list(range(len(events))) == [event.sequence_number for event in events]


def test_a_call_of_a_tool_in_a_namespace_names_both(served):
    (_, read, patch) = respond(served, GROUPED, tools=[NOTES]).output

    assert ("function_call", "read", "notes", '{"path": "a"}') == (read.type, read.name, read.namespace, read.arguments)
    assert ("custom_tool_call", "patch", "notes", "x") == (patch.type, patch.name, patch.namespace, patch.input)


def test_earlier_calls_of_both_kinds_are_read():
    past = [
        {"role": "user", "content": "go"},
        {"type": "custom_tool_call", "call_id": "1", "name": "patch", "namespace": "notes", "input": "x"},
        {"type": "function_call", "call_id": "2", "name": "read", "namespace": "notes", "arguments": "{}"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "done"},
        {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "seen"}]},
    ]

    asked = translate_response({"input": past, "tools": [NOTES]}, ("ours",)).request

    calls = ToolCall("1", "notes.patch", '{"input": "x"}'), ToolCall("2", "notes.read", "{}")
    assert calls == asked.turns[0].tool_calls
    assert [("notes.patch", "done"), ("notes.read", "seen")] == [
        (result.name, result.text) for result in asked.request.tool_results
    ]


def test_a_custom_tool_can_be_chosen_and_tells_its_grammar():
    body = {
        "input": "go",
        "tools": [{**PATCH, "format": GRAMMAR}, READ],
        "tool_choice": {"type": "custom", "name": "patch"},
    }

    request = translate_response(body, ("ours",)).request.request

    assert "patch" == request.tool_choice and request.tools[0].description.endswith("grammar:\n\nstart: /x+/")


def test_chat_completions_have_custom_tools_too(served):
    tool = {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": GRAMMAR}}}
    create = served.client.chat.completions.create

    (called,) = create(model=MODEL, messages=[ASKED], tools=[tool]).choices[0].message.tool_calls
    chunks = [chunk.choices[0].delta for chunk in create(model=MODEL, messages=[ASKED], tools=[tool], stream=True)]

    assert ("custom", "patch", "a\nb") == (called.type, called.custom.name, called.custom.input)
    (streamed,) = [each for delta in chunks for each in delta.tool_calls or ()]
    assert {"name": "patch", "input": "a\nb"} == streamed.model_extra["custom"]
    past = [ASKED, {"role": "assistant", "content": None, "tool_calls": [called.model_dump()]}]
    result = {"role": "tool", "tool_call_id": called.id, "content": "done"}
    turn = translate_chat({"messages": [*past, result], "tools": [tool]}, ("ours",)).request.turns[0]
    assert '{"input": "a\\nb"}' == turn.tool_calls[0].arguments


@each_row("arguments, text", [('{"input": 5}', '{"input": 5}'), ('{"inp', '{"inp'), ('{"input": "x"}', "x")])
def test_broken_arguments_of_a_custom_tool_are_its_input(served, arguments, text):
    question = {"role": "user", "content": f"call patch {arguments}"}

    assert text == respond(served, question, tools=[PATCH]).output[1].input
