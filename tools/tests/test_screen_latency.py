"""The bench of the screen: that it measures, never what it measures."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event

import pytest

from specchat.chat.events import Finished, TextDelta
from specchat.chat.request import Request
from specchat.errors import InputError
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tests.processes import modules_after
from tools import screen_latency
from tools.metronome_host import FixedRateEngine
from tools.pty_program import PtyProgram
from tools.screen_latency import FirstFrames, StreamResult


def test_the_bench_of_the_screen_loads_no_torch():
    assert "torch" not in modules_after("import tools.screen_latency, tools.metronome_host")


def test_the_metronome_says_every_token_in_order_and_when_it_began():
    *events, last = FixedRateEngine().create_session((), "").ask(Request("2000 0.01"), Event())
    words = "".join(event.text for event in events if isinstance(event, TextDelta))

    assert screen_latency.START_TIME.match(words.encode())
    assert list(range(20)) == [int(found) for found in screen_latency.TOKEN.findall(words.encode())]
    assert isinstance(last, Finished)
    assert (20, 5) == (last.totals.completion_tokens, last.totals.steps)


def test_a_row_has_ratios_of_what_was_measured_side_by_side():
    assert "| 400 ms | 200 ms | 2.00 |" == FirstFrames((0.4, 0.2, 0.9), (0.2, 0.1, 0.9)).row
    assert (
        "| 300 tokens/s for 60 s | 299.5 tokens/s | 250 ms | 12.5% |" == StreamResult(300, 60, 299.5, 0.25, 0.125).row
    )


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_tokens_are_seen_on_a_real_terminal(runtime, monkeypatch):  # noqa: F811 (the fixture)
    monkeypatch.setenv("TERM", "xterm-256color")

    seen = screen_latency.measure_stream(tokens_per_second=50, seconds=0.4)

    assert seen.shown_tokens_per_second > 0
    assert seen.max_lag_seconds > 0


def test_a_program_that_ends_too_soon_is_told():
    with (
        pytest.raises(InputError, match="nothing more"),
        PtyProgram([sys.executable, "-c", "print('nothing more')"]) as one,
    ):
        one.wait_for(b"never", 20)
