"""The status bar and the summary line for the answer of a server."""

from __future__ import annotations

from specchat.chat.events import Finished, Routed, TextDelta, Totals
from specchat.chat.turn_summary import summary_line
from specchat.tui.live_stats import LiveStats, Phase
from specchat.tui.status_bar import status_line

ROUTED = Routed("server", 0, "vllm at http://127.0.0.1:8000/v1 chooses the drafter", 7)
COUNTED = Totals(
    prompt_tokens=7,
    completion_tokens=20,
    steps=10,
    draft_tokens=20,
    accepted_by_drafter={"server": 10},
    seconds=0.5,
    ttft_seconds=0.4,
)
UNCOUNTED = Totals(prompt_tokens=7, completion_tokens=20, seconds=0.5)


def stats_after(totals: Totals) -> LiveStats:
    stats = LiveStats(context_window=100)
    stats.start_turn(1.0)
    stats.on_event(ROUTED, 1.1)
    stats.on_event(TextDelta("so"), 1.5)
    assert stats.phase is Phase.DECODE
    stats.on_event(Finished("stop", totals), 2.0)
    return stats


def test_the_status_bar_shows_the_numbers_of_the_server():
    line = status_line(stats_after(COUNTED).snapshot(2.0), 140)

    assert line.startswith("server ") and "40 t/s" in line and "27" in line
    assert "2.0" in line and "ttft 0.4s" in line


def test_without_metrics_the_status_bar_shows_no_acceptance():
    line = status_line(stats_after(UNCOUNTED).snapshot(2.0), 140)

    assert "acc" not in line and "40 t/s" in line and "K0" not in line


def test_without_metrics_the_summary_shows_no_acceptance():
    assert summary_line(ROUTED, UNCOUNTED) == f"20 tokens · 40.0 tokens/s · server ({ROUTED.reason})"
    assert "10 of 20 draft tokens accepted · 2.0 tokens/step" in summary_line(ROUTED, COUNTED)
