"""What clients of llama-server send to, and read of, the APIs that it shares with OpenAI and Anthropic."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import urlparse

from serve_tests.conftest import Served, raw
from specchat.chat.events import PrefillProgress
from specchat_serve.anthropic_messages import translate_count, translate_message
from specchat_serve.engine_request import GREETING
from specchat_serve.llama_server_objects import PromptProgress
from specchat_serve.openai_chat import translate_chat
from specchat_serve.openai_responses import translate_response
from tests.each_row import each_row

HELLO = [{"role": "user", "content": "hello"}]
CHAT, RESPONSE = {"messages": HELLO}, {"input": "hello"}


def chunks(served: Served, path: str, **body: Any) -> list[dict[str, Any]]:
    with closing(http.client.HTTPConnection(urlparse(served.address).netloc)) as connection:
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        lines = connection.getresponse().read().decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def test_the_first_chunk_of_a_chat_is_the_role_and_no_text(served):
    first, *others = chunks(served, "/v1/chat/completions", **CHAT, n=2)
    deltas = [choice["delta"] for each in others for choice in each["choices"]]

    assert {"role": "assistant", "content": None} == first["choices"][0]["delta"]
    assert all(delta["content"] for delta in deltas[1:] if "content" in delta)


@each_row(
    "path, body",
    [("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "before"}), ("/completion", {"prompt": "before"})],
)
def test_an_answer_has_its_timings(served, path, body):
    whole = raw(served, "POST", path, json.dumps(body))[1]
    *_, last = chunks(served, path, **body, stream_options={"include_usage": True})

    assert {"prompt_n", "prompt_per_second", "predicted_n", "predicted_per_second"} <= whole["timings"].keys()
    assert whole["timings"].keys() == last["timings"].keys()
    assert "timings" in chunks(served, "/v1/responses", **RESPONSE)[-1]


@each_row(
    "path, body",
    [("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSE)],
)
def test_a_stream_tells_how_much_of_the_prompt_is_read_if_it_is_asked(served, path, body):
    told = [
        each["prompt_progress"]
        for each in chunks(served, path, **body, return_progress=True)
        if "prompt_progress" in each
    ]

    assert [(3, 0, 0), (3, 0, 3)] == [(each["total"], each["cache"], each["processed"]) for each in told]
    assert not any("prompt_progress" in each for each in chunks(served, path, **body))


def test_the_progress_begins_with_what_is_cached_and_only_grows():
    progress = PromptProgress()
    events = [PrefillProgress(at, 9, 2) for at in (5, 5, 9)]

    assert [2, 5, 9] == [told["processed"] for event in events for told in progress.on_event(event)]


@each_row(
    "path, body, common",
    [
        ("/v1/messages/count_tokens", CHAT, {}),
        ("/v1/chat/completions/input_tokens", CHAT, {"object": "response.input_tokens"}),
        ("/chat/completions/input_tokens", CHAT, {"object": "response.input_tokens"}),
        ("/v1/responses/input_tokens", RESPONSE, {"object": "response.input_tokens"}),
        ("/responses/input_tokens", RESPONSE, {"object": "response.input_tokens"}),
    ],
)
def test_the_tokens_of_a_prompt_are_counted(served, path, body, common):
    assert (200, {**common, "input_tokens": 3}) == raw(served, "POST", path, json.dumps(body))
    assert 400 == raw(served, "POST", path, "{}")[0]


def test_an_empty_conversation_of_messages_is_a_greeting():
    empty = {"messages": [], "max_tokens": 5}

    assert GREETING == translate_message(empty, ("ours",)).request.request.text
    assert GREETING == translate_count(empty, ("ours",)).request.text


@each_row("translate, body", [(translate_chat, CHAT), (translate_response, RESPONSE)])
def test_a_schema_may_stand_beside_the_messages(translate, body):
    form = translate({**body, "json_schema": {"const": "42"}}, ("ours",)).request.request.answer_format

    assert {"const": "42"} == form.value


@each_row(
    "path, body, pieces",
    [
        ("/v1/chat/completions", CHAT, lambda told: told["choices"] and told["choices"][0]["delta"].get("content")),
        ("/v1/completions", {"prompt": "before"}, lambda told: told["choices"][0]["text"]),
        ("/completion", {"prompt": "before"}, lambda told: told["content"]),
        ("/v1/responses", RESPONSE, lambda told: told["type"] == "response.output_text.delta"),
    ],
)
def test_every_piece_of_a_text_has_its_timings_if_it_is_asked(served, path, body, pieces):
    told = [each for each in chunks(served, path, **body, timings_per_token=True) if pieces(each)]

    assert told and all({"prompt_per_second", "predicted_n"} <= each["timings"].keys() for each in told)
    assert not any("timings" in each for each in chunks(served, path, **body) if pieces(each))


def test_an_answer_shows_its_prompt_if_it_is_asked(served):
    asked = [json.dumps({**CHAT, "verbose": it}) for it in (True, False)]
    shown, hidden = (raw(served, "POST", "/v1/chat/completions", body)[1] for body in asked)

    assert shown["__verbose"]["prompt"] and "__verbose" not in hidden
