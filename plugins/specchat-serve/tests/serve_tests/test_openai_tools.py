"""Tool calls of chat completions, by OpenAI's client and a fake engine."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from serve_tests.conftest import MODEL, Served
from serve_tests.test_server import settled_session_count

READ = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
WRITE = {"type": "function", "function": {"name": "write"}}
ASKED = {"role": "user", "content": 'call read {"path": "a.py"}'}
BOTH = {"role": "user", "content": 'call read {"path": "a.py"} & write {"path": "b.py"}'}


def ask(served: Served, *messages: dict[str, Any], **more: Any) -> Any:
    given = {"tools": [READ, WRITE], **more}
    return served.client.chat.completions.create(model=MODEL, messages=list(messages), **given)


def results(message: Any, *texts: str) -> list[dict[str, Any]]:
    """The message, and the results of its calls."""
    calls = zip(message.tool_calls, texts, strict=True)
    answers = [{"role": "tool", "tool_call_id": call.id, "content": text} for call, text in calls]
    return [message.model_dump(exclude_none=True), *answers]


def test_an_answer_has_its_tool_calls(served):
    choice = ask(served, BOTH).choices[0]

    assert ("tool_calls", "so ") == (choice.finish_reason, choice.message.content)
    assert [("read", '{"path": "a.py"}'), ("write", '{"path": "b.py"}')] == [
        (call.function.name, call.function.arguments) for call in choice.message.tool_calls
    ]
    assert 2 == len({call.id for call in choice.message.tool_calls})


def test_an_answer_of_calls_alone_has_no_content(served):
    choice = ask(served, {"role": "user", "content": "look"}, tool_choice="required").choices[0]

    assert (None, "read", "tool_calls") == (
        choice.message.content, choice.message.tool_calls[0].function.name, choice.finish_reason
    )  # fmt: skip


def test_a_tool_is_called_by_its_name(served):
    named = {"type": "function", "function": {"name": "write"}}

    message = ask(served, {"role": "user", "content": "look"}, tool_choice=named).choices[0].message

    assert ["write"] == [call.function.name for call in message.tool_calls]


def test_a_stream_has_the_calls_in_pieces_with_the_name_first(served):
    chunks = [chunk.choices[0] for chunk in ask(served, BOTH, stream=True)]
    pieces = [piece for chunk in chunks for piece in chunk.delta.tool_calls or ()]

    first = [piece for piece in pieces if piece.id]
    assert [(0, "read", "", "function"), (1, "write", "", "function")] == [
        (piece.index, piece.function.name, piece.function.arguments, piece.type) for piece in first
    ]
    assert len(pieces) > len(first) and all(piece.function.name is None for piece in pieces if not piece.id)
    assert '{"path": "a.py"}' == "".join(piece.function.arguments for piece in pieces if piece.index == 0)
    assert ["tool_calls"] == [chunk.finish_reason for chunk in chunks if chunk.finish_reason]


def test_the_stream_of_the_client_has_the_calls_of_a_whole_answer(served):
    whole = ask(served, BOTH, seed=1).choices[0].message
    with served.client.chat.completions.stream(model=MODEL, messages=[BOTH], tools=[READ, WRITE], seed=1) as stream:
        final = stream.get_final_completion().choices[0].message

    assert [call.function.arguments for call in whole.tool_calls] == [
        call.function.arguments for call in final.tool_calls
    ]


def test_one_call_is_sent_where_the_client_wants_no_parallel_ones(served):
    whole = ask(served, BOTH, parallel_tool_calls=False).choices[0]
    chunks = ask(served, BOTH, parallel_tool_calls=False, stream=True)

    assert (["read"], "tool_calls") == ([call.function.name for call in whole.message.tool_calls], whole.finish_reason)
    assert {0} == {piece.index for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or ()}


def test_a_result_continues_the_session_of_its_call(served, host):
    message = ask(served, BOTH).choices[0].message
    before = settled_session_count(host)

    answer = ask(served, BOTH, *results(message, "five", "done")).choices[0].message.content
    first, second = message.tool_calls

    assert f"[{first.id} read: five][{second.id} write: done]" == answer
    assert before == settled_session_count(host)


def test_the_model_reads_a_call_as_the_client_sends_it_in_the_same_session(served, host):
    asked = {"role": "user", "content": 'call read {"path":"a.py", "lines": [1, 2.0]}'}
    message = ask(served, asked).choices[0].message
    before = settled_session_count(host)
    message.tool_calls[0].id = "theirs"
    message.tool_calls[0].function.arguments = json.dumps({"lines": [1, 2], "path": "a.py"}, indent=1)

    answer = ask(served, asked, *results(message, "five")).choices[0].message.content

    assert "[theirs read: five]" == answer
    assert before == settled_session_count(host)


def test_calls_and_results_that_the_engine_does_not_know_are_sent_to_it(served):
    function = {"name": "read", "arguments": '{"a": 1}'}
    calling = {
        "role": "assistant",
        "content": "so",
        "tool_calls": [{"id": "x", "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": "x", "content": "five"}
    said = [{"role": "user", "content": "look"}, calling, result, {"role": "assistant", "content": "done"}]

    told = ask(served, *said, {"role": "user", "content": "recall"}).choices[0].message.content

    assert 'look=so+read{"a": 1};[x read: five]=done;' == told


def test_a_changed_answer_after_a_result_has_the_ids_of_the_client(served):
    asked = {"role": "user", "content": "call read {} & write {}"}
    message = ask(served, asked).choices[0].message
    message.tool_calls[0].id, message.tool_calls[1].id = "x", "y"

    said = [asked, *results(message, "one", "two"), {"role": "assistant", "content": "made up"}]
    told = ask(served, *said, {"role": "user", "content": "recall"}).choices[0].message.content

    assert told.endswith("[x read: one][y write: two]=made up;")


def test_a_question_may_follow_the_result(served):
    message = ask(served, ASKED).choices[0].message

    told = ask(served, ASKED, *results(message, "five"), {"role": "user", "content": "write quickly"})

    assert "quickly" == told.choices[0].message.content


def test_broken_arguments_are_sent_as_the_model_wrote_them(served):
    asked = {"role": "user", "content": 'call read {"path": '}
    message = ask(served, asked).choices[0].message

    assert '{"path": ' == message.tool_calls[0].function.arguments
    assert "[" == ask(served, asked, *results(message, "no JSON")).choices[0].message.content[0]


def test_a_wrong_history_is_an_error_of_the_client(served):
    with pytest.raises(openai.BadRequestError, match="there is no result of 'call_") as refused:
        ask(served, ASKED, ask(served, ASKED).choices[0].message.model_dump(exclude_none=True), ASKED)

    assert "messages" == refused.value.param


def test_probabilities_come_from_the_engine(served):
    told = served.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "guess 2"}], logprobs=True, top_logprobs=2
    )

    content = told.choices[0].logprobs.content
    assert ["word0 ", "so ", "word1 ", "so "] == [each.token for each in content]
    assert ["yes ", "so "] == [each.token for each in content[0].top_logprobs]
