"""The wire format, by itself: bytes in, messages out."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.chat.answer_format import Structure
from specchat.chat.events import Committed, Failed, Finished, Loading, Prefill, Routed, StepDone, Text, Totals
from specchat.chat.request import Attachment, Request
from specchat.errors import ModelError, UsageError
from specchat.host.protocol import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    NAMES,
    PARSE_ERROR,
    Answer,
    Call,
    LineReader,
    Notice,
    Refusal,
    encode,
    event_to_json,
    events_from_json,
    read_calls,
    read_replies,
    request_from_json,
    request_to_json,
)

EVENTS = [
    Loading("target", 3, 10),
    Prefill(128, 256, reused=7),
    Routed("lookup", 8, "the files repeat", seed=2**40),
    Text("é\u2028\n\x00"),
    StepDone((1, 2), (0, 1), (Committed(5, b"\xff\xc3", "lookup"),), 0.25, 0.5, (b"\xff", b"a"), ("lookup", "draft")),
    Finished("stop", Totals(tokens=3, accepted={"lookup": 2}, plain_seconds=0.5)),
    Failed("no room", 7),
]


def calls(*lines: bytes, limit: int = 1000) -> list[Call | Refusal]:
    reader = LineReader(limit)
    return [call for line in lines for call in read_calls(reader.feed(line))]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_survives_the_wire(event):
    line = encode(Notice(NAMES[type(event)], event_to_json(event)))

    [notice] = read_replies(LineReader().feed(line))

    assert isinstance(notice, Notice)
    assert [event] == events_from_json(notice.method, notice.params)


def test_unknown_fields_of_an_event_are_ignored():
    assert [Text("a")] == events_from_json("text", {"text": "a", "colour": "red"})


def test_an_unknown_notice_is_no_event():
    assert [] == events_from_json("gauge", {"x": 1})


@pytest.mark.parametrize(
    "message",
    [Answer(3, {"a": 1}), Refusal("x", -32601, "no"), Refusal(None, -32000, "no model", "ModelError")],
    ids=repr,
)
def test_replies_survive_the_wire(message):
    assert [message] == list(read_replies(LineReader().feed(encode(message))))


def test_a_request_survives_the_wire():
    request = Request(
        "why?", (Attachment("a.py", "x = 1\n"),), max_tokens=5, seed=2**63, temperature=0.5, stop=("\n",), task="edit",
        rewrites="a.py", structure=Structure.of("choices", ["yes", "no"]),
    )  # fmt: skip

    assert request == request_from_json(json.loads(json.dumps(request_to_json(request))))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"text": 3},
        {"text": " "},
        {"text": "a", "seed": "b"},
        {"text": "a", "files": [{"name": "f"}]},
        {"text": "a", "stop": [1]},
        {"text": "a", "rewrites": ["a.py"]},
        {"text": "a", "schema": 3},
        {"text": "a", "schema": "[]"},
        {"text": "a", "choices": ["yes", ""]},
        {"text": "a", "choices": ["yes"], "regex": "[a-z]+"},
    ],
)
def test_a_request_that_is_none_is_a_usage_error(params):
    with pytest.raises(UsageError):
        request_from_json(params)


def test_a_refusal_becomes_the_error_it_came_from():
    assert isinstance(Refusal(1, -32000, "gone", "ModelError").to_error(), ModelError)
    assert "HostError" == type(Refusal(1, -32000, "gone", "os").to_error()).__name__


@pytest.mark.parametrize(
    ("line", "code"),
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
def test_a_bad_line_is_answered_and_the_next_one_read(line, code):
    refusal, call = calls(line, b'{"jsonrpc":"2.0","id":1,"method":"hello"}\n')

    assert isinstance(refusal, Refusal)
    assert code == refusal.code
    assert Call(1, "hello") == call


def test_a_line_over_the_limit_is_not_kept_in_memory():
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
