"""A session with a model that thinks: parts, limit, switch and prompts, and no drafter changes any of it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest

from specchat.chat.events import Event, Finished, Notice, PrefillProgress, StepDone, TextDelta, ThinkingDelta
from specchat.chat.prompt import build_next_prompt
from specchat.chat.request import AnswerFormat, Request
from specchat.chat.session import Session
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from tests.cover import matrix
from tests.each_row import each_row
from tests.tiny import KEEPING_TEMPLATE, THINKING_TEMPLATE, session_drafted_by, speaking, thinking

SAMPLING = {"greedy": {}, "T1": {"sampling.temperature": 1.0}, "penalty": {"sampling.repetition_penalty": 1.3}}
TEMPLATES = {"dropping": THINKING_TEMPLATE, "keeping": KEEPING_TEMPLATE, "spelled": KEEPING_TEMPLATE}
VARIANTS = ["lookup", "draft", "auto", "chaos", "self"]
LIMIT = 12
CLOSING = "\n</think>\n\n"


@lru_cache
def engine(template: str = "dropping", sampling: str = "T1") -> Engine:
    profile = Profile().override(
        {
            "models.target": str(thinking(TEMPLATES[template], has_tokens=template != "spelled")),
            "models.draft": str(speaking(layers=1, seed=2)),
            "limits.answer": 40, "prompt.thinking_tokens": LIMIT, **SAMPLING[sampling],
        }
    )  # fmt: skip
    return load_engine(profile)


def session(template: str = "dropping", sampling: str = "T1", variant: str = "auto") -> Session:
    return session_drafted_by(engine(template, sampling), variant)


def events_of(session: Session, question: str, **how: object) -> list[Event]:
    events = list(session.ask(Request(question, **{"seed": 5, **how})))
    assert isinstance(events[-1], Finished), events[-1]
    return events


def thought_in(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ThinkingDelta))


def text_in(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def tokens_in(events: list[Event]) -> list[int]:
    return [token.token_id for event in events if isinstance(event, StepDone) for token in event.committed_tokens]


def conversation(session: Session) -> list[tuple[str, str, list[int]]]:
    """Three turns, the last but one asked again; each with its thought, its text and its tokens."""
    answers = [events_of(session, "abc abc abc"), events_of(session, "and again: abc abc")]
    session.rewind()
    answers += [events_of(session, "otherwise: abc"), events_of(session, "without", thinking="off")]
    return [(thought_in(events), text_in(events), tokens_in(events)) for events in answers]


@lru_cache
def plainly(template: str, sampling: str) -> list[tuple[str, str, list[int]]]:
    return conversation(session(template, sampling, "plain"))


@pytest.mark.dear
@pytest.mark.parametrize(("template", "sampling", "variant"), matrix(list(TEMPLATES), list(SAMPLING), VARIANTS))
def test_no_drafter_changes_a_thought_its_end_or_the_text(template, sampling, variant):
    plain = plainly(template, sampling)

    assert conversation(session(template, sampling, variant)) == plain
    assert all(thought and text for thought, text, _tokens in plain[:3])


def test_a_thought_at_its_limit_is_closed_and_the_answer_follows():
    asked = session()
    events = events_of(asked, "abc abc abc")
    closing = asked.models.tokenizer.encode_continuation(CLOSING)

    assert tokens_in(events)[LIMIT : LIMIT + len(closing)] == closing
    assert thought_in(events) and text_in(events)
    assert asked.turns[-1].thinking == thought_in(events)
    assert asked.turns[-1].answer == text_in(events)
    totals = events[-1].totals
    assert LIMIT <= totals.thinking_tokens <= LIMIT + len(closing)
    assert 0 < totals.thinking_seconds < totals.decode_seconds + 60


def test_without_a_limit_of_its_own_a_thought_leaves_a_quarter_of_the_answer():
    asked = session()
    asked.models = replace(asked.models, profile=asked.models.profile.override({"prompt.thinking_tokens": 0}))

    events = events_of(asked, "abc abc abc", max_tokens=20)

    assert tokens_in(events)[15:19] == asked.models.tokenizer.encode_continuation(CLOSING)


def test_a_template_that_drops_thoughts_gets_the_answer_alone():
    asked = session("dropping")
    events_of(asked, "abc abc abc")
    first = asked.turns[-1]

    events_of(asked, "more")

    tokenizer = asked.models.tokenizer
    assert asked.turns[-1].rendered_prompt == (
        f"<|user|>abc abc abc<|end|><|assistant|>{first.answer}<|end|><|user|>more<|end|><|assistant|><think>\n"
    )
    assert asked.turns[-1].prompt_ids == tuple(tokenizer.encode(asked.turns[-1].rendered_prompt, parse_special=True))


def test_where_a_template_keeps_thoughts_the_kv_cache_serves_the_whole_answer():
    asked = session("keeping")
    events_of(asked, "abc abc abc")
    first = asked.turns[-1]

    cached = next(event for event in events_of(asked, "more") if isinstance(event, PrefillProgress)).cached_tokens

    assert asked.turns[-1].prompt_ids[: len(first.token_ids)] == first.token_ids
    assert cached == len(first.token_ids) - 1
    assert f"<think>\n{first.thinking}{CLOSING}{first.answer}<|end|>" in asked.turns[-1].rendered_prompt


def test_a_stored_turn_gives_the_prompt_of_the_turn_in_memory():
    asked = session("dropping")
    events_of(asked, "abc abc abc")
    tokenizer = asked.models.tokenizer
    prompt = build_next_prompt(tokenizer, "", asked.turns, Request("more"))

    asked.turns[-1] = replace(asked.turns[-1], is_finished=True)

    assert build_next_prompt(tokenizer, "", tuple(asked.turns), Request("more")) == prompt
    assert "<think>" not in prompt.rendered_prompt.removesuffix("<think>\n")


@each_row("how", [{"thinking": "off"}, {"answer_prefix": "Well"},
                                 {"answer_format": AnswerFormat.parse("regex", "[ab]{4}")}])  # fmt: skip
@each_row("template", TEMPLATES)
def test_an_answer_without_a_thought_begins_after_an_empty_one(template, how):
    asked = session(template)

    events = events_of(asked, "abc abc abc", **how)

    assert not thought_in(events)
    assert text_in(events) == asked.turns[-1].answer != ""
    assert asked.turns[-1].rendered_prompt.endswith("</think>\n\n")


def test_a_stop_string_ends_the_text_and_not_the_thought():
    whole = events_of(session(), "abc abc abc")
    stop = thought_in(whole)[1]

    events = events_of(session(), "abc abc abc", stop=(stop,))

    assert thought_in(events) == thought_in(whole)
    assert text_in(events) == text_in(whole).partition(stop)[0]


def test_an_answer_that_ends_inside_its_thought_says_so():
    asked = session()

    events = events_of(asked, "abc abc abc", max_tokens=LIMIT)

    assert not text_in(events)
    assert events[-1].explanation == (
        "the answer ended inside its thinking; raise limits.answer, or set prompt.thinking_tokens lower"
    )


def test_a_model_that_does_not_think_says_so_once():
    profile = Profile().override({"models.target": str(speaking()), "models.draft": "", "limits.answer": 8})
    asked = load_engine(profile).create_session()

    notices = [
        [event.text for event in events_of(asked, "abc", thinking=mode) if isinstance(event, Notice)]
        for mode in ("auto", "on", "off")
    ]

    assert notices[0] == notices[2] == []
    assert notices[1] == [f"{speaking()} does not think: its chat template has no thinking, so 'on' changes nothing"]
