"""The status line as strings: the same numbers at three widths and in ASCII, and every state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from specchat.chat.events import Committed, Failed, Finished, Loading, Prefill, Routed, StepDone, Text, Totals
from specchat.tui.glyphs import ASCII, UNICODE
from specchat.tui.live_stats import WINDOW_STEPS, Gauge, Memory, Phase, Progress, Readings
from specchat.tui.status_bar import GIGABYTE, bar, spark

VRAM = Memory("VRAM", int(17.2 * GIGABYTE), 24 * GIGABYTE)
WRITING = Readings(
    Phase.WRITING, variant="auto", by="ngram", guesses=8, accepted=0.82, accepted_session=0.74, per_pass=6.5,
    speed=142.3, times_plain=2.7, first_seconds=0.2, context=3123, window=32768, memory=VRAM,
    committed=(1, 3, 7, 8, 6, 7, 7, 8),
)  # fmt: skip
READING = Readings(
    Phase.PREFILL, Progress("prompt", 2100, 5400, 1.1, 1840), context=5400, window=32768, memory=VRAM
)  # fmt: skip
LOADING = Readings(Phase.LOADING, Progress("target", 45, 100, 12.4))
PAUSED = replace(WRITING, is_paused=True, times_plain=0.9, speed=51.0)
WIDE = "auto▸ngram K8 │ acc 82% (ses 74%) │ τ 6.5 │ 142 t/s ×2.7 │ ttft 0.2s │ ctx 3.1k/32k 10% │ VRAM 17.2/24.0G"
STARTING = Readings(Phase.STARTING, Progress("starting the engine", seconds=3.2))


@pytest.mark.parametrize(
    ("readings", "columns", "glyphs", "line"),
    [
        (WRITING, 120, UNICODE, f"{WIDE} │ ▂▄▇█▆▇▇█"),
        (WRITING, 80, UNICODE, "auto▸ngram K8 │acc 82/74%│τ 6.5│142 t/s ×2.7│ctx 3.1k/32k│VRAM 17/24G"),
        (WRITING, 79, UNICODE, "ngram8 82% τ6.5 142t/s ×2.7 ctx10% vr72%"),
        (WRITING, 100, ASCII, "auto>ngram K=8 acc=82% ses=74% len=6.5 142t/s x2.7 ctx=10% vram=72%"),
        (READING, 100, UNICODE, "prefill 2.1k/5.4k tok 39% │ 1840 t/s │ ctx 5.4k/32k │ VRAM 17/24G │ Esc stop"),
        (READING, 40, UNICODE, "prefill 39% Esc stop"),
        (READING, 100, ASCII, "prefill 2.1k/5.4k tok 39% | 1840 t/s | ctx 5.4k/32k | VRAM 17/24G | Esc stop"),
        (PAUSED, 100, UNICODE, "plain (spec paused: 0.9× over 64 steps) │ 51 t/s │ ctx 3.1k/32k │ VRAM 17/24G"),
        (LOADING, 100, UNICODE, "loading target 45% │ 12s"),
        (STARTING, 100, UNICODE, "starting the engine │ 3s"),
        (Readings(window=8192), 100, UNICODE, "ready │ ctx 0/8k"),
        (replace(WRITING, variant="lookup", by=""), 10, UNICODE, "lookup8"),
    ],
)  # fmt: skip
def test_the_line_is_written_as_promised(readings, columns, glyphs, line):
    assert line == bar(readings, columns, glyphs)


def test_what_is_slower_than_plain_says_so_in_a_word():
    assert "51 t/s ×0.9 slow" in bar(replace(WRITING, speed=51.0, times_plain=0.93), 100)


def test_an_estimate_is_marked():
    assert "142 t/s ~×2.7" in bar(replace(WRITING, is_estimate=True), 100)


def test_a_context_that_is_nearly_full_is_marked_without_colour():
    assert "ctx 30k/32k 92%!" in bar(replace(WRITING, context=30_123), 100)


def test_memory_without_a_total_has_no_share():
    line = bar(replace(WRITING, memory=Memory("RAM", 25 * 2**20)), 100)

    assert line.endswith("RAM 25M")
    assert "vr" not in bar(replace(WRITING, memory=Memory("RAM", 25 * 2**20)), 60)


@given(columns=st.integers(1, 200), readings=st.sampled_from([WRITING, READING, LOADING, PAUSED, STARTING, Readings()]))
def test_the_line_never_leaves_the_screen(columns, readings):
    for glyphs in (UNICODE, ASCII):
        assert cell_len(bar(readings, columns, glyphs)) <= columns


@given(st.sampled_from([WRITING, READING, LOADING, PAUSED, STARTING, Readings()]), st.integers(1, 200))
def test_ascii_is_ascii(readings, columns):
    assert bar(readings, columns, ASCII).isascii()


def test_a_spark_of_nothing_is_nothing():
    assert "" == spark(()) == spark((0, 0))


def step(drafted: int, accepted: int, seconds: float = 0.01, source: str = "lookup") -> StepDone:
    committed = (*(Committed(1, b"a", source) for _ in range(accepted)), Committed(2, b"b", "target"))
    return StepDone(tuple(range(drafted)), tuple(range(drafted)), committed, 0.0, seconds)


def heard(*events) -> Gauge:
    gauge = Gauge(window=8192)
    gauge.ask(0.0)
    for number, event in enumerate(events):
        gauge.hear(event, 0.1 * (number + 1))
    return gauge


AUTO = Routed("auto", 16, "repeats are copied", 7)


def test_the_numbers_are_sums_over_steps():
    readings = heard(Prefill(100, 100), AUTO, step(8, 6), step(8, 2), step(0, 0)).readings(1.0)

    assert ("auto", "lookup", 0) == (readings.variant, readings.by, readings.guesses)
    assert 0.5 == readings.accepted == readings.accepted_session
    assert 11 / 3 == readings.per_pass
    assert 11 / 0.03 == pytest.approx(readings.speed)
    assert (7, 3, 1) == readings.committed
    assert 111 == readings.context
    assert 0.3 == pytest.approx(readings.first_seconds)
    assert readings.times_plain is None


def test_speed_looks_at_two_seconds_only():
    slow, quick = [step(0, 0, seconds=5.0)], [step(0, 0, seconds=0.5)] * 4

    assert 2.0 == heard(AUTO, *slow, *quick).readings(9.0).speed


def test_the_end_of_a_turn_freezes_its_mean_and_knows_plain():
    totals = Totals(prompt_tokens=100, tokens=30, steps=10, verify_seconds=1.0, plain_seconds=0.1)
    gauge = heard(AUTO, step(8, 2), Finished("stop", totals))

    assert (30.0, 3.0, False) == (
        gauge.readings(9.0).speed, gauge.readings(9.0).times_plain, gauge.readings(9.0).is_estimate,
    )  # fmt: skip
    gauge.ask(10.0)
    gauge.hear(AUTO, 10.1)
    gauge.hear(step(8, 1, seconds=0.1), 10.2)
    assert (2.0, True) == (pytest.approx(gauge.readings(10.3).times_plain), gauge.readings(10.3).is_estimate)


def test_the_session_is_summed_over_its_turns():
    gauge = Gauge()
    gauge.remember({"drafted": 10, "accepted": {"lookup": 5}, "prompt_tokens": 90, "tokens": 10})
    gauge.hear(step(10, 10), 0.1)

    assert 0.75 == gauge.readings(0.2).accepted_session
    assert 1.0 == gauge.readings(0.2).accepted


def test_a_pinned_variant_stands_alone_and_auto_says_who():
    pinned = heard(Routed("draft", 4, "pinned", 1)).readings(1)

    assert ("draft", "") == (pinned.variant, pinned.by)
    assert "lookup" == heard(Routed("lookup", 4, "auto: no draft model", 1)).readings(1).by
    assert 16 == heard(AUTO).readings(1).guesses


def test_sixty_four_steps_without_a_guess_are_a_pause_unless_they_were_wanted():
    steps = [step(0, 0)] * WINDOW_STEPS

    assert heard(AUTO, *steps).readings(9).is_paused
    assert not heard(AUTO, *steps[1:]).readings(9).is_paused
    assert not heard(Routed("plain", 0, "pinned", 1), *steps).readings(9).is_paused


def test_loading_and_reading_are_told_apart_and_timed():
    gauge = heard(Loading("target", 1, 4))
    assert (Phase.LOADING, "target", 1, 4) == (gauge.phase, *_progress(gauge)[:3])
    assert 1.9 == pytest.approx(gauge.readings(2.0).progress.seconds)

    gauge.hear(Prefill(128, 1000, 100), 3.0)
    gauge.hear(Prefill(612, 1000, 100), 4.0)
    assert (Phase.PREFILL, 512.0) == (gauge.phase, gauge.readings(4.0).progress.per_second)

    gauge.hear(Failed("gone"), 5.0)
    assert Phase.IDLE is gauge.phase


def _progress(gauge: Gauge):
    return gauge.progress.what, gauge.progress.done, gauge.progress.total


def test_text_alone_changes_no_number():
    gauge = heard(AUTO)
    before = gauge.readings(1)
    gauge.hear(Text("x"), 1)

    assert before == gauge.readings(1)


def test_the_spark_takes_the_room_that_is_left():
    line = bar(replace(WRITING, committed=(1, 8) * 12), 120)

    assert 120 == cell_len(line)
    assert line.endswith(" │ ▂█▂█▂█▂█▂█▂█▂█"[-12:])
