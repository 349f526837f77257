"""Tool calls are found in an answer of every family, wherever the stream is cut, and only where they are meant."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.text.thinking import TEXT, AnswerPart, merge_parts
from specchat.text.tool_calls import TOOL_CALL, ToolCallParser
from specchat.text.tool_formats import FORMATS, HERMES, PLAIN_JSON, ToolFormat, find_tool_format
from tests.each_row import each_row

ALL_FORMATS: dict[str, ToolFormat] = {**FORMATS, "plain": PLAIN_JSON}
EVERY_FORMAT = each_row("name", ALL_FORMATS)
ARGUMENTS = {"city": "Paris", "days": 3, "deep": {"list": [1, "}", '"]']}}
TEXT_OF = json.dumps(ARGUMENTS)
SCHEMAS = {
    "weather": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    "time": {"type": "object", "properties": {}},
}
# What models of the family write, and how two calls follow each other.
TRANSCRIPTS = {
    "qwen3-coder": (
        ("<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
        "</function>\n</tool_call>"),
        "\n<tool_call>\n<function=time>\n</function>\n</tool_call>",
    ),
    "glm": (
        ("\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>"),
        "\n<tool_call>time\n</tool_call>",
    ),
    "hermes": (
        f'<tool_call>\n{{"name": "weather", "arguments": {TEXT_OF}}}\n</tool_call>',
        '\n<tool_call>\n{"arguments": {}, "name": "time"}\n</tool_call>',
    ),
    "mistral": (f"[TOOL_CALLS]weather[ARGS]{TEXT_OF}", "[TOOL_CALLS]time[CALL_ID]abc123def[ARGS]{}"),
    "mistral-list": (
        f'[TOOL_CALLS] [{{"name": "weather", "arguments": {TEXT_OF}, "id": "abcdefghi"}}',
        ', {"name": "time", "arguments": {}}]',
    ),
    "gemma": (
        '<|tool_call>call:weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>',
        "<|tool_call>call:time{}<tool_call|>",
    ),
    "functiongemma": (
        "<start_function_call>call:weather{city:<escape>Paris<escape>,days:3}<end_function_call>",
        "<start_function_call>call:time{}<end_function_call>",
    ),
    "harmony": (
        f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{TEXT_OF}<|call|>",
        "<|start|>assistant to=functions.time<|channel|>commentary json<|message|>{}<|call|>",
    ),
    "deepseek": (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{TEXT_OF}<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "deepseek-r1": (
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        f"{TEXT_OF}\n```<｜tool▁call▁end｜>"),
        "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "llama3": (
        f'<|python_tag|>{{"name": "weather", "parameters": {TEXT_OF}}}',
        '; {"name": "time", "parameters": {}}',
    ),
    "plain": (
        f'{{"name": "weather", "arguments": {TEXT_OF}}}', '\n{"type": "function", "name": "time", "parameters": {}}',
    ),
}  # fmt: skip
SIMPLE = ("qwen3-coder", "glm", "gemma", "functiongemma")  # no nested values in these transcripts
PIECES = st.lists(
    st.sampled_from(
        ["<tool_call>", "</tool_call>", "\n", " ", '{"name": "a", "arguments": ', '{"x": "</tool_call>"}', "}", "<tool",
         "_call>", '{"name"', ': "b", "parameters": {', "}}", "a", "é", '"', "\\", "[TOOL_CALLS]", "[ARGS]", "[{", "}]",
         ", ", "; ", "weather", "<|channel|>commentary to=functions.a", "<|message|>", "<|call|>", "<|start|>assistant",
         "<|tool_call>call:a", "<tool_call|>", "<function=a>", "</function>", "<|python_tag|>", "3",
         "<｜tool▁call▁begin｜>a", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<arg_key>", "b{}"]
    ),
    max_size=10,
).map("".join)  # fmt: skip


def parts_of(name: str, pieces: list[str]) -> list[AnswerPart]:
    parser = ToolCallParser(ALL_FORMATS[name], SCHEMAS)
    return merge_parts([part for piece in pieces for part in parser.push(piece)] + parser.flush())


def calls_in(parts: list[AnswerPart]) -> list[tuple[str, str]]:
    return [(part.call_name, part.text) for part in parts if part.kind == TOOL_CALL]


def text_in(parts: list[AnswerPart]) -> str:
    return "".join(part.text for part in parts if part.kind == TEXT)


@pytest.mark.full
@EVERY_FORMAT
@each_row("before, after", [("", ""), ("Let me see.", ""), ("", "Done."), ("", "\n")])
def test_a_transcript_cut_at_every_character_parses_as_the_whole(name, before, after):
    if before and name in ("llama3", "plain"):
        before = ""  # such a call begins the answer
    text = before + "".join(TRANSCRIPTS[name]) + after
    whole = parts_of(name, [text])

    assert all(parts_of(name, [text[:cut], text[cut:]]) == whole for cut in range(len(text)))
    assert parts_of(name, list(text)) == whole
    expected = {"city": "Paris", "days": 3} if name in SIMPLE else ARGUMENTS
    assert [(called, json.loads(arguments)) for called, arguments in calls_in(whole)] == [
        ("weather", expected), ("time", {}),
    ]  # fmt: skip
    assert text_in(whole) == before + after.strip()


@each_row("name", ALL_FORMATS, shares=3)
@given(text=PIECES, cuts=st.sets(st.integers(0, 80)))
@settings(max_examples=50)
def test_no_cut_changes_the_parts(name, text, cuts):
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]

    assert parts_of(name, pieces) == parts_of(name, [text])


@EVERY_FORMAT
@given(text=st.text(st.characters(exclude_characters="<[{")))
@settings(max_examples=20)
def test_text_without_a_marker_is_text(name, text):
    if name != "harmony":
        assert parts_of(name, [text]) == ([AnswerPart(TEXT, text)] if text else [])


@EVERY_FORMAT
def test_a_forced_call_is_parsed_as_one(name):
    written = ALL_FORMATS[name].call_text("weather", TEXT_OF)

    assert calls_in(parts_of(name, list(written))) == [("weather", TEXT_OF)]
    assert text_in(parts_of(name, [written])) == ""


@EVERY_FORMAT
def test_the_family_is_found_by_a_call_that_its_template_renders(name):
    call = ALL_FORMATS[name]
    rendered = f"<|user|>hi<|assistant|>{TRANSCRIPTS[name][0].replace('weather', 'probe_name')}"

    if name not in ("functiongemma", "plain"):
        assert find_tool_format(rendered, "") is call
    assert find_tool_format("", "{{ messages }} no markers") is PLAIN_JSON


def test_the_family_is_found_by_the_markers_in_a_template_that_renders_no_calls():
    assert find_tool_format("<|user|>hi", "write {{ '<tool_call>' }} and </tool_call>") is HERMES
    assert find_tool_format("", "[TOOL_CALLS] and [ARGS]") is FORMATS["mistral"]


def test_the_arguments_are_shown_as_they_are_written():
    parser = ToolCallParser(HERMES)

    shown = [parser.push(piece) for piece in ("Hm.", '\n<tool_call>\n{"name": "a', '", "arguments": {"x"', ": 1}", "}")]

    assert shown == [
        [AnswerPart(TEXT, "Hm.")], [], [AnswerPart(TOOL_CALL, '{"x"', 0, "a")], [AnswerPart(TOOL_CALL, ": 1}")], [],
    ]  # fmt: skip


def test_a_closing_marker_in_a_json_string_ends_no_call():
    arguments = '{"text": "</tool_call> \\" </tool_call>"}'

    assert calls_in(parts_of("hermes", list(HERMES.call_text("write", arguments)))) == [("write", arguments)]


@each_row(
    "body, arguments",
    [('{"name": "a", "arguments": {"x": 1', '{"x": 1'), ('{"name": "a", "arguments": {"x": 1}}}', '{"x": 1}'),
     ('{"name": "a", "arguments": "{\\"x\\": 1}"}', '"{\\"x\\": 1}"'), ('{"name": "a", "arguments": }', "}")],
)  # fmt: skip
def test_a_call_with_broken_json_is_a_call_and_the_next_one_is_read(body, arguments):
    text = f"<tool_call>{body}</tool_call>{HERMES.call_text('b', '{}')}"

    assert calls_in(parts_of("hermes", list(text))) == [("a", arguments), ("b", "{}")]


def test_an_answer_that_ends_inside_a_call_keeps_what_was_shown_of_it():
    assert parts_of("hermes", ['<tool_call>\n{"name": "a", "arguments": {"x": [1']) == [
        AnswerPart(TOOL_CALL, '{"x": [1', 0, "a")
    ]
    assert parts_of("hermes", ['Hm <tool_call>\n{"name": "a']) == [AnswerPart(TEXT, 'Hm<tool_call>\n{"name": "a')]


def test_a_call_in_tags_that_is_cut_is_no_call_with_fewer_arguments():
    cut = TRANSCRIPTS["qwen3-coder"][0].partition("<parameter=days>")[0]

    ((name, arguments),) = calls_in(parts_of("qwen3-coder", [cut]))

    assert name == "weather"
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(arguments)


@each_row(
    "text",
    ['{"name": "Bob", "age": 3}', "[TOOL_CALLS]", '{"name": "x", "parameters"', ('A call is {"name": "x", '
     '"arguments": {}}.'), "<tool_call", "the <tool_calls> tag", "to=functions.x"],
)  # fmt: skip
@each_row("name", ["hermes", "llama3", "plain"])
def test_what_only_looks_like_a_call_is_text(name, text):
    assert parts_of(name, list(text)) == [AnswerPart(TEXT, text)]
