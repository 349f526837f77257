"""Invalid lines: each gets the right error, and the agent continues."""

from __future__ import annotations

import json
import random

import pytest

PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602


def alive(editor):
    return "sessions" in editor.request("session/list")


def code_of(editor, line: bytes):
    """The error that a line gets, and for which id."""
    editor.write_bytes(line + b"\n")
    answer = editor.until(lambda: next((each for each in editor.heard if "error" in each), None))
    editor.heard.clear()
    return answer["error"]["code"], answer["id"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1', PARSE_ERROR),
        (b"\xff\xfe", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"cwd":"\\ud800"}}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"session/list"}', PARSE_ERROR),
        (b"[" * 100_000, PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b"42", INVALID_REQUEST),
        (b"null", INVALID_REQUEST),
        (b'"text"', INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b'{"jsonrpc":"1.0","id":1,"method":"session/list"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":{},"method":"session/list"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":true,"method":"session/list"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', INVALID_REQUEST),
    ],
)
def test_a_line_that_is_no_request_is_refused(editor, line, code):
    assert (code, None) == code_of(editor, line)
    assert alive(editor)


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("no/such", {}, UNKNOWN_METHOD),
        ("_own/method", {}, UNKNOWN_METHOD),
        ("session/fork", {"sessionId": "x", "cwd": "/"}, UNKNOWN_METHOD),
        ("session/list", [], INVALID_PARAMS),
        ("session/list", {"cwd": 3}, INVALID_PARAMS),
        ("session/new", {}, INVALID_PARAMS),
        ("session/delete", {}, INVALID_PARAMS),
        ("authenticate", {"methodId": "x"}, INVALID_PARAMS),
        ("initialize", {"protocolVersion": 1}, INVALID_REQUEST),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_by_its_number(editor, method, params, code):
    editor.write({"jsonrpc": "2.0", "id": "mine", "method": method, "params": params})

    assert code == editor.wait("mine")["error"]["code"]
    assert alive(editor)


def test_a_number_that_is_in_use_cannot_be_used_again(editor, folder):
    session = editor.new(folder)
    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "slowly 100000"}]}
    request = {"jsonrpc": "2.0", "id": "same", "method": "session/prompt", "params": prompt}

    editor.write(request)
    editor.write(request)

    assert [None] == editor.until(lambda: [each["id"] for each in editor.heard if "error" in each])
    editor.notify("session/cancel", {"sessionId": session})
    assert "cancelled" == editor.wait("same")["result"]["stopReason"]


def test_logging_out_of_nothing_works(editor):
    assert {} == editor.request("logout")


def test_nothing_is_served_before_the_introduction(stranger):
    assert INVALID_REQUEST == stranger.refused("session/list")["code"]
    stranger.initialize()
    assert alive(stranger)


def test_an_introduction_that_failed_may_be_tried_again(stranger):
    assert INVALID_PARAMS == stranger.refused("initialize")["code"]
    assert INVALID_REQUEST == stranger.refused("session/list")["code"]
    stranger.initialize()
    assert alive(stranger)


def test_requests_may_follow_initialize_without_waiting(stranger):
    stranger.send("initialize", {"protocolVersion": 7})

    assert alive(stranger)


@pytest.mark.parametrize("version", [0, 1, 2, 999])
def test_the_protocol_version_is_our_own(stranger, version):
    assert 1 == stranger.request("initialize", {"protocolVersion": version})["protocolVersion"]


def test_meta_of_the_editor_replaces_no_argument(editor, folder):
    params = {"cwd": str(folder), "mcpServers": [], "_meta": {"cwd": "/nonsense", "self": 1, "request_id": 9}}

    assert editor.request("session/new", params)["sessionId"]


def test_secrets_of_a_bad_request_are_not_sent_back(editor):
    error = editor.refused("session/new", {"cwd": {"token": "hunter2"}, "mcpServers": []})

    assert [{"where": ["cwd"], "what": "Input should be a valid string"}] == error["data"]["errors"]
    assert "hunter2" not in json.dumps(error)


def test_unknown_notifications_and_empty_lines_are_ignored(editor):
    editor.notify("no/such", {})
    editor.notify("$/cancel_request", {"requestId": 77})
    editor.notify("$/cancel_request", {"requestId": {}})
    editor.write_bytes(b"\n\r\n  \n")

    assert alive(editor)
    assert not [message for message in editor.heard if "error" in message]


def test_answers_to_nothing_are_ignored(editor):
    for answer in ({"result": {}}, {"error": None}, {"error": {"code": 1, "message": "x"}}, {}):
        for id in (0, 5, "x", None, 1.5):
            editor.write({"jsonrpc": "2.0", "id": id, **answer})

    assert alive(editor)


def test_windows_line_ends_and_a_byte_order_mark_are_accepted(stranger):
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}

    stranger.write_bytes(b"\xef\xbb\xbf" + json.dumps(hello).encode() + b"\r\n")

    assert 1 == stranger.wait(1)["result"]["protocolVersion"]


def test_two_thousand_odd_lines_end_nothing(editor, folder):
    dice = random.Random(7)
    session = editor.new(folder)
    whole = [
        {"jsonrpc": "2.0", "id": 1, "method": "session/prompt",
         "params": {"sessionId": session, "prompt": [{"type": "text", "text": "count 2"}]}},
        {"jsonrpc": "2.0", "id": "a", "method": "session/set_mode", "params": {"sessionId": session, "modeId": "ask"}},
        {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}},
        {"jsonrpc": "2.0", "id": 2, "method": "session/list", "params": {"cwd": str(folder), "cursor": "1"}},
    ]  # fmt: skip

    for number in range(2000):
        editor.write_bytes(odd(dice, whole) + b"\n")
        if number % 50 == 0:
            assert alive(editor)  # and hear what was answered, so that no pipe runs full
    editor.notify("session/cancel", {"sessionId": session})
    assert alive(editor)
    assert "end_turn" == editor.ask(session, "count 2")["stopReason"]


def odd(dice: random.Random, whole) -> bytes:
    """A line that was a good one before something happened to it."""
    message = json.loads(json.dumps(dice.choice(whole)))
    strange = [None, True, -1, 1e300, "", "x" * 100, [], {}, [[]], {"a": {}}, "\u2028", "/", 2**70]
    place = message if dice.random() < 0.4 else message.get("params") or message
    if place and dice.random() < 0.7:
        place[dice.choice(list(place))] = dice.choice(strange)
    elif place:
        del place[dice.choice(list(place))]
    line = bytearray(json.dumps(message).encode())
    if dice.random() < 0.3:
        for _ in range(dice.randint(1, 5)):
            line[dice.randrange(len(line))] = dice.randrange(256)
    return bytes(line).replace(b"\n", b"")
