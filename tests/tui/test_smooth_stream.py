"""Buffered text is shown in order, completely, and never late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specchat.tui.smooth_stream import (
    CATCH_UP_CHARACTERS,
    CATCH_UP_SECONDS,
    QUIET_CHARACTERS,
    QUIET_SECONDS,
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
    stream.add("x" * 60, 0.0)

    assert 20 == len(stream.take_chunk(0.01))
    assert 13 == len(stream.take_chunk(0.07))


def test_what_piles_up_is_shown_at_once():
    stream = SmoothStream()
    stream.add("x" * CATCH_UP_CHARACTERS, 0.0)

    assert CATCH_UP_CHARACTERS == len(stream.take_chunk(0.01))


def test_what_waits_for_long_is_shown_at_once():
    stream = SmoothStream()
    stream.add("x" * 100, 0.0)

    assert 100 == len(stream.take_chunk(CATCH_UP_SECONDS))


def test_it_slows_down_again_only_after_it_was_calm_for_a_while():
    stream = SmoothStream()
    stream.add("x" * CATCH_UP_CHARACTERS, 0.0)
    stream.take_chunk(0.01)
    shown = []
    for number in range(8):
        now = 0.1 + number * TICK_SECONDS
        stream.add("x" * (QUIET_CHARACTERS - 20), now)
        shown.append(len(stream.take_chunk(now)))

    assert QUIET_CHARACTERS - 20 == shown[0] == shown[3]
    assert QUIET_CHARACTERS - 20 > shown[-1]
    assert TICK_SECONDS * 8 > QUIET_SECONDS


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
