"""The progress of a long command, on a clock that the test moves."""

from __future__ import annotations

from specchat_bench import work_progress
from specchat_bench.work_progress import WorkProgress, duration_text
from tests.each_row import each_row


def test_a_line_comes_now_and_then_with_the_time_that_is_left(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(work_progress.time, "monotonic", lambda: now[0])
    progress = WorkProgress(started_at=0.0)

    for second in range(0, 41, 4):
        now[0] = float(second)
        progress.show("prompt 2 of 6", second, 100)

    assert capsys.readouterr().err.splitlines() == [
        "specchat: prompt 2 of 6: 8 %, about 92 s left",
        "specchat: prompt 2 of 6: 24 %, about 76 s left",
        "specchat: prompt 2 of 6: 40 %, about 60 s left",
    ]


@each_row("seconds, text", [(0.4, "0 s"), (99.0, "99 s"), (150.0, "2 min")])
def test_a_duration_is_short(seconds, text):
    assert duration_text(seconds) == text
