"""What each API does with the fields and tools of a request: used, left out with a notice, or refused."""

from __future__ import annotations

import pytest

from specchat.chat.request import AnswerFormat
from specchat_serve.anthropic_messages import translate_message
from specchat_serve.api_errors import RequestError
from specchat_serve.json_fields import Body, Border, parse_json_body
from specchat_serve.llama_server_api import translate_llama_completion
from specchat_serve.ollama_api import translate_generate, translate_ollama_chat
from specchat_serve.openai_chat import translate_chat
from specchat_serve.openai_completions import translate_completion
from specchat_serve.openai_responses import translate_response
from specchat_serve.replies import TranslatedRequest
from tests.each_row import each_row

HELLO = [{"role": "user", "content": "hello"}]
APIS = {  # how each reads a body, and the smallest one
    "chat": (translate_chat, {"messages": HELLO}),
    "responses": (translate_response, {"input": "hello"}),
    "completions": (translate_completion, {"prompt": "hello"}),
    "messages": (translate_message, {"messages": HELLO, "max_tokens": 5}),
    "ollama": (translate_ollama_chat, {"model": "ours", "messages": HELLO}),
    "generate": (translate_generate, {"model": "ours", "prompt": "hello"}),
    "llama": (translate_llama_completion, {"prompt": "hello"}),
}
TOOL = {"name": "read", "description": "Read.", "parameters": {"type": "object"}}
FUNCTION = {"type": "function", "function": TOOL}
ANTHROPIC_TOOL = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}


def ask(api: str, **more: object) -> TranslatedRequest:
    translate, smallest = APIS[api]
    return translate({**smallest, **more}, ("ours",))


def left_out(api: str, **more: object) -> list[str]:
    """The paths of what is left out, by the notices of the reply."""
    notices = ask(api, **more).reply.answer.speculation_stats()["notices"]
    return [notice.partition(" is left out: ")[0] for notice in notices]


@each_row("api", list(APIS))
def test_a_field_that_no_table_names_is_left_out_and_the_answer_says_so(api):
    assert ["invented"] == left_out(api, invented=5)
    assert ask(api, invented=5).request == ask(api).request


@each_row("api", list(APIS))
def test_empty_values_are_missing_ones(api):
    for value in (None, "", [], {}):
        assert [] == left_out(api, invented=value, tools=value, stop=value, format=value, grammar=value)


@each_row(
    "api, fields",
    [
        ("chat", {"max_tokens": -1, "seed": -1, "top_k": -1}), ("responses", {"max_output_tokens": -1, "top_k": -1}),
        ("completions", {"max_tokens": -1}), ("messages", {"top_k": -1}),
        ("ollama", {"options": {"num_predict": -1, "seed": -1, "top_k": -1}}), ("chat", {"temperature": ""}),
    ],
)  # fmt: skip
def test_minus_one_is_the_default_of_a_whole_number(api, fields):
    assert ask(api, **fields).request == ask(api).request
    assert [] == left_out(api, **fields)


def test_a_whole_number_may_be_written_with_a_point():
    assert ask("chat", max_tokens=5.0).request == ask("chat", max_tokens=5).request
    with pytest.raises(RequestError, match="whole number"):
        ask("chat", max_tokens=5.5)


def test_fields_without_effect_on_the_text_are_not_told():
    assert [] == left_out(
        "chat", user="x", store=True, metadata={"a": "b"}, prediction={"type": "content"}, model="ours"
    )
    assert [] == left_out("responses", include=["x"], prompt_cache_key="x", store=False, client_metadata={"a": 1})
    assert [] == left_out("messages", metadata={"user_id": "x"}, betas=["x"])


@each_row(
    "api, fields, paths",
    [
        ("chat", {"web_search_options": {"a": 1}, "verbosity": "low"}, ["web_search_options", "verbosity"]),
        ("chat", {"chat_template_kwargs": {"other": 1, "thinking": True}}, ["chat_template_kwargs.other"]),
        ("chat", {"structured_outputs": {"grammar": "x", "json": {"type": "object"}}}, ["structured_outputs.grammar"]),
        ("chat", {"tools": [{"type": "web_search"}, FUNCTION]}, ["tools[0]"]),
        ("responses", {"truncation": "auto"}, ["truncation"]),
        ("chat", {"ignore_eos": True}, ["ignore_eos"]),
        ("responses", {"tools": [{"type": "local_shell"}, {"type": "mcp"}]}, ["tools[0]", "tools[1]"]),
        ("responses", {"input": [*HELLO, {"type": "web_search_call", "id": "x"}]}, ["input[1]"]),
        ("messages", {"tools": [{"type": "web_search_20250305", "name": "x"}, ANTHROPIC_TOOL]}, ["tools.0"]),
        ("messages", {"context_management": {"edits": [1]}}, ["context_management"]),
        ("ollama", {"options": {"num_ctx": 9, "mirostat": 2}}, ["options.num_ctx", "options.mirostat"]),
    ],
)
def test_what_only_other_servers_do_is_left_out(api, fields, paths):
    assert paths == left_out(api, **fields)


def test_forms_of_other_servers_are_used():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    by_schema, by_choice = AnswerFormat.parse("schema", schema), AnswerFormat.parse("choices", ["a", "b"])

    for fields in (
        {"response_format": {"type": "json_object", "schema": schema}}, {"guided_json": schema},
        {"structured_outputs": {"json": schema}},
    ):  # fmt: skip
        assert by_schema == ask("chat", **fields).request.request.answer_format
    for fields in ({"guided_choice": ["a", "b"]}, {"structured_outputs": {"choice": ["a", "b"]}}):
        assert by_choice == ask("responses", **fields).request.request.answer_format


def test_a_raw_completion_has_a_form_too():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = AnswerFormat.parse("schema", schema)
    nested = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}

    for fields in ({"response_format": nested}, {"guided_json": schema}, {"json_schema": schema}):
        assert form == ask("completions", **fields).request.answer_format
        assert [] == left_out("completions", **fields)
    assert form == ask("llama", json_schema=schema).request.answer_format
    assert form == ask("generate", raw=True, format=schema).request.answer_format
    for api, fields in (("completions", {"guided_json": schema}), ("generate", {"format": schema})):
        with pytest.raises(RequestError, match="suffix: what fills a gap has no form"):
            ask(api, suffix="after", **fields)
    with pytest.raises(RequestError, match="grammar: "):
        ask("completions", grammar="root ::= x")


THOUGHT = "I must look first."
THOUGHTS = {
    "chat": ({"role": "assistant", "content": "so", "reasoning_content": THOUGHT},),
    "ollama": ({"role": "assistant", "content": "so", "thinking": THOUGHT},),
    "messages": ({
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": THOUGHT, "signature": ""}, {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "so"},
        ],
    },),
    "responses": (
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": THOUGHT}]},
        {"role": "assistant", "content": "so"},
    ),
}  # fmt: skip


@each_row("api", list(THOUGHTS))
def test_a_thought_before_an_earlier_answer_is_that_of_its_turn(api):
    field = "input" if api == "responses" else "messages"
    [turn] = ask(api, **{field: [*HELLO, *THOUGHTS[api], *HELLO]}).request.turns

    assert (THOUGHT, "so") == (turn.thinking, turn.answer)


def test_a_thought_has_several_names_and_one_that_is_no_text_is_none():
    for fields, thought in (
        ({"reasoning": THOUGHT}, THOUGHT), ({"reasoning": {"effort": "low"}, "reasoning_content": 5}, "")
    ):  # fmt: skip
        said = {"role": "assistant", "content": "so", **fields}
        assert thought == ask("chat", messages=[*HELLO, said, *HELLO]).request.turns[0].thinking
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}], "encrypted_content": "x"}
    said = ask("responses", input=[*HELLO, summary, {"role": "assistant", "content": "so"}, *HELLO])
    assert THOUGHT == said.request.turns[0].thinking


def test_tools_that_anthropic_describes_are_offered():
    typed = [{"type": "bash_20250124", "name": "bash"}, {"type": "text_editor_20250728", "name": "edit"}]

    bash, editor = ask("messages", tools=typed).request.request.tools

    assert ("bash", "edit") == (bash.name, editor.name)
    assert ["command", "path"] == editor.schema["required"] and "command" in bash.schema["properties"]


def test_a_choice_among_allowed_tools_leaves_the_others_out():
    write = {"type": "function", "function": {"name": "write"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [write]}}

    asked = ask("chat", tools=[FUNCTION, write], tool_choice=allowed).request.request

    assert (["write"], "required") == ([tool.name for tool in asked.tools], asked.tool_choice)


@each_row(
    "api, messages, path",
    [
        ("chat", [*HELLO, {"role": "assistant", "content": "x"}, {"role": "user", "content": ""}], "messages[2]"),
        ("ollama", [{"role": "user", "content": " "}], "messages[0]"),
        ("messages", [{"role": "user", "content": []}, {"role": "assistant", "content": "x"}, *HELLO], "messages.0"),
    ],
)
def test_an_empty_message_of_the_user_is_named(api, messages, path):
    with pytest.raises(RequestError) as refused:
        ask(api, messages=messages)

    assert f"{path}: a message of the user is empty" == str(refused.value)


@each_row("api", ["chat", "ollama"])
def test_a_system_message_alone_is_the_question(api):
    asked = ask(api, messages=[{"role": "system", "content": "Say yes."}]).request

    assert ("Say yes.", {}) == (asked.request.text, asked.changes)


def test_parts_of_all_kinds_of_text_are_read_everywhere():
    parts = [
        {"type": "output_text", "text": "a"},
        {"type": "refusal", "refusal": "b"},
        {"type": "text", "text": "c"},
        "d",
    ]
    past = [*HELLO, {"role": "assistant", "content": parts}, *HELLO]

    for api, field in (("chat", "messages"), ("responses", "input"), ("messages", "messages")):
        assert "a\nb\nc\nd" == ask(api, **{field: past}).request.turns[0].answer


def test_half_a_character_is_named():
    for body, path in (
        ('{"a": [1, {"b": "\\ud800"}]}', "a[1].b: half"),
        ('{"\\ud800": 1}', "?: half"),
        ('["\\ud800"]', "[0]"),
    ):
        with pytest.raises(RequestError) as refused:
            parse_json_body(body.encode())
        assert str(refused.value).startswith(path)


def test_the_objects_of_a_body_share_its_notices():
    body = Body({"inner": {"x": 1}})
    body.object("inner").check(Border(frozenset()), "inner.")

    assert ["inner.x is left out: this server does not know it"] == body.notices
