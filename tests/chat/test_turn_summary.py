"""A turn in one line."""

from __future__ import annotations

from dataclasses import replace

from specchat.acceptance_counts import Acceptance
from specchat.chat.answer_account import describe_drafters
from specchat.chat.events import TARGET, CommittedToken, Routed, Speedup, StepDone, Totals
from specchat.chat.turn_summary import explanation, speculation_to_json, summary_line
from tests.each_row import each_row

ROUTED = Routed("lookup", 16, "pinned", seed=1)


def test_the_line_has_speed_and_acceptance():
    totals = Totals(completion_tokens=24, steps=8, draft_tokens=32, acceptance=Acceptance((8, 8, 8, 8), (6, 5, 3, 2)),
                    accepted_by_drafter={"lookup": 12, "draft": 4},
                    steps_by_drafter={"lookup": 6, "draft": 1}, verify_seconds=0.08, draft_seconds=0.02,
                    plain_decode_seconds=0.24)  # fmt: skip

    assert summary_line(totals, ROUTED) == (
        "24 tokens · 240 tokens/s · 2.4x faster · accepted 50 % · lookup 6, draft 1 of 8 steps"
    )


COMPARED = Totals(
    completion_tokens=24, steps=8, draft_tokens=32, verify_seconds=0.1, plain_decode_seconds=0.24
)  # fmt: skip


def test_an_uncertain_factor_is_a_range_and_an_unknown_one_is_left_out():
    assert "· 2.0-2.9x faster ·" in summary_line(replace(COMPARED, plain_decode_error=0.2), ROUTED)
    assert "faster" not in summary_line(replace(COMPARED, plain_decode_error=0.9), ROUTED)
    assert "faster" not in summary_line(replace(COMPARED, plain_decode_seconds=0.0), ROUTED)


@each_row(
    "factor, error, words",
    [
        (1.6, 0.0, "1.6x faster"), (0.9, 0.0, "0.9x, slower"), (1.0, 0.0, "1.0x as fast"), (1.04, 0.0, "1.0x as fast"),
        (1.2, 0.5, "0.8-1.8x as fast"), (0.7, 0.3, "0.5-0.9x, slower"), (2.4, 0.2, "2.0-2.9x faster"),
    ],
)  # fmt: skip
def test_the_factor_says_whether_it_is_faster(factor, error, words):
    assert words == Speedup(factor, error).words


@each_row(
    "reason, end",
    [
        ("stop", "32 draft tokens accepted"), ("length", "· stopped at the length limit"),
        ("cancelled", "· stopped, the partial answer is kept"), ("something new", "· something new"),
    ],
)  # fmt: skip
def test_the_line_ends_with_why_the_answer_did_unless_it_is_complete(reason, end):
    assert summary_line(COMPARED, ROUTED, reason).endswith(end)


def test_without_draft_tokens_nothing_is_compared():
    assert "faster" not in summary_line(replace(COMPARED, draft_tokens=0), ROUTED)


def test_programs_get_the_factor_with_its_interval_and_the_acceptance():
    known = speculation_to_json(replace(COMPARED, plain_decode_error=0.2, acceptance=Acceptance((3, 1), (1, 1))))
    unknown = speculation_to_json(Totals())

    assert (known["speedup"], known["speedup_interval"], known["acceptance_rate"]) == (2.4, [2.0, 2.88], 0.5)
    assert (unknown["speedup"], unknown["speedup_interval"], unknown["acceptance_rate"]) == (None, None, None)


def test_an_answer_of_which_the_tests_are_unknown_shows_its_counts():
    assert "8 of 32 draft tokens accepted" in summary_line(replace(COMPARED, accepted_by_drafter={"a": 8}), ROUTED)


def test_a_line_says_where_drafting_may_decide_near_ties_differently():
    drafted = Totals(
        completion_tokens=4,
        steps=2,
        draft_tokens=4,
        accepted_by_drafter={"lookup": 2},
        verify_seconds=1.0,
        is_exact=False,
    )

    assert "2 of 4 draft tokens accepted · near ties may differ" in summary_line(drafted, ROUTED)
    assert "near ties" not in summary_line(replace(drafted, draft_tokens=0), ROUTED)
    assert "near ties" not in summary_line(replace(drafted, is_exact=True), ROUTED)


def test_unknown_values_are_left_out():
    line = summary_line(Totals(completion_tokens=1, steps=1, verify_seconds=0.5))

    assert line == "1 token · 2.0 tokens/s · no draft tokens"


def test_a_copying_drafter_may_find_nothing_to_copy():
    line = summary_line(Totals(completion_tokens=8, steps=8, verify_seconds=0.5), ROUTED)

    assert line == "8 tokens · 16 tokens/s · lookup found nothing to copy"


def test_the_line_is_short_and_says_what_happened_not_what_was_assumed():
    reason = "an explanation is predictable but rarely a copy, so draft is tried first, then lookup"

    line = summary_line(
        replace(COMPARED, steps_by_drafter={"lookup": 8}, acceptance=Acceptance((8,))),
        Routed("auto", 16, reason, seed=1),
    )

    assert line == "24 tokens · 240 tokens/s · 2.4x faster · accepted 0 % · lookup 8 of 8 steps"


def test_the_report_has_the_measured_speed_of_every_drafter():
    target = CommittedToken(9, b"x", TARGET)
    accepted = tuple(CommittedToken(token, b"x", "suffix") for token in (1, 2))
    eagle3 = StepDone((1,), (0,), (target,), 0.01, 0.01, draft_sources=("eagle3",))
    suffix = StepDone((1, 2, 3), (0, 1, 2), (*accepted, target), 0.0, 0.03, draft_sources=("suffix",) * 3)
    plain = StepDone((), (), (target,), 0.0, 0.0125)

    assert describe_drafters([plain, eagle3, *[suffix] * 3, plain]) == (
        "no drafter 2 of 6 steps, 12.5 ms/token; eagle3 1 step, acceptance 0 % (0 of 1), 20.0 ms/token; "
        "suffix 3 steps, acceptance 67 % (6 of 9), 10.0 ms/token"
    )
    assert describe_drafters([]) == ""


def test_the_line_names_the_drafter_of_the_first_step_first():
    totals = replace(COMPARED, steps_by_drafter={"suffix": 1, "eagle3": 17})

    assert "suffix 1, eagle3 17 of 8 steps" in summary_line(totals, ROUTED)


def test_why_tells_the_facts_apart_from_what_was_assumed():
    reason = "an explanation is predictable but rarely a copy, so draft is tried first, then lookup"
    totals = replace(
        COMPARED,
        drafter_report="lookup 8 of 8 steps",
        estimates="lookup 2.0 tokens in 4.0 ms",
        plain_decode_error=0.05,
    )

    assert explanation(Routed("auto", 16, reason, seed=7), totals).splitlines() == [
        "auto, at most 16 draft tokens per step, seed 7",
        "what happened: lookup 8 of 8 steps",
        "3.0 tokens/step; 1.0 without drafts",
        "speed: 2.4x plain (2.3 to 2.5 with 95 %): 0.10 s for what takes plain decoding 0.24 s",
        "expected for the next steps: lookup 2.0 tokens in 4.0 ms",
        f"assumed from the kind of request, not measured: {reason}",
    ]
    assert explanation(Routed("plain", 0, "pinned", seed=7), None).splitlines() == [
        "no drafter (plain decoding), seed 7",
        "chosen by name",
    ]


WAITED = replace(
    COMPARED,
    seconds=6.0,
    ttft_seconds=3.5,
    queue_seconds=2.0,
    prefill_seconds=0.4,
    other_seconds=1.0,
    loading_seconds=9.0,
)


def test_the_speed_is_of_the_whole_wait_and_its_long_parts_are_named():
    assert summary_line(WAITED, ROUTED).startswith("24 tokens · 4.0 tokens/s · 2.4x faster")
    assert summary_line(WAITED, ROUTED).endswith(" · queue 2.0 s · other answers 1.0 s · loading 9.0 s")
    assert (
        "time: 6.00 s from the request to the end of the text, 3.50 s to the first token (queue 2.00 s, "
        "prefill 0.40 s, other answers 1.00 s, computing steps 0.10 s); models loaded for 9.0 s before"
    ) in explanation(ROUTED, WAITED)
    assert {
        "tokens_per_second": 4.0, "ttft_ms": 3500, "total_ms": 6000, "queue_ms": 2000, "prefill_ms": 400,
        "other_answers_ms": 1000, "loading_ms": 9000,
    }.items() <= speculation_to_json(WAITED).items()  # fmt: skip
    assert speculation_to_json(Totals())["tokens_per_second"] is None


def test_a_turn_without_tokens_has_a_line_too():
    assert summary_line(Totals(), ROUTED).startswith("0 tokens · no draft tokens")


@each_row(
    "seconds, text",
    [(0.0, ""), (0.01, "thought for under 0.1 s"), (0.44, "thought for 0.4 s"), (3.2, "thought for 3 s")],
)
def test_a_turn_says_how_long_the_model_thought(seconds, text):
    line = summary_line(replace(COMPARED, thinking_seconds=seconds), ROUTED)

    assert ("thought" in line) == bool(text)
    assert text in line
