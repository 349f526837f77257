"""`specchat serve` as a process, with the embedded model and OpenAI's client."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.front import command
from tests.host.conftest import kill_host
from tests.plugins.conftest import command_with_such_a_host

pytestmark = pytest.mark.full

QUESTION = {"role": "user", "content": "Name three colours."}
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": {key: {"type": "string"} for key in keys}, "required": keys,
    }}}
    for name, keys in (("read", ["path"]), ("write", ["path", "text"]))
]  # fmt: skip


@pytest.fixture(scope="module")
def client(runtime) -> Iterator[Any]:
    """Of a server with a host of its own."""
    line = [
        *command_with_such_a_host(os.environ["PYTHONPATH"]),
        "serve",
        "--port",
        "0",
        "--draft",
        "",
        "--max-tokens",
        "24",
    ]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        address = serving.stderr.readline().split()[2].rstrip(",")
        with openai.OpenAI(base_url=address, api_key="none", max_retries=0) as ours:
            yield ours
        serving.terminate()
        serving.stderr.read()
    assert serving.returncode == 0
    kill_host()


def ask(client: Any, *messages: dict[str, Any], **more: Any) -> Any:
    return client.chat.completions.create(model="embedded", messages=list(messages), **more)


def text_of(completion: Any) -> str:
    return completion.choices[0].message.content


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1, "top_p": 0.9, "seed": 7}])
def test_the_text_is_that_of_specchat_ask(client, monkeypatch, sampling):
    options = [f"--{name.replace('_', '-')}={value}" for name, value in sampling.items()]
    asked = command(monkeypatch, "ask", QUESTION["content"], "--draft", "", "--max-tokens", "24", *options)

    whole = text_of(ask(client, QUESTION, **sampling))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(client, QUESTION, stream=True, **sampling))

    assert whole and whole == streamed == asked.out.decode().removesuffix("\n")


def test_the_prompt_of_several_answers_is_computed_once(client):
    several = ask(client, QUESTION, n=3, seed=7, temperature=1)
    alone = [text_of(ask(client, QUESTION, seed=seed, temperature=1)) for seed in (7, 8, 9)]

    assert alone == [choice.message.content for choice in several.choices]
    for choice in several.usage.specchat["choices"][1:]:
        assert several.usage.prompt_tokens - 1 == choice["cached_tokens"]


def test_a_bias_keeps_a_token_out_and_a_prompt_of_tokens_is_that_text(client):
    def complete(prompt: Any, **more: Any) -> Any:
        return client.completions.create(model="embedded", prompt=prompt, max_tokens=12, logprobs=1, **more)

    plain = complete("def add(a, b):")
    tokens = client.post("/../tokenize", cast_to=object, body={"content": "def add(a, b):"})["tokens"]
    first = plain.choices[0].logprobs.tokens[0]
    banned = client.post("/../tokenize", cast_to=object, body={"content": first})["tokens"][0]

    assert plain.choices[0].text == complete(tokens).choices[0].text
    assert first not in complete(tokens, logit_bias={str(banned): -100}).choices[0].logprobs.tokens


def test_penalties_change_the_text_and_are_the_same_every_time(client):
    penalties = {"frequency_penalty": 1.5, "presence_penalty": 0.5}

    plain, first, second = (text_of(ask(client, QUESTION, **how)) for how in ({}, penalties, penalties))

    assert plain != first
    assert first == second


def test_the_history_needs_no_prefill(client):
    first = ask(client, QUESTION)
    past = [QUESTION, {"role": "assistant", "content": text_of(first)}]

    second = ask(client, *past, {"role": "user", "content": "And now?"})
    changed = ask(client, *past[:1], {"role": "assistant", "content": "Red."}, {"role": "user", "content": "And now?"})

    # The call itself too, where its text has the tokens that were sampled: what a client sends is encoded alike always.
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens
    assert second.usage.prompt_tokens != changed.usage.prompt_tokens


def test_a_conversation_sent_as_text_gets_the_same_answer(client):
    first = text_of(ask(client, QUESTION))
    past = [QUESTION, {"role": "assistant", "content": first}, {"role": "user", "content": "And now?"}]
    other = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}, *past]

    had = text_of(ask(client, *past))
    ask(client, *other)

    assert had == text_of(ask(client, *past))


def test_the_system_prompt_has_an_effect(client):
    system = {"role": "system", "content": "You are a pirate. " * 20}

    plain, told = ask(client, QUESTION), ask(client, system, QUESTION)

    assert told.usage.prompt_tokens > plain.usage.prompt_tokens + 20


def test_a_schema_forms_the_answer(client):
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}

    answer = text_of(ask(client, QUESTION, response_format=form))

    assert set(json.loads(answer)) == {"ok"}


def test_a_raw_completion_has_the_form_of_a_schema_and_ends_in_time(client):
    told = client.completions.create(
        model="embedded", prompt="It is", max_tokens=24, extra_body={"guided_json": SCHEMA}
    )

    assert {"ok"} == set(json.loads(told.choices[0].text))


def test_a_raw_completion_goes_on_to_its_limit_if_it_is_asked(client):
    body = {"messages": [QUESTION]}
    prompt = client.post("../apply-template", body=body, cast_to=dict[str, str])["prompt"]
    ended, whole = (
        client.completions.create(
            model="embedded", prompt=prompt, max_tokens=400, temperature=0, extra_body={"ignore_eos": ignores}
        )
        for ignores in (False, True)
    )

    assert ("stop", "length") == (ended.choices[0].finish_reason, whole.choices[0].finish_reason)
    assert 400 == whole.usage.completion_tokens > ended.usage.completion_tokens


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "write"}}], ids=str)
def test_a_forced_call_fits_its_tool_and_its_result_continues_the_session(client, choice):
    first = ask(client, QUESTION, tools=TOOLS, tool_choice=choice, max_tokens=100)
    message = first.choices[0].message
    (call,) = message.tool_calls
    given = json.loads(call.function.arguments)
    call.function.arguments = json.dumps(dict(reversed(given.items())), indent=2)  # as other clients write it
    result = {"role": "tool", "tool_call_id": call.id, "content": "red"}

    second = ask(client, QUESTION, message.model_dump(exclude_none=True), result, tools=TOOLS)

    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    assert sorted(given) == sorted(schemas[call.function.name]["required"])
    # The call itself too, where its text has the tokens that were sampled: what a client sends is encoded alike always.
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens


def test_a_stop_and_a_limit_end_it(client):
    whole = text_of(ask(client, QUESTION))
    word = whole.split()[2]

    stopped, cut = ask(client, QUESTION, stop=word), ask(client, QUESTION, max_tokens=3)

    assert (text_of(stopped), stopped.choices[0].finish_reason) == (whole[: whole.index(word)], "stop")
    assert (cut.usage.completion_tokens, cut.choices[0].finish_reason) == (3, "length")


def test_a_prompt_that_is_too_long_has_a_code_for_it(client):
    long = {"role": "user", "content": "word " * 9000}
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, long)
    with pytest.raises(openai.APIError) as ended:  # by its status, or in the stream if a sign of life came before
        list(ask(client, long, stream=True))

    assert "context_length_exceeded" == refused.value.code == ended.value.code


@pytest.mark.parametrize(
    "nonsense", [{"top_p": 3}, {"presence_penalty": 2.1}, {"frequency_penalty": -3}, {"extra_body": {"top_k": -2}}]
)
def test_numbers_that_make_no_sense_are_refused_by_name(client, nonsense):
    name = next(iter(nonsense.get("extra_body", nonsense)))

    with pytest.raises(openai.BadRequestError, match=name):
        ask(client, QUESTION, **nonsense)


def test_every_chunk_has_the_probabilities_of_its_text(client):
    chunks = list(ask(client, QUESTION, stream=True, logprobs=True, top_logprobs=2))
    choices = [chunk.choices[0] for chunk in chunks[1:]]

    for choice in choices:
        assert (choice.delta.content or "") == "".join(token.token for token in choice.logprobs.content)
    assert choices[0].delta.content
