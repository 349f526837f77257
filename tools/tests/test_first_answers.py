"""Counting the first answers again: a figure that holds tokens of a loop, or of another text, is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specchat.app.updates import ANSWER_CHUNK
from specchat.chat.events import REPETITION, TARGET, CommittedToken, StepDone, Totals
from specchat.chat.turn_summary import speculation_to_json
from specchat.history.history_reader import StoredAnswer, StoredTurn
from tools.first_answers import faults_of

KEPT = tuple(range(40))
STEPS = [StepDone((), (), (CommittedToken(token, b"x", TARGET),), 0.0, 0.1) for token in KEPT]
TOTALS = Totals(completion_tokens=40, steps=40, verify_seconds=4.0, seconds=5.0)
ANSWER = StoredTurn("id", None, {}, StoredAnswer("text", KEPT), REPETITION, {}, 0.0, 1.0)


def lines(totals: Totals, streamed: str = "text") -> list[dict[str, Any]]:
    chunk = {"sessionUpdate": ANSWER_CHUNK, "content": {"type": "text", "text": streamed}}
    spec = speculation_to_json(totals)
    numbers = {"usage": {"output_tokens": totals.completion_tokens}, "tokens_per_second": spec["tokens_per_second"]}
    return [{"type": "update", "update": chunk}, {"type": "result", "result": "text", "spec": spec, **numbers}]


def test_an_answer_without_its_loop_is_right():
    assert [] == list(faults_of(ANSWER, TOTALS, STEPS, lines(TOTALS, "text, text")))


def test_figures_with_tokens_of_a_loop_are_found():
    looped, earned = replace(ANSWER, answer=StoredAnswer("text", KEPT * 3)), replace(TOTALS, completion_tokens=120)

    assert any("3 blocks of 40 tokens" in fault for fault in faults_of(looped, earned, STEPS * 3, lines(earned)))
    found = list(faults_of(ANSWER, earned, STEPS * 3, lines(earned)))
    assert [fault.split(":")[0] for fault in found] == [
        "tokens of the last line", "tokens of the history", "tokens of the steps", "speed"
    ]  # fmt: skip
    assert ["another text was streamed"] == list(faults_of(ANSWER, TOTALS, STEPS, lines(TOTALS, "tex")))
