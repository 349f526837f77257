"""Buffered text is shown in order, completely, and never late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specchat.tui.smooth_stream import (
    MAX_WAITING_CHARACTERS,
    RELEASE_SECONDS,
    TICK_SECONDS,
    DrawThrottle,
    SmoothStream,
)


@given(st.lists(st.tuples(st.text(max_size=400), st.integers(0, 3))))
def test_nothing_is_lost_and_nothing_changes_places(pieces):
    stream, now, shown = SmoothStream(), 0.0, ""
    for text, ticks in pieces:
        stream.add(text, now)
        for _ in range(ticks):
            now += TICK_SECONDS
            shown += stream.take_chunk(now)

    assert "".join(text for text, _ in pieces) == shown + stream.flush()


def test_a_burst_is_spread_over_some_ticks():
    stream = SmoothStream()
    stream.add("x" * 90, 0.0)

    assert [30, 20, 13] == [len(stream.take_chunk(tick * TICK_SECONDS)) for tick in range(3)]


def test_what_piles_up_or_waits_for_long_is_shown_at_once():
    stream = SmoothStream()
    stream.add("x" * MAX_WAITING_CHARACTERS, 0.0)

    assert MAX_WAITING_CHARACTERS == len(stream.take_chunk(0.01))
    stream.add("x" * 100, 0.02)
    assert 100 == len(stream.take_chunk(0.02 + RELEASE_SECONDS))


def test_fast_drawing_is_not_throttled():
    throttle = DrawThrottle()

    assert all(throttle.may_draw(tick / 16, 0.005 * tick) for tick in range(32))


def test_slow_drawing_is_throttled_to_a_tenth_of_a_core():
    throttle, cpu_seconds, drawn = DrawThrottle(), 0.0, 0
    for tick in range(160):
        if throttle.may_draw(tick / 16, cpu_seconds):
            cpu_seconds, drawn = cpu_seconds + 0.015, drawn + 1

    assert 50 <= drawn <= 70  # of 160; every time would have been 2.4 s of 10
    assert cpu_seconds <= 1.05


def test_very_slow_drawing_is_never_delayed_for_long():
    throttle = DrawThrottle()

    assert [True, False, False, False, True] == [throttle.may_draw(tick / 16, 1.0 * tick) for tick in range(5)]
