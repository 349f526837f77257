"""Conversations that are not tidy, through each API: answered, or refused with the place of the message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from serve_tests.conftest import raw
from tests.each_row import each_row

Item = tuple[str, Any]  # a role or "call" or "result", and a text, parts, or the id of a call
HALF = "half \ud83d"
REFUSAL = [{"type": "refusal", "refusal": "no"}, {"type": "output_text", "text": "but"}]


def chat(item: Item) -> dict[str, Any]:
    role, value = item
    match role:
        case "call":
            functions = [
                {"id": each, "type": "function", "function": {"name": "read", "arguments": "{}"}} for each in value
            ]
            return {"role": "assistant", "content": None, "tool_calls": functions}
        case "result":
            return {"role": "tool", "tool_call_id": value, "content": "what it says"}
        case _:
            return {"role": role, "content": value}


def ollama(item: Item) -> dict[str, Any]:
    role, value = item
    match role:
        case "call":
            functions = [{"id": each, "function": {"name": "read", "arguments": {}}} for each in value]
            return {"role": "assistant", "content": "", "tool_calls": functions}
        case "result":
            return {"role": "tool", "tool_call_id": value, "content": "what it says"}
        case _:
            text = value if isinstance(value, str) else "a text"
            return {"role": "system" if role == "developer" else role, "content": text}


def messages(item: Item) -> dict[str, Any]:
    role, value = item
    match role:
        case "call":
            uses = [{"type": "tool_use", "id": each, "name": "read", "input": {}} for each in value]
            return {"role": "assistant", "content": uses}
        case "result":
            block = {"type": "tool_result", "tool_use_id": value, "content": "what it says"}
            return {"role": "user", "content": [block]}
        case _:
            return {"role": "system" if role == "developer" else role, "content": value}


def responses(item: Item) -> dict[str, Any]:
    role, value = item
    match role:
        case "call":
            return {"type": "function_call", "call_id": value[0], "name": "read", "arguments": "{}"}
        case "result":
            return {"type": "function_call_output", "call_id": value, "output": "what it says"}
        case _:
            return {"type": "message", "role": role, "content": value}


def body_of(field: str, item_of: Callable[[Item], Any], **more: Any) -> Callable[[Iterable[Item]], dict[str, Any]]:
    return lambda items: {field: list(map(item_of, items)), **more}


APIS = {
    "/v1/chat/completions": body_of("messages", chat),
    "/api/chat": body_of("messages", ollama, model="org/ours", stream=False),
    "/v1/messages": body_of("messages", messages, max_tokens=20),
    "/v1/responses": body_of("input", responses),
}
ONE, USER, ANSWER = ("call", ["1"]), ("user", "hello"), ("assistant", "so")
ANSWERED: dict[str, list[Item]] = {
    "a system message alone": [("system", "hello")],
    "results and then a user": [USER, ONE, ("result", "1"), USER],
    "two calls and their results": [USER, ONE, ("result", "1"), ("call", ["2"]), ("result", "2"), USER],
    "developer text in between": [USER, ANSWER, ("developer", "be brief"), USER],
    "developer text after a result": [USER, ONE, ("result", "1"), ("developer", "be brief")],
    "the assistant first": [ANSWER, USER],
    "the assistant last": [USER, ANSWER],
    "two answers at the end": [USER, ANSWER, ANSWER],
    "two answers in between": [USER, ANSWER, ANSWER, USER],
    "two users": [USER, USER],
    "an empty answer": [USER, ("assistant", ""), USER],
    "an empty system message": [("system", ""), USER],
    "parts of other kinds": [USER, ("assistant", REFUSAL), USER],
    "a user with spaces after a result": [USER, ONE, ("result", "1"), ("user", " ")],
}
REFUSED: dict[str, tuple[int, list[Item]]] = {
    "an empty question": (0, [("user", "")]),
    "an empty question at the end": (2, [USER, ANSWER, ("user", " ")]),
    "half of a character": (1, [USER, ("assistant", HALF), USER]),
    "a result without a call": (1, [USER, ("result", "1")]),
    "a second result": (3, [USER, ONE, ("result", "1"), ("result", "1")]),
    "no result": (2, [USER, ONE, USER]),
    "no result at the end": (1, [USER, ONE]),
}


def post(served: Any, path: str, items: Iterable[Item]) -> tuple[int, str]:
    status, told = raw(served, "POST", path, json.dumps(APIS[path](items)))
    return status, json.dumps(told)


@each_row("path", APIS)
@each_row("name", ANSWERED)
def test_an_untidy_conversation_is_answered(name, path, served):
    status, told = post(served, path, ANSWERED[name])

    assert 200 == status, told


@each_row("path", APIS)
@each_row("name", REFUSED)
def test_what_is_no_conversation_is_refused_with_the_place_of_the_message(name, path, served):
    index, items = REFUSED[name]
    status, told = post(served, path, items)

    assert 400 == status, told
    assert f"[{index}]" in told or f".{index}:" in told or f".{index}." in told or f".{index}[" in told, told
