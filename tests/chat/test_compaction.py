"""A full context window in work with tools: what is shortened, in which order, and what the model reads of it."""

from __future__ import annotations

import json
from functools import lru_cache

import pytest

from specchat.chat.context_fit import KEPT_CHARACTERS, LEFT_OUT, shorten_results, shorten_turns
from specchat.chat.events import Failed, Finished, Notice, PrefillProgress
from specchat.chat.request import Attachment, Request
from specchat.chat.shortened_text import bounded
from specchat.chat.tools import Tool, ToolCall, ToolResult
from specchat.chat.transcript import Turn
from specchat.host.protocol import request_from_json, request_to_json
from specchat.hub.model_size import too_small
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from tests.each_row import each_row
from tests.tiny import HERMES_TEMPLATE, calling

READ = Tool.parse("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
WINDOW = 6000


def called(number: int, **arguments: str) -> ToolCall:
    return ToolCall(f"c{number}", "read", json.dumps({"path": f"f{number}", **arguments}))


def result(number: int, text: str) -> ToolResult:
    return ToolResult(f"c{number}", "read", text)


def rounds(count: int, text: str, **arguments: str) -> list[Turn]:
    """The task with its file, and after it the rounds: each has the result of the call before it, and a call."""
    task = Turn("the task", (Attachment("a.py", "a file of the user\n" * 20),), tool_calls=(called(0),))
    later = [
        Turn("", tool_results=(result(number, f"{number} {text}"),), tool_calls=(called(number + 1, **arguments),))
        for number in range(count)
    ]
    return [task, *later]


def texts(turns) -> list[str]:
    return [each.text for turn in turns for each in turn.tool_results]


def test_the_oldest_results_are_shortened_and_only_as_many_as_needed():
    turns = rounds(4, "x" * 1000)

    done = shorten_turns(turns, 1000, len)

    assert (2, 0) == (done.results, done.answers)
    assert [True, True, False, False] == ["left out" in text for text in texts(done.turns)]
    assert texts(done.turns)[2:] == texts(turns)[2:]
    assert sum(map(len, texts(done.turns))) <= sum(map(len, texts(turns))) - 1000


def test_a_shortened_text_says_so_and_keeps_its_ends():
    [text] = texts(shorten_turns(rounds(1, f"first {'x' * 1000} last"), 1, len).turns)

    assert text.startswith("0 first ")
    assert text.endswith(" last")
    assert "characters left out, because the context window was full" in text
    assert len(text) < 2 * KEPT_CHARACTERS


def test_a_shortened_text_is_not_shortened_again_but_left_out_if_that_is_not_enough():
    turns = shorten_turns(rounds(3, "x" * 1000), 10**4, len).turns  # more than there is

    assert {LEFT_OUT} == set(texts(turns))
    once = shorten_turns(rounds(3, "x" * 1000), 2000, len).turns
    again = shorten_turns(once, 100, len)
    assert [1, LEFT_OUT, *texts(once)[1:]] == [again.results, *texts(again.turns)]


def test_answers_and_long_arguments_follow_when_results_are_not_enough():
    turns = rounds(3, "a", content="y" * 1000)

    done = shorten_turns(turns, 1500, len)

    assert (0, 2) == (done.results, done.answers)
    arguments = json.loads(done.turns[1].tool_calls[0].arguments)
    assert "f1" == arguments["path"]
    assert "left out" in arguments["content"]


def test_arguments_that_are_not_json_are_shortened_as_well():
    broken = Turn("task", tool_calls=(ToolCall("c", "read", '{"path": "' + "x" * 1000),))

    [turn] = shorten_turns([broken], 100, len).turns

    assert len(turn.tool_calls[0].arguments) < 400


def test_the_last_answer_to_a_question_stays():
    turns = [*rounds(2, "x"), Turn("", tool_results=(result(2, "x"),), answer="I did this. " * 100), *rounds(1, "x")]

    assert turns[3] == shorten_turns(turns, 10**6, len).turns[3]


def test_what_the_user_asked_and_attached_stays():
    turns = rounds(2, "x" * 1000)

    done = shorten_turns(turns, 10**6, len)

    assert ("the task", turns[0].files) == (done.turns[0].user, done.turns[0].files)


def test_turns_without_anything_long_are_left_alone():
    turns = [Turn("task", tool_calls=(called(0),), prompt_ids=(1, 2), answer_ids=(3,))]

    assert tuple(turns) == shorten_turns(turns, 100, len).turns


def test_results_share_the_room_that_is_left():
    results = [result(0, "x" * 3000), result(1, "y" * 1000)]

    first, second = shorten_results(results, 2000, len)

    assert len(first.text) + len(second.text) <= 2200
    assert len(first.text) > len(second.text)
    assert tuple(results) == shorten_results(results, 4000, len)


def test_nothing_of_a_text_can_be_kept():
    assert "\n[… 9 characters left out …]\n" == bounded("x" * 9, 0)


@each_row("length", [0, 9, 10])
def test_a_text_that_fits_stays(length):
    assert "x" * length == bounded("x" * length, 10)


def test_the_option_travels_with_a_request_and_is_off_by_default():
    assert "compacts" not in request_to_json(Request("hello"))
    for compacts in (True, False):
        assert compacts is request_from_json(request_to_json(Request("hello", compacts=compacts))).compacts


@lru_cache
def engine() -> Engine:
    settings = {"models.target": str(calling(HERMES_TEMPLATE)), "models.draft": "", "limits.context": WINDOW}
    return load_engine(Profile().override({**settings, "limits.answer": 200}))


TOO_SMALL = too_small("work with tools", "check what it calls")


def events_of(turns, request: Request):
    """Without the notice that so small a model is too small for tools."""
    asked = engine().create_session()
    asked.turns = list(turns)
    return asked, [event for event in asked.ask(request) if event != Notice(TOO_SMALL)]


def next_round(text: str, **how) -> Request:
    return Request("", tools=(READ,), max_tokens=4, tool_results=(result(9, text),), **how)


@pytest.mark.full
def test_a_full_window_does_not_end_the_work():
    turns = rounds(9, "x" * 800)
    turns[-1] = Turn("", tool_results=turns[-1].tool_results, tool_calls=(called(9),))

    asked, events = events_of(turns, next_round("the last result", compacts=True))

    assert isinstance(events[-1], Finished)
    [notice] = [event.text for event in events if isinstance(event, Notice)]
    prompt = asked.turns[-1].rendered_prompt
    assert "the last result" in prompt
    assert "the task" in prompt
    assert "a file of the user" in prompt
    assert "characters left out, because the context window was full" in prompt
    assert notice.startswith("the context window was full: ")
    assert "the tool results of 9 earlier turns shortened" in notice
    assert "tokens left out, which the history keeps" in notice
    assert events[-1].totals.prompt_tokens < 0.7 * WINDOW
    assert 10 == len(asked.turns[:-1])


def test_without_the_option_it_is_an_error_and_nothing_is_shortened():
    turns = rounds(9, "x" * 800)

    asked, events = events_of(turns, next_round("the last result"))

    assert isinstance(events[-1], Failed)
    assert "context window" in events[-1].message
    assert turns == asked.turns


@pytest.mark.full
def test_new_results_that_do_not_fit_alone_are_shortened():
    asked, events = events_of(rounds(9, "x" * 800), next_round("y" * 2 * WINDOW, compacts=True))

    assert isinstance(events[-1], Finished)
    assert "the last tool results shortened" in next(event.text for event in events if isinstance(event, Notice))
    assert "yyy" in asked.turns[-1].rendered_prompt


def test_the_next_round_reads_only_what_is_new_after_a_compaction():
    asked, _events = events_of(rounds(9, "x" * 800), next_round("the last result", compacts=True))

    events = list(asked.ask(Request("and now?", tools=(READ,), max_tokens=4, compacts=True)))

    assert not [event for event in events if isinstance(event, Notice)]
    total = events[-1].totals
    assert total.prompt_tokens - total.cached_tokens < 100
    assert any(isinstance(event, PrefillProgress) for event in events)


@pytest.mark.full
def test_where_nothing_can_be_shortened_the_answer_is_short_and_nothing_is_said():
    _asked, events = events_of([], Request("z" * (WINDOW - 400), tools=(READ,), compacts=True, max_tokens=1000))

    assert isinstance(events[-1], Finished)
    assert not [event for event in events if isinstance(event, Notice)]


def test_a_task_that_does_not_fit_itself_is_still_an_error():
    _asked, events = events_of([], Request("z" * 2 * WINDOW, tools=(READ,), compacts=True))

    assert isinstance(events[-1], Failed)
    assert "context window" in events[-1].message
