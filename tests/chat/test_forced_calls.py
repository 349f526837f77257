"""A request that forces a tool call gets exactly one, valid against its schema, with every drafter."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache, lru_cache

import pytest

from specchat.chat.events import Event, Finished, Notice, StepDone, ThinkingDelta
from specchat.chat.request import AnswerFormat, Request
from specchat.chat.session import Session
from specchat.chat.tools import Tool
from specchat.chat.transcript import Turn
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from specchat.text.tool_formats import HERMES
from tests.cover import matrix
from tests.each_row import each_row
from tests.tiny import (
    HERMES_TEMPLATE,
    LLAMA_TEMPLATE,
    THINKING_TEMPLATE,
    calling,
    session_drafted_by,
    speaking,
    thinking,
)
from tools.forced_calls import forced_calls

MODELS = {
    "hermes": lambda: calling(HERMES_TEMPLATE, "<tool_call>", "</tool_call>"),
    "llama": lambda: calling(LLAMA_TEMPLATE),
    "thinking": lambda: thinking(THINKING_TEMPLATE),
}
# Only sampled answers must be long enough for a call in free text.
SAMPLING = {"greedy": {"limits.answer": 100}, "T1": {"sampling.temperature": 1.0, "limits.answer": 260}}
VARIANTS = ["lookup", "draft", "auto", "chaos", "self"]
TOOLS = (
    Tool.parse("weather", "", {"type": "object", "required": ["city", "days"], "properties": {
        "city": {"enum": ["Bonn", "Ulm"]}, "days": {"type": "array", "items": {"type": "integer"}}}}),
    Tool.parse("note", "", {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}),
)  # fmt: skip


@lru_cache
def engine(model: str, sampling: str) -> Engine:
    profile = Profile().override(
        {"models.target": str(MODELS[model]()), "models.draft": str(speaking(layers=1, seed=2)),
         "prompt.thinking_tokens": 20, **SAMPLING[sampling]}
    )  # fmt: skip
    return load_engine(profile)


def session(model: str, sampling: str = "T1", variant: str = "auto") -> Session:
    return session_drafted_by(engine(model, sampling), variant)


def asked(session: Session, choice: str = "required", seed: int = 5) -> list[Event]:
    events = list(session.ask(Request("abc abc", tools=TOOLS, tool_choice=choice, seed=seed)))
    assert isinstance(events[-1], Finished), events[-1]
    return events


def tokens_in(events: list[Event]) -> list[int]:
    return [token.token_id for event in events if isinstance(event, StepDone) for token in event.committed_tokens]


@cache
def forced(model: str, sampling: str, variant: str) -> list[int]:
    return tokens_in(asked(session(model, sampling, variant)))


@pytest.mark.parametrize(("model", "sampling", "variant"), matrix(list(MODELS), list(SAMPLING), VARIANTS))
def test_no_drafter_changes_a_forced_call(model, sampling, variant):
    assert forced(model, sampling, variant) == forced(model, sampling, "plain")


@cache
def free(sampling: str, variant: str) -> list[list[int]]:
    """Three answers of a conversation, with calls among them where they are sampled."""
    opened = session("llama", sampling, variant)
    tokens = [tokens_in(asked(opened, "auto", seed)) for seed in range(3)]
    assert sampling != "T1" or any(turn.tool_calls for turn in opened.turns)
    return tokens


@pytest.mark.dear
@pytest.mark.parametrize(("sampling", "variant"), matrix(list(SAMPLING), VARIANTS))
def test_no_drafter_changes_calls_inside_free_text(sampling, variant, monkeypatch):
    often = replace(HERMES, opening='e{"name": "', after="}e", begin="e", closing="e", tokens=())
    chat = engine("llama", sampling).models.tokenizer.chat
    monkeypatch.setattr(chat, "tool_format", often)  # a random model soon writes such a marker

    assert free(sampling, variant) == free(sampling, "plain")


@pytest.mark.full
@each_row("choice", ["required", "weather", "note"])
@each_row("model", MODELS)
def test_a_forced_call_is_the_whole_answer_and_valid(model, choice):
    opened = session(model)

    events = asked(opened, choice)

    (call,) = opened.turns[-1].tool_calls
    arguments = json.loads(call.arguments)
    assert events[-1].finish_reason == "tool_calls"
    assert choice in ("required", call.name)
    assert opened.turns[-1].answer == ""
    if call.name == "note":
        assert isinstance(arguments.pop("text"), str) and not arguments
    else:
        assert arguments["city"] in ("Bonn", "Ulm") and all(isinstance(day, int) for day in arguments["days"])


def test_a_forced_call_comes_without_a_thought():
    opened = session("thinking")

    events = asked(opened)

    assert not any(isinstance(event, ThinkingDelta) for event in events)
    assert opened.turns[-1].tool_calls


YES = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
FORMATS = {
    "schema": AnswerFormat.parse("schema", YES),
    "regex": AnswerFormat.parse("regex", "[ab]/[cd]\\/x"),
    "choices": AnswerFormat.parse("choices", ["yes/no", "no"]),
}


def formatted(variant: str, kind: str, choice: str = "auto", seed: int = 0, tools: tuple[Tool, ...] = TOOLS) -> Turn:
    """An answer that has a format and may call tools."""
    opened = session("llama", variant=variant)
    request = Request("abc abc", tools=tools, tool_choice=choice, seed=seed, answer_format=FORMATS[kind])
    events = list(opened.ask(request))
    assert isinstance(events[-1], Finished), events[-1]
    return opened.turns[-1]


@each_row("kind", FORMATS)
def test_a_format_binds_the_text_and_calls_stay_calls(kind):
    turns = [formatted("plain", kind, seed=seed) for seed in range(4)]

    for turn in turns:
        assert bool(turn.answer) != bool(turn.tool_calls)
        assert not turn.answer or re.fullmatch(r'[ab]/[cd]/x|yes/no|no|\{"yes": (true|false)\}', turn.answer)
        assert all(json.loads(call.arguments).keys() <= {"city", "days", "text"} for call in turn.tool_calls)


@pytest.mark.dear
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_drafter_changes_an_answer_that_has_a_format_or_calls(variant):
    for seed in range(2):
        drafted, plain = (formatted(each, "schema", seed=seed) for each in (variant, "plain"))
        assert (drafted.answer, drafted.answer_ids) == (plain.answer, plain.answer_ids)


def test_a_forced_call_comes_in_place_of_a_text_with_a_format():
    turn = formatted("auto", "schema", choice="note")

    assert "" == turn.answer and ["note"] == [call.name for call in turn.tool_calls]


def test_a_part_of_the_schema_of_a_tool_is_left_out_with_the_name_of_the_tool():
    bad = (
        Tool.parse("odd", "", {"type": "object", "properties": {"a": {"type": "string", "not": {"const": "x"}}}}),
        Tool.parse("far", "", {"$ref": "https://example.org/other.json"}),
    )
    opened = session("llama")

    events = list(opened.ask(Request("abc abc", tools=(*TOOLS, *bad), tool_choice="required", seed=5)))

    notices = [event.text for event in events if isinstance(event, Notice)]
    assert "the tool 'odd' is called without a part of its schema: not" in notices
    assert any(notice.startswith("the tool 'far' is called without") for notice in notices)
    assert not any("'note'" in notice or "'weather'" in notice for notice in notices)
    assert opened.turns[-1].tool_calls


@pytest.mark.full
def test_forced_calls_of_the_embedded_model_are_valid():
    assert [call.fault for call in forced_calls("embedded", 5)] == [""] * 5
