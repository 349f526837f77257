"""The sums of several answers that are one turn."""

from dataclasses import fields, replace

from specchat.acceptance_counts import Acceptance
from specchat.chat.events import Finished, Totals
from specchat.chat.sum_totals import sum_totals

FIRST = Totals(
    prompt_tokens=10,
    cached_tokens=4,
    completion_tokens=8,
    steps=4,
    draft_tokens=6,
    accepted_by_drafter={"suffix": 4},
    acceptance=Acceptance((2, 1), (1, 1)),
    steps_by_drafter={"suffix": 2},
    draft_seconds=0.1,
    verify_seconds=0.5,
    prefill_seconds=0.2,
    seconds=1.0,
    ttft_seconds=0.3,
    queue_seconds=0.05,
    other_seconds=0.1,
    loading_seconds=2.0,
    repeated_tokens=3,
    thinking_tokens=2,
    thinking_seconds=0.15,
    plain_decode_seconds=1.0,
    plain_decode_error=0.1,
)
SECOND = replace(FIRST, accepted_by_drafter={"eagle3": 1, "suffix": 2}, steps_by_drafter={"eagle3": 1}, ttft_seconds=9)
NOT_SUMMED = {"is_exact", "drafter_report", "estimates", "plain_decode_error", "compared_seconds"}


def total(*turns):
    return sum_totals([Finished("stop", each) for each in turns])


def test_every_number_is_summed_and_the_first_token_is_that_of_the_first_answer():
    done = total(FIRST, SECOND)

    assert done.accepted_by_drafter == {"eagle3": 1, "suffix": 6}
    assert done.steps_by_drafter == {"eagle3": 1, "suffix": 2}
    assert done.ttft_seconds == FIRST.ttft_seconds
    numbers = {field.name for field in fields(Totals)} - NOT_SUMMED
    assert done.acceptance == FIRST.acceptance + SECOND.acceptance
    for name in numbers - {"acceptance", "accepted_by_drafter", "steps_by_drafter", "ttft_seconds"}:
        assert getattr(done, name) == 2 * getattr(FIRST, name), name


def test_a_sum_is_exact_only_if_all_answers_are():
    assert total(FIRST, FIRST).is_exact
    assert not total(FIRST, replace(FIRST, is_exact=False)).is_exact


def test_an_answer_without_a_known_plain_time_is_not_compared():
    alone, both = total(FIRST).speedup, total(FIRST, replace(FIRST, plain_decode_seconds=0.0)).speedup

    assert alone is not None and both is not None
    assert alone.factor == both.factor


def test_no_answer_at_all_is_zero():
    assert total() == Totals()
