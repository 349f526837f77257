"""Grammar-made calls: a model that calls nothing by itself calls a tool, or answers, and no drafter changes which."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

import pytest

from specchat.chat.answer_grammar import with_answer_tool
from specchat.chat.events import Event, Finished, Notice, PrefillProgress, StepDone, TextDelta, ToolCallDelta
from specchat.chat.request import AnswerFormat, Request
from specchat.chat.session import Session
from specchat.chat.tools import ANY_TOOL, CALL_OR_ANSWER, SOME_TOOL, Tool, ToolCall, ToolResult
from specchat.chat.transcript import Turn
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import AGENT_CALLS, Agent, Profile
from tests.cover import matrix
from tests.each_row import each_row
from tests.tiny import HERMES_TEMPLATE, THINKING_TEMPLATE, calling, session_drafted_by, speaking, thinking

MODELS = {
    "no template": speaking,
    "hermes": lambda: calling(HERMES_TEMPLATE, "<tool_call>", "</tool_call>"),
    "thinking": lambda: thinking(THINKING_TEMPLATE),
}
EVERY_MODEL = pytest.mark.parametrize("model", MODELS)
VARIANTS = ["lookup", "draft", "auto", "chaos", "self"]
LIST = Tool.parse("list", "Lists.", {"type": "object", "properties": {"folder": {"enum": ["src", "doc"]}}})
OFFERED = Request("abc abc", tools=(LIST,), tool_choice=CALL_OR_ANSWER, seed=3)
LISTED = ToolCall("c1", "list", "{}")


@lru_cache
def engine(model: str, calls: str = "grammar") -> Engine:
    return load_engine(
        Profile().override(
            {"models.target": str(MODELS[model]()), "models.draft": str(speaking(layers=1, seed=2)),
             "limits.answer": 120, "prompt.thinking_tokens": 20, "sampling.temperature": 1.0, "agent.calls": calls}
        )
    )  # fmt: skip


def session(model: str, variant: str = "auto") -> Session:
    return session_drafted_by(engine(model), variant)


def asked(session: Session, request: Request = OFFERED) -> list[Event]:
    events = list(session.ask(request))
    assert isinstance(events[-1], Finished), events[-1]
    return events


def tokens_in(events: list[Event]) -> list[int]:
    return [token.token_id for event in events if isinstance(event, StepDone) for token in event.committed_tokens]


def answer_due(session: Session) -> Request:
    """A request after the model has made one call twice."""
    session.turns += [Turn("which?", tool_calls=(LISTED,)), Turn("", tool_calls=(replace(LISTED, id="c2"),))]
    return replace(OFFERED, text="", tool_results=(ToolResult("c2", "list", "a.py"),))


@pytest.mark.dear
@pytest.mark.parametrize(("model", "variant"), matrix(list(MODELS), VARIANTS))
def test_no_drafter_changes_a_call_or_an_answer(model, variant):
    plain, other = session(model, "plain"), session(model, variant)

    for seed in range(2):
        request = replace(OFFERED, seed=seed)
        assert tokens_in(asked(other, request)) == tokens_in(asked(plain, request))


@pytest.mark.dear
@EVERY_MODEL
def test_each_answer_is_one_valid_call_or_a_text(model):
    opened = session(model)

    ends = {asked(opened, replace(OFFERED, seed=seed))[-1].finish_reason for seed in range(4)}

    assert ends <= {"stop", "tool_calls", "repetition"}
    for turn in opened.turns:
        assert bool(turn.tool_calls) != bool(turn.answer)
        for call in turn.tool_calls:
            assert call.name == "list"
            assert json.loads(call.arguments) in ({}, {"folder": "src"}, {"folder": "doc"})


@EVERY_MODEL
def test_an_answer_is_streamed_and_kept_as_text(model):
    opened = session(model)

    events = asked(opened, answer_due(opened))

    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert opened.turns[-1].answer == text != ""
    assert not opened.turns[-1].tool_calls
    assert not [event for event in events if isinstance(event, ToolCallDelta)]
    assert '"text"' not in text
    assert events[-1].finish_reason in ("stop", "repetition")


def test_the_next_question_reads_only_what_is_new():
    opened = session("no template")
    asked(opened, answer_due(opened))
    first = opened.turns[-1]

    events = asked(opened, replace(OFFERED, text="and now?"))

    cached = next(event for event in events if isinstance(event, PrefillProgress)).cached_tokens
    assert opened.turns[-1].prompt_ids[: len(first.token_ids) - 1] == first.token_ids[:-1]
    assert cached >= len(first.token_ids) - 2


def test_a_notice_tells_once_that_a_model_without_a_template_answers_by_grammar():
    opened = session("no template")

    shown = [[each.text for each in asked(opened) if isinstance(each, Notice)] for _ in range(2)]

    assert shown[0][-1].endswith(
        "has no template for tools: they are described in the system prompt, and a grammar makes every answer a call "
        "or a text"
    )
    assert shown[1] == []
    assert "- list(folder): Lists.\n- answer(text): " in opened.turns[-1].rendered_prompt


def test_a_tool_whose_schema_no_grammar_supports_can_be_called_all_the_same():
    odd = Tool.parse("odd", "", {"type": "object", "properties": {"x": {"type": "string", "format": "no-such-form"}}})
    opened = session("no template")

    forced = list(opened.ask(replace(OFFERED, tools=(odd,), tool_choice="odd")))
    asked(opened, replace(OFFERED, tools=(LIST, odd)))

    assert isinstance(forced[-1], Finished) and "tool_calls" == forced[-1].finish_reason
    notices = [each.text for each in forced if isinstance(each, Notice)]
    assert any(text.startswith("the tool 'odd' is called without a part of its schema: ") for text in notices)
    assert opened.turns[-1].answer or opened.turns[-1].tool_calls


@each_row("reads_tools", [True, False])
@each_row("calls", AGENT_CALLS)
def test_the_profile_or_the_template_decides_who_makes_the_form(calls, reads_tools):
    chosen = with_answer_tool(OFFERED, (), Agent(calls=calls), reads_tools=reads_tools)

    is_by_grammar = calls == "grammar" or (calls == "auto" and not reads_tools)
    assert [tool.name for tool in chosen.tools] == (["list", "answer"] if is_by_grammar else ["list"])
    assert (chosen.tool_choice, chosen.answer_tool) == ((SOME_TOOL, "answer") if is_by_grammar else (ANY_TOOL, ""))


@each_row("choice", ["auto", "none", "required", "list"])
def test_another_choice_of_tools_stays_as_it_is(choice):
    request = replace(OFFERED, tool_choice=choice)

    assert with_answer_tool(request, (), Agent(calls="grammar"), reads_tools=False) == request


@each_row("how", [{"tools": ()}, {"answer_format": AnswerFormat("regex", "a")}, {"answer_prefix": "a"}])
def test_an_answer_that_has_a_form_or_no_tools_is_free(how):
    assert not with_answer_tool(replace(OFFERED, **how), (), Agent(), reads_tools=False).answer_tool


def test_the_tool_that_answers_takes_no_name_of_another():
    taken = replace(OFFERED, tools=(LIST, Tool("answer"), Tool("answer_user")))

    assert with_answer_tool(taken, (), Agent(), reads_tools=False).answer_tool == "answer_user_user"


@each_row(
    "calls, rounds, is_due",
    [(["{}", "{}"], 25, True), (["{}", "[]"], 25, False), (["{}", "[]", "{}"], 25, False), (["{}"], 25, False),
     (["{}", "[]"], 3, True), (["{}"], 3, False)],
)  # fmt: skip
def test_the_answer_is_due_after_a_repeated_call_and_in_the_last_round(calls, rounds, is_due):
    made = [(replace(LISTED, arguments=each),) for each in calls]
    turns = [Turn("before", tool_calls=made[0]), Turn("which?", tool_calls=made[0])]
    turns += [Turn("", tool_calls=each) for each in made[1:]]
    results = replace(OFFERED, text="", tool_results=(ToolResult("c1", "list", "a.py"),))

    def choice(request: Request) -> str:
        return with_answer_tool(request, turns, Agent(rounds=rounds), reads_tools=False).tool_choice

    assert choice(results) == ("answer" if is_due else SOME_TOOL)
    assert choice(replace(results, text="a question")) == SOME_TOOL
