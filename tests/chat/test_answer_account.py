"""What an answer cost, on a clock that the test moves: the same numbers as with a stop watch."""

from __future__ import annotations

import pytest

from specchat.acceptance_counts import Acceptance
from specchat.chat import answer_account
from specchat.chat.answer_account import AnswerAccount, step_done
from specchat.chat.events import NO_DRAFTER, StepDone
from specchat.engine.decode import Step
from specchat.engine.tree import DraftTree


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(answer_account, "perf_counter", clock)
    return clock


def done(tree: DraftTree, path: list[int], tokens: list[int], kept: int | None = None) -> StepDone:
    return step_done(Step(tree, path, tokens, 0.25, 0.75), kept or len(tokens), lambda _token: b"x")


def step(accepted: int = 0, drafted: int = 0, kept: int | None = None) -> StepDone:
    tree = DraftTree(1)
    tree.add_chain(list(range(10, 10 + drafted)), source="suffix")
    return done(tree, list(range(accepted + 1)), [*list(range(10, 10 + accepted)), 99], kept)


def test_a_step_counts_for_the_drafter_of_its_first_draft_token():
    drafted, plain = step(2, drafted=4), step()

    assert (drafted.tokens, len(drafted.draft_tokens), drafted.drafter) == (3, 4, "suffix")
    assert drafted.acceptance == Acceptance((1, 1, 1), (1, 1))
    assert (plain.tokens, plain.drafter, plain.seconds) == (1, NO_DRAFTER, 1.0)


def test_tokens_after_a_stop_string_do_not_count():
    counts = step(3, drafted=4, kept=2)

    assert (counts.tokens, counts.acceptance) == (2, Acceptance((1, 1), (1, 1)))


def test_acceptance_asks_only_where_the_parent_was_accepted():
    """A drafter that is always right has 100 %, however wide its trees are and wherever its drafts end."""
    tree = DraftTree(1)
    for token in (10, 20):
        tree.add_chain([token, 11, 12], source="a")
    deep = done(tree, [0, 1, 2, 3], [10, 11, 12, 99]).acceptance
    wide_and_wrong = done(tree, [0, 4], [20, 99]).acceptance

    assert deep.rate == 1.0
    assert deep + wide_and_wrong == Acceptance((2, 2, 1), (2, 1, 1))
    assert (deep + wide_and_wrong).rates == (1.0, 0.5, 1.0)


def test_speed_and_first_token_count_from_the_request_and_every_wait_has_a_name(clock):
    account = AnswerAccount(asked_at=91.0, loading_seconds=6.0)  # of 9 s, models loaded for 6
    account.shares_engine = True
    clock.now += 2
    account.on_prompt(20, 4)
    account.on_prefilled()
    for _ in range(4):
        clock.now += 1
        account.add_step(step())
        with account.other_work():
            clock.now += 1
    totals = account.totals()

    assert (totals.loading_seconds, totals.queue_seconds, totals.prefill_seconds) == (6, 3, 2)
    assert (totals.ttft_seconds, totals.seconds, totals.other_seconds) == (6, 12, 3)
    assert totals.tokens_per_second == 4 / 12
    assert totals.decode_seconds == 4


def test_two_streams_at_once_report_what_each_got(clock):
    first, second = AnswerAccount(), AnswerAccount()
    first.shares_engine = second.shares_engine = True
    for _ in range(10):
        for own, other in ((first, second), (second, first)):
            with other.other_work():
                clock.now += 1
                own.add_step(step())

    assert [round(each.totals().tokens_per_second or 0, 2) for each in (first, second)] == [0.53, 0.5]


def test_a_repeated_run_is_in_no_number(clock):
    accounts = AnswerAccount(), AnswerAccount()
    for account in accounts:
        for accepted in (0, 2):
            clock.now += 1
            account.add_step(step(accepted, drafted=3))
    short, cut = accounts
    for _ in range(20):
        clock.now += 1
        cut.add_step(step(3, drafted=3))
    cut.cut(4, thinking_tokens=0)
    before, after = short.totals(), cut.totals()

    assert after.repeated_tokens == 80
    assert (after.completion_tokens, after.steps, after.acceptance) == (4, 2, before.acceptance)
    assert (after.decode_seconds, after.accepted_by_drafter) == (before.decode_seconds, before.accepted_by_drafter)
    assert after.seconds == 2 + 2  # the two steps of the other one came first


def test_a_cut_inside_a_step_keeps_its_first_tokens(clock):
    account = AnswerAccount()
    account.add_step(step(3, drafted=3))
    account.cut(2, thinking_tokens=0)
    totals = account.totals()

    assert (totals.completion_tokens, totals.accepted_by_drafter, totals.repeated_tokens) == (2, {"suffix": 2}, 2)


def test_where_nothing_was_measured_there_is_no_number():
    totals = AnswerAccount().totals()

    assert (totals.tokens_per_second, totals.seconds, totals.ttft_seconds) == (None, 0, 0)


def test_a_clock_that_is_ahead_makes_no_negative_time(clock):
    account = AnswerAccount(asked_at=99.0, loading_seconds=5.0)
    clock.now += 1
    account.add_step(step())

    assert account.totals().queue_seconds == 0
    assert account.totals().seconds == 1
