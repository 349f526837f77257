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

    assert "server · 40 tokens/s" == line
    detailed = status_line(stats_after(COUNTED).snapshot(2.0), 140, is_detailed=True)
    assert "server · 2.0 tokens/step · context 27/100 · first token 0.4 s" == detailed


def test_without_metrics_the_status_bar_shows_no_acceptance():
    line = status_line(stats_after(UNCOUNTED).snapshot(2.0), 140)

    assert "server · 40 tokens/s" == line


def test_without_metrics_the_summary_shows_no_acceptance():
    assert summary_line(UNCOUNTED, ROUTED) == f"20 tokens · 40 tokens/s · server ({ROUTED.reason})"
    assert summary_line(COUNTED, ROUTED) == "20 tokens · 40 tokens/s · 10 of 20 draft tokens accepted"
