"""What no client should send, to every endpoint: it is an error in the form of the API, and never one of the server."""

from __future__ import annotations

from typing import Any

import pytest

from serve_tests.conftest import raw
from specchat.errors import UsageError
from specchat.host.protocol import MAX_LINE_BYTES
from specchat_serve.anthropic_messages import translate_count
from specchat_serve.json_fields import JsonObject
from specchat_serve.ollama_api import show_body
from specchat_serve.server import TRANSLATIONS
from tests.each_row import each_row

TEXT = {"role": "user", "content": "hello"}
GOOD: JsonObject = {"model": "ours", "messages": [TEXT], "prompt": "hello", "input": "hello", "max_tokens": 5}
FIELDS = (
    "model", "messages", "prompt", "input", "suffix", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "stop", "stop_sequences", "stream", "stream_options", "seed", "temperature", "top_p", "top_k", "min_p", "n",
    "tools", "tool_choice", "parallel_tool_calls",
    "response_format", "format", "options", "system", "instructions", "text", "thinking",
    "think",
    "output_config", "keep_alive", "raw", "images", "context", "template", "logprobs", "logit_bias", "echo", "metadata",
    "truncation", "previous_response_id", "conversation", "background",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**400, "", "text", "\x00", [], {}, [None], [[]], [{}], [1], ["text"], {"type": []},
    {"type": "json_schema"}, {"format": []}, {"include_usage": []}, {"stop": [None]}, {"num_predict": "many"},
    {"seed": [1]}, {"top_p": {}}, [{"role": []}], [{"role": "user"}], [{"role": "user", "content": [[]]}],
    [{"role": "user", "content": {"type": "text"}}], [{"role": "user", "content": [{"type": "text", "text": 5}]}],
    [{"type": []}], [{"type": "message", "role": {}, "content": 5}], [TEXT, {"role": "tool", "content": []}],
    [{"type": "function"}], [{"type": "function", "name": [], "function": {"name": {}}}], [{"name": 5}],
    {"type": "tool"}, {"type": "function", "name": []}, {"type": "function", "function": {"name": None}},
    [TEXT, {"role": "tool", "content": [], "tool_call_id": []}],
    [TEXT, {"type": "function_call_output", "call_id": []}],
    [TEXT, {"role": "assistant", "tool_calls": [{}]}], [TEXT, {"role": "assistant", "tool_calls": [{"function": []}]}],
    [TEXT, {"role": "assistant", "tool_calls": [{"id": [], "function": {"name": "f", "arguments": []}}]}],
    [TEXT, {"role": "assistant", "content": [{"type": "tool_use", "input": []}]}],
    [TEXT, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": []}]}],
    [TEXT, {"type": "function_call", "call_id": [], "arguments": {}}],
    [{"role": "assistant", "content": "a"}], [{"role": "user", "content": "a", "tool_calls": "x", "images": 5}],
)  # fmt: skip


def test_every_field_with_every_odd_value_is_translated_or_refused():
    doors = {**TRANSLATIONS, "/v1/messages/count_tokens": translate_count}
    refused = 0
    for path, translate in doors.items():
        for field in FIELDS:
            for value in ODD:
                try:
                    translate({**GOOD, field: value}, ("ours",))
                except UsageError:
                    refused += 1
                except Exception as error:
                    raise AssertionError(f"{path}: {field} = {value!r}: {error!r}") from error

    assert refused > 1000


@each_row("value", ODD)
def test_an_odd_name_of_a_model_is_refused(value):
    with pytest.raises(UsageError):
        show_body({"model": value}, ("ours",), None, 0)


@each_row("path", [*TRANSLATIONS, "/v1/messages/count_tokens", "/api/show"])
@each_row("body", ["", "{", "[]", '"text"', "[" * 100_000, "\x00", r'{"model": "\ud800"}'])
def test_a_body_that_is_no_object_is_refused(served, path, body):
    status, told = raw(served, "POST", path, body)

    assert 400 == status and told["error"]


@each_row("path", ["/v1/completions", "/v1/messages", "/api/chat"])
def test_a_body_over_the_size_limit_is_refused(served, path):
    status, told = raw(served, "POST", path, " " * (MAX_LINE_BYTES + 1))

    assert 413 == status
    if path == "/v1/messages":
        assert "request_too_large" == told["error"]["type"]


@each_row("path", [*TRANSLATIONS, "/v1/messages/count_tokens", "/api/show"])
def test_only_post_is_allowed(served, path):
    status, told = raw(served, "GET", path)

    assert 405 == status and told["error"]
