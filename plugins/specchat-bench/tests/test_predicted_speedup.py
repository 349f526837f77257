"""The formulas of the sweep, against plain counting."""

from itertools import product

import pytest

from specchat.chat.events import (
    NO_OUTPUT_YET,
    REPETITION,
    TARGET,
    CommittedToken,
    Failed,
    Finished,
    PrefillProgress,
    StepDone,
    TextDelta,
    Totals,
)
from specchat.errors import SpecchatError
from specchat_bench.latency import quantile, time_answer
from specchat_bench.predicted_speedup import (
    expected_tokens_per_step,
    mean_expected_tokens,
    predicted_speedup,
)
from tests.each_row import each_row


def counted(acceptance: float, guesses: int) -> float:
    """Tokens of a pass by every way in which guesses can hold and fall."""
    expected = 0.0
    for holds in product((True, False), repeat=guesses):
        chance = 1.0
        for each in holds:
            chance *= acceptance if each else 1 - acceptance
        kept = holds.index(False) if False in holds else guesses
        expected += chance * (kept + 1)
    return expected


@each_row("guesses", [0, 1, 4, 8])
@each_row("acceptance", [0.0, 0.3, 0.8, 1.0])
def test_tokens_of_a_pass_are_those_of_every_way_to_hold_and_fall(acceptance, guesses):
    assert expected_tokens_per_step(acceptance, guesses) == pytest.approx(counted(acceptance, guesses))


def test_passes_of_several_depths_are_averaged():
    assert mean_expected_tokens(0.5, {0: 1, 2: 3}) == pytest.approx((1 + 3 * counted(0.5, 2)) / 4)


@each_row(
    "acceptance, guesses, guess_cost, rows_cost, expected",
    [(0.8, 4, 0.05, 0.0, 2.80), (0.8, 8, 0.05, 0.0, 3.09), (0.8, 4, 0.05, 0.04, 2.47), (0.5, 2, 0.05, 0.0, 1.59)],
)
def test_speed_is_that_of_the_published_examples(acceptance, guesses, guess_cost, rows_cost, expected):
    found = predicted_speedup(
        expected_tokens_per_step(acceptance, guesses), 1 + rows_cost * guesses, guesses * guess_cost
    )

    assert found == pytest.approx(expected, abs=0.006)


def test_an_answer_is_timed_from_the_question_to_its_end():
    clock = iter([10.0, 10.1, 10.2, 10.5, 10.55, 10.6, 11.0, 11.25])
    step = StepDone((), (), (), 0.0, 0.1)
    events = [
        NO_OUTPUT_YET,
        PrefillProgress(1, 1),
        TextDelta("a"),
        step,
        TextDelta("b"),
        TextDelta("c"),
        Finished("stop", Totals(completion_tokens=3)),
    ]

    heard = time_answer(events, lambda: next(clock))

    assert ("abc", (step,), 0.5, 1.25) == (heard.text, heard.steps, heard.ttft_seconds, heard.request_seconds)
    assert heard.text_intervals == pytest.approx((0.1, 0.4))


def test_the_output_of_an_answer_ends_with_its_last_text_or_step():
    clock, step = iter([10.0, 10.5, 10.75, 12.0]), StepDone((), (), (), 0.0, 0.1)
    events = [TextDelta("a"), step, Finished("stop", Totals(completion_tokens=1))]

    answer = time_answer(events, lambda: next(clock))

    assert (0.75, 2.0) == (answer.output_seconds, answer.request_seconds)


def test_repeats_at_the_end_are_no_part_of_an_answer():
    step = StepDone((1,), (0,), (CommittedToken(1, b"a", "suffix"), CommittedToken(2, b"b", TARGET)), 0.0, 0.1)
    end = Finished(REPETITION, Totals(completion_tokens=3, steps=2, repeated_tokens=3), repeated_characters=2)

    answer = time_answer([TextDelta("abab"), step, step, TextDelta("a"), step, end])

    assert ("aba", [2, 1]) == (answer.text, [each.tokens for each in answer.steps])


@each_row("events", [[Failed("no room")], [TextDelta("x")]])
def test_an_answer_that_does_not_end_well_is_an_error(events):
    with pytest.raises(SpecchatError, match=r"no room|neither"):
        time_answer(events)


def test_a_quantile_is_one_of_the_values():
    hundred = list(range(1, 101))

    assert [50, 95, 99] == [quantile(hundred, share) for share in (0.5, 0.95, 0.99)]
    assert 7 == quantile([7], 0.01)
    assert 0.0 == quantile([], 0.5)
