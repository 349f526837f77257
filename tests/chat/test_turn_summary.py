"""A turn in one line."""

from __future__ import annotations

from dataclasses import replace

from specchat.chat.events import Routed, Totals
from specchat.chat.turn_summary import speedup_to_json, summary_line

ROUTED = Routed("lookup", 16, "pinned", seed=1)


def test_the_line_has_speed_and_acceptance():
    totals = Totals(completion_tokens=24, steps=8, draft_tokens=32, accepted_by_drafter={"lookup": 12, "draft": 4},
                    verify_seconds=0.08, draft_seconds=0.02, plain_decode_seconds=0.24)  # fmt: skip

    assert summary_line(ROUTED, totals) == (
        "24 tokens · 240.0 tokens/s · 2.4x plain · 50 % accepted · 3.0 tokens/step · lookup (pinned)"
    )


COMPARED = Totals(
    completion_tokens=24, steps=8, draft_tokens=32, verify_seconds=0.1, plain_decode_seconds=0.24
)  # fmt: skip


def test_an_uncertain_factor_is_a_range_and_an_unknown_one_is_left_out():
    assert "· 2.0-2.9x plain ·" in summary_line(ROUTED, replace(COMPARED, plain_decode_error=0.2))
    assert "plain" not in summary_line(ROUTED, replace(COMPARED, plain_decode_error=0.9))
    assert "plain" not in summary_line(ROUTED, replace(COMPARED, plain_decode_seconds=0.0))


def test_without_draft_tokens_nothing_is_compared():
    assert "x plain" not in summary_line(ROUTED, replace(COMPARED, draft_tokens=0))


def test_programs_get_the_factor_with_its_interval():
    assert speedup_to_json(replace(COMPARED, plain_decode_error=0.2)) == {
        "speedup": 2.4,
        "speedup_interval": [2.0, 2.88],
    }
    assert speedup_to_json(Totals()) == {"speedup": None, "speedup_interval": None}


def test_a_line_says_where_drafting_may_decide_near_ties_differently():
    drafted = Totals(
        completion_tokens=4,
        steps=2,
        draft_tokens=4,
        accepted_by_drafter={"lookup": 2},
        verify_seconds=1.0,
        is_exact=False,
    )

    assert "2.0 tokens/step · near ties may differ · lookup (pinned)" in summary_line(ROUTED, drafted)
    assert "near ties" not in summary_line(ROUTED, replace(drafted, draft_tokens=0))
    assert "near ties" not in summary_line(ROUTED, replace(drafted, is_exact=True))


def test_unknown_values_are_left_out():
    line = summary_line(Routed("plain", 0, "pinned", seed=1), Totals(completion_tokens=1, steps=1, verify_seconds=0.5))

    assert line == "1 token · 2.0 tokens/s · no draft tokens · 1.0 tokens/step · plain (pinned)"


def test_a_copying_drafter_may_find_nothing_to_copy():
    line = summary_line(ROUTED, Totals(completion_tokens=8, steps=8, verify_seconds=0.5))

    assert line == "8 tokens · 16.0 tokens/s · lookup found nothing to copy · 1.0 tokens/step · lookup (pinned)"


def test_a_turn_without_tokens_has_a_line_too():
    assert summary_line(ROUTED, Totals()).startswith("0 tokens · 0.0 tokens/s · no draft tokens")
