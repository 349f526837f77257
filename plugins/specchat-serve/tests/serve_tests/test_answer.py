"""What a program gets of an answer is what a person sees of it: the text without repeats, and the same speedup."""

from __future__ import annotations

import re

import pytest

from specchat.chat.events import Finished, Notice, StepDone, Totals
from specchat_serve.answer import Answer
from specchat_serve.answer_counts import AnswerCounts
from specchat_serve.api_errors import RequestError
from specchat_serve.json_fields import Body
from specchat_serve.metrics_page import MetricsPage, answer_metrics
from tests.test_one_answer_text import EVENTS, TEXT
from tests.test_one_number import RATE, STEPS, TOTALS, of_steps


def test_an_answer_that_repeated_itself_has_no_repeats_and_a_reason_that_programs_know():
    answer = Answer()
    for event in EVENTS:
        answer.on_event(event)

    assert (answer.text, answer.finish_reason) == (TEXT, "stop")  # more tokens would not help it


def test_a_program_gets_the_lines_that_a_person_sees():
    answer = Answer()
    for event in (Notice("too small"), Finished("stop", Totals(), "and why")):
        answer.on_event(event)

    assert (["too small"], "and why") == tuple(map(answer.speculation_stats().get, ("notices", "explanation")))


def test_a_program_has_to_ask_for_that():
    assert Body({}).sampling() == {}
    assert Body({"repetition_detection": {"min_count": 4}}).sampling() == {"limits.repeats": 4}
    with pytest.raises(RequestError, match="min_count: give a whole number"):
        Body({"repetition_detection": {"min_count": "many"}}).sampling()


def metrics(totals: Totals) -> str:
    counted = AnswerCounts()
    drafted = (1,) * totals.draft_tokens
    counted.on_event(StepDone(drafted, (0,) * len(drafted), (), 0.0, 0.1))
    counted.on_event(Finished("stop", totals))
    return MetricsPage(answer_metrics(counted)).render().decode()


def test_the_speedup_is_the_one_of_the_metrics_page():
    for shown, totals in TOTALS.items():
        served = Answer(finished=Finished("stop", totals)).speculation_stats()
        gauge = re.search(r"^specchat:speedup (\S+)", metrics(totals), re.MULTILINE)
        assert (2.4 if shown[:1].isdigit() else None) == served["speedup"] == (float(gauge[1]) if gauge else None)


def test_the_acceptance_is_the_one_of_the_metrics_page():
    served, counted = Answer(), AnswerCounts()
    for event in (*STEPS, Finished("stop", of_steps())):
        served.on_event(event)
        counted.on_event(event)
    page = MetricsPage(answer_metrics(counted)).render().decode()

    def total(name: str) -> float:
        return sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)", page, re.MULTILINE)))

    assert served.speculation_stats()["acceptance_rate"] == round(RATE, 3)
    assert (4, 6) == (total("vllm:spec_decode_num_accepted_tokens_total"), total("specchat:tested_tokens_total"))
    assert (3, 9) == (total("vllm:spec_decode_num_drafts_total"), total("vllm:spec_decode_num_draft_tokens_total"))
