"""The speed relative to plain decoding is one number in the bar, footers and `/why`, and so is the acceptance.

The tests of specchat-serve hold both for programs, and for metrics; those of specchat-bench for `specchat stats`.
"""

from __future__ import annotations

from specchat.acceptance_counts import Acceptance
from specchat.chat.answer_account import describe_drafters
from specchat.chat.events import TARGET, CommittedToken, Finished, Routed, StepDone, Totals
from specchat.chat.turn_summary import explanation, speculation_to_json, summary_line
from specchat.host.protocol import event_to_json, totals_from_json
from specchat.tui.live_stats import LiveStats
from specchat.tui.status_bar import status_line

ROUTED = Routed("auto", 16, "a reason", 7)
KNOWN = {"completion_tokens": 30, "steps": 10, "draft_tokens": 80, "verify_seconds": 1.0, "plain_decode_seconds": 2.4}
TOTALS = {
    "2.4": Totals(**KNOWN, plain_decode_error=0.05),
    "1.8-3.1": Totals(**KNOWN, plain_decode_error=0.3),
    "": Totals(**KNOWN, plain_decode_error=0.9),  # known too badly
    "nothing drafted": Totals(**{**KNOWN, "draft_tokens": 0}),
    "nothing compared": Totals(**{**KNOWN, "plain_decode_seconds": 0.0}),
}


def siblings(accepted: int) -> StepDone:
    """Two branches of three draft tokens: of 6 nodes, at most 3 can be accepted."""
    branch = (11, 12, 13)
    kept = (CommittedToken(token, b"x", "eagle3") for token in branch[:accepted])
    tokens = *kept, CommittedToken(99, b"y", TARGET)
    return StepDone((*branch, 21, 22, 23), (0, 1, 2, 0, 4, 5), tokens, 0.0, 0.1, (b"x",) * 6, ("eagle3",) * 6)


STEPS = siblings(3), siblings(0), siblings(1), StepDone((), (), (CommittedToken(99, b"y", TARGET),), 0.0, 0.1)
RATE = 4 / 6  # 3 of 3, 0 of 1 and 1 of 2 were accepted; 4 of 18 nodes


def of_steps() -> Totals:
    """What an answer of these steps cost."""
    return Totals(
        completion_tokens=sum(step.tokens for step in STEPS), steps=len(STEPS), draft_tokens=18,
        acceptance=sum((step.acceptance for step in STEPS), Acceptance()), accepted_by_drafter={"eagle3": 4},
        steps_by_drafter={"eagle3": 3}, verify_seconds=0.4, seconds=0.5,
        drafter_report=describe_drafters(STEPS),
    )  # fmt: skip


def bar(totals: Totals, steps: tuple[StepDone, ...] = (StepDone((), (), (), 0.0, 0.1),)) -> str:
    live_stats = LiveStats()
    live_stats.start_turn(0.0)
    for event in (ROUTED, *steps, Finished("stop", totals)):
        live_stats.on_event(event, 0.1)
    return status_line(live_stats.snapshot(9.0), 160)


def texts(totals: Totals) -> dict[str, str]:
    """The places that show it in words. Lines after an answer of `ask`, the line mode and the demo are one function."""
    return {
        "bar": bar(totals), "footer": summary_line(totals, finish_reason="stop"), "line": summary_line(totals, ROUTED),
        "/why": explanation(ROUTED, totals),
    }  # fmt: skip


def test_every_place_shows_the_same():
    for shown, totals in TOTALS.items():
        is_known = shown[:1].isdigit()
        for place, text in texts(totals).items():
            number = "2.4" if place == "/why" else shown
            assert ("x faster" in text or "x plain" in text) == is_known, (place, shown)
            assert not is_known or f"{number}x faster" in text or f"{number}x plain" in text, (place, shown)


def test_every_place_shows_the_acceptance_of_one_answer():
    totals, spaced = of_steps(), f"{RATE:.0%}".replace("%", " %")

    running = LiveStats()
    running.start_turn(0.0)
    for event in (ROUTED, *STEPS):
        running.on_event(event, 0.1)
    stored = totals_from_json(event_to_json(Finished("stop", totals))["totals"])

    assert f"accepted {spaced}" in status_line(running.snapshot(0.2), 80)
    assert f"accepted {spaced} in all" in status_line(running.snapshot(0.2), 160, is_detailed=True)
    assert f"accepted {spaced}" in bar(totals, STEPS)
    assert f"accepted {spaced}" in summary_line(totals, finish_reason="stop")
    assert f"accepted {spaced} · " in summary_line(totals, ROUTED)
    assert f"acceptance {spaced} (4 of 6)" in explanation(ROUTED, totals)
    assert round(RATE, 3) == speculation_to_json(stored)["acceptance_rate"]
