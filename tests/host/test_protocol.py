"""The wire format alone: bytes in, messages out."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.chat.events import (
    CommittedToken,
    Failed,
    Finished,
    LoadingProgress,
    Notice,
    PrefillProgress,
    Routed,
    StepDone,
    TextDelta,
    ToolCallDelta,
    Totals,
    Waiting,
)
from specchat.chat.request import AnswerFormat, Attachment, Request
from specchat.chat.tools import Tool, ToolResult
from specchat.errors import ModelError, UsageError
from specchat.host.protocol import (
    EVENT_METHODS,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    LineReader,
    RpcError,
    RpcNotification,
    RpcRequest,
    RpcResponse,
    decode_host_messages,
    decode_requests,
    encode,
    event_to_json,
    events_from_json,
    request_from_json,
    request_to_json,
)
from tests.each_row import each_row

EVENTS = [
    Waiting("another answer"),
    LoadingProgress("target", 3, 10),
    Notice("draft embedded is left out"),
    LoadingProgress("target", 3, 10, "converting tiny.gguf"),
    PrefillProgress(128, 256, cached_tokens=7),
    Routed("lookup", 8, "the files repeat", seed=2**40),
    TextDelta("é\u2028\n\x00"),
    ToolCallDelta(1, "call_1", "read", '{"path": "é"}'),
    StepDone(
        (1, 2),
        (0, 1),
        (CommittedToken(5, b"\xff\xc3", "lookup"),),
        0.25,
        0.5,
        (b"\xff", b"a"),
        ("lookup", "draft"),
        plain_seconds=0.5,
        plain_error=0.25,
    ),
    Finished("stop", Totals(completion_tokens=3, accepted_by_drafter={"lookup": 2}, plain_decode_error=0.1)),
    Failed("no room", 7),
]


def calls(*lines: bytes, limit: int = 1000) -> list[RpcRequest | RpcError]:
    reader = LineReader(limit)
    return [call for line in lines for call in decode_requests(reader.feed(line))]


@each_row("event", EVENTS)
def test_every_event_survives_the_wire(event):
    line = encode(RpcNotification(EVENT_METHODS[type(event)], event_to_json(event)))

    [notice] = decode_host_messages(LineReader().feed(line))

    assert isinstance(notice, RpcNotification)
    assert [event] == events_from_json(notice.method, notice.params)


def test_unknown_fields_of_an_event_are_ignored():
    assert [TextDelta("a")] == events_from_json("text_delta", {"text": "a", "colour": "red"})


def test_an_unknown_notification_is_no_event():
    assert [] == events_from_json("gauge", {"x": 1})


@each_row(
    "message",
    [RpcResponse(3, {"a": 1}), RpcError("x", -32601, "no"), RpcError(None, -32000, "no model", "ModelError")],
)
def test_replies_survive_the_wire(message):
    assert [message] == list(decode_host_messages(LineReader().feed(encode(message))))


def test_a_request_survives_the_wire():
    request = Request(
        "why?", (Attachment("a.py", "x = 1\n"),), max_tokens=5, seed=2**63, temperature=0.5, stop=("\n",), task="edit",
        file_to_rewrite="a.py", answer_format=AnswerFormat.parse("choices", ["yes", "no"]),
    )  # fmt: skip

    assert request == request_from_json(json.loads(json.dumps(request_to_json(request))))


def test_tools_and_their_results_survive_the_wire():
    tool = Tool.parse("read", "reads a file", {"type": "object", "properties": {"path": {"type": "string"}}})
    result = ToolResult("call_1", "read", "x = 1\n", is_error=True)
    request = Request("", tools=(tool,), tool_choice="read", tool_results=(result,))

    assert request == request_from_json(json.loads(json.dumps(request_to_json(request))))


@each_row(
    "params",
    [
        {},
        {"text": 3},
        {"text": " "},
        {"text": "a", "seed": "b"},
        {"text": "a", "files": [{"name": "f"}]},
        {"text": "a", "stop": [1]},
        {"text": "a", "file_to_rewrite": ["a.py"]},
        {"text": "a", "schema": 3},
        {"text": "a", "schema": "[]"},
        {"text": "a", "choices": ["yes", ""]},
        {"text": "a", "choices": ["yes"], "regex": "[a-z]+"},
    ],
)
def test_invalid_request_params_are_a_usage_error(params):
    with pytest.raises(UsageError):
        request_from_json(params)


def test_an_error_response_becomes_its_exception():
    assert isinstance(RpcError(1, -32000, "gone", "ModelError").to_exception(), ModelError)
    assert "HostError" == type(RpcError(1, -32000, "gone", "os").to_exception()).__name__


@each_row(
    "line, code",
    [
        (b"nonsense\n", PARSE_ERROR),
        (b"\xff\xfe\n", PARSE_ERROR),
        (b"[" * 900 + b"\n", PARSE_ERROR),
        (b"[]\n", INVALID_REQUEST),
        (b"{}\n", INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":[],"method":"hello"}\n', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":"hello","params":[]}\n', INVALID_PARAMS),
        (b"x" * 2000 + b"\n", INVALID_REQUEST),
    ],
)
def test_an_invalid_line_gets_an_error_and_the_next_one_is_read(line, code):
    refusal, call = calls(line, b'{"jsonrpc":"2.0","id":1,"method":"hello"}\n')

    assert isinstance(refusal, RpcError)
    assert code == refusal.code
    assert RpcRequest(1, "hello") == call


def test_a_line_over_the_limit_does_not_stay_in_memory():
    reader = LineReader(limit=1000)

    for _ in range(100):
        assert [] == list(reader.feed(b"x" * 900))

    assert len(reader._pending) <= 1000
    assert [None, b"{}"] == list(reader.feed(b"\n{}\n"))


@given(st.lists(st.sampled_from([b'{"jsonrpc":"2.0","id":1,"method":"m"}', b"[", b"", b"{}"])), st.randoms())
def test_lines_do_not_depend_on_how_the_bytes_arrive(lines: list[bytes], dice: random.Random):
    stream = b"".join(line + dice.choice([b"\n", b"\r\n"]) for line in lines)
    reader = LineReader()
    found = []
    while stream:
        cut = dice.randint(1, len(stream))
        found += reader.feed(stream[:cut])
        stream = stream[cut:]

    assert lines == found
