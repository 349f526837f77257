"""The speed relative to plain decoding is one number in the bar, footers, `/why` and stats.

The tests of specchat-serve hold it for programs, and for metrics.
"""

from __future__ import annotations

from specchat.chat.events import Finished, Routed, StepDone, Totals
from specchat.chat.turn_summary import explanation, summary_line
from specchat.host.answer_sums import AnswerTotals
from specchat.tui.live_stats import LiveStats
from specchat.tui.status_bar import status_line
from specchat.tui.turn_widget import answer_footer

ROUTED = Routed("auto", 16, "a reason", 7)
KNOWN = {"completion_tokens": 30, "steps": 10, "draft_tokens": 80, "verify_seconds": 1.0, "plain_decode_seconds": 2.4}
TOTALS = {
    "2.4": Totals(**KNOWN, plain_decode_error=0.05),
    "1.8-3.1": Totals(**KNOWN, plain_decode_error=0.3),
    "": Totals(**KNOWN, plain_decode_error=0.9),  # known too badly
    "nothing drafted": Totals(**{**KNOWN, "draft_tokens": 0}),
    "nothing compared": Totals(**{**KNOWN, "plain_decode_seconds": 0.0}),
}


def bar(totals: Totals) -> str:
    live_stats = LiveStats()
    live_stats.start_turn(0.0)
    for event in (ROUTED, StepDone((), (), (), 0.0, 0.1), Finished("stop", totals)):
        live_stats.on_event(event, 0.1)
    return status_line(live_stats.snapshot(9.0), 160)


def stats(totals: Totals) -> AnswerTotals:
    sums = AnswerTotals("all")
    sums.add(totals)
    return sums


def texts(totals: Totals) -> dict[str, str]:
    """The places that show it in words. Lines after an answer of `ask`, the line mode and the demo are one function."""
    return {
        "bar": bar(totals), "footer": answer_footer("stop", totals), "line": summary_line(ROUTED, totals),
        "/why": explanation(ROUTED, totals),
    }  # fmt: skip


def test_every_place_shows_the_same():
    for shown, totals in TOTALS.items():
        is_known = shown[:1].isdigit()
        for place, text in texts(totals).items():
            number = "2.4" if place == "/why" else shown
            assert ("×" in text or "x plain" in text) == is_known, (place, shown)
            assert not is_known or f"×{number}" in text or f"{number}x plain" in text, (place, shown)
        assert (shown if is_known else "") == stats(totals).cells()[5]
