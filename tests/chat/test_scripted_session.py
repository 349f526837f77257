"""The scripted session behaves like a session."""

from __future__ import annotations

from threading import Event as Flag

from specchat.chat.events import Failed, Finished, TextDelta
from specchat.chat.request import Request
from tests.scripted_session import ScriptedSession, scripted_answer


def test_it_plays_one_list_of_events_per_question():
    with ScriptedSession([scripted_answer(["a"]), scripted_answer(["b"])]) as session:
        said = [event for text in ("1", "2") for event in session.ask(Request(text)) if isinstance(event, TextDelta)]

    assert said == [TextDelta("a"), TextDelta("b")]
    assert [request.text for request in session.requests] == ["1", "2"]
    assert session.is_closed


def test_it_obeys_a_cancel():
    cancelled = Flag()
    events = ScriptedSession([scripted_answer(["a", "b"])]).ask(Request("x"), cancelled)
    next(event for event in events if event == TextDelta("a"))

    cancelled.set()

    assert [event.finish_reason for event in events if isinstance(event, Finished)] == ["cancelled"]


def test_it_fails_after_the_end_of_the_script():
    assert list(ScriptedSession([]).ask(Request("x"))) == [Failed("the script is over")]


def test_the_totals_of_an_answer_are_the_sum_of_its_steps():
    *_, finished = scripted_answer(["a", "b", "c"], accepted=2)

    assert isinstance(finished, Finished)
    assert (finished.totals.completion_tokens, finished.totals.steps, finished.totals.accepted_by_drafter) == (
        9,
        3,
        {"lookup": 6},
    )
