"""What a status bar and a summary show of an answer that a server wrote."""

from __future__ import annotations

from specchat.chat.events import Finished, Routed, TextDelta, Totals
from specchat.chat.turn_summary import summary_line
from specchat.tui.live_stats import LiveStats, Phase
from specchat.tui.status_text import status_line

ROUTED = Routed("server", 0, "vllm at http://127.0.0.1:8000/v1 chooses the drafter", 7)
TOLD = Totals(
    prompt_tokens=7,
    completion_tokens=20,
    steps=10,
    draft_tokens=20,
    accepted_by_drafter={"server": 10},
    verify_seconds=0.5,
)
SILENT = Totals(prompt_tokens=7, completion_tokens=20, verify_seconds=0.5)


def heard(totals: Totals) -> LiveStats:
    gauge = LiveStats(context_window=100)
    gauge.start_turn(1.0)
    gauge.on_event(ROUTED, 1.1)
    gauge.on_event(TextDelta("so"), 1.5)
    assert gauge.phase is Phase.DECODE
    gauge.on_event(Finished("stop", totals), 2.0)
    return gauge


def test_the_bar_shows_what_the_server_told_of_its_guesses():
    line = status_line(heard(TOLD).snapshot(2.0), 140)

    assert line.startswith("server ") and "acc 50% (ses 50%)" in line and "40 t/s" in line and "27" in line
    assert "2.0" in line and "ttft 0.5s" in line


def test_the_bar_claims_nothing_where_the_server_told_nothing():
    line = status_line(heard(SILENT).snapshot(2.0), 140)

    assert "acc" not in line and "40 t/s" in line and "K0" not in line


def test_two_answers_of_a_server_add_up():
    gauge = heard(TOLD)
    gauge.start_turn(3.0)
    gauge.on_event(ROUTED, 3.1)
    gauge.on_event(Finished("stop", Totals(completion_tokens=10, steps=10, draft_tokens=20)), 4.0)

    assert gauge.snapshot(4.0).session_acceptance_rate == 0.25


def test_the_summary_of_a_server_that_tells_nothing_says_nothing_of_guesses():
    assert summary_line(ROUTED, SILENT) == f"20 tokens · 40.0 tokens/s · server ({ROUTED.reason})"
    assert "50 % accepted · 2.0 tokens/step" in summary_line(ROUTED, TOLD)
