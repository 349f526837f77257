"""Text is drawn often, but not by more than a share of a core."""

from __future__ import annotations


def new_throttle():
    from specchat.tui.conversation_presenter import DrawThrottle

    return DrawThrottle()


def test_fast_drawing_is_not_throttled():
    throttle = new_throttle()

    assert all(throttle.may_draw(tick / 16, 0.005 * tick) for tick in range(32))


def test_slow_drawing_is_throttled_to_a_tenth_of_a_core():
    throttle, cpu_seconds, drawn = new_throttle(), 0.0, 0
    for tick in range(160):
        if throttle.may_draw(tick / 16, cpu_seconds):
            cpu_seconds, drawn = cpu_seconds + 0.015, drawn + 1

    assert 50 <= drawn <= 70  # of 160; every time would have been 2.4 s of 10
    assert cpu_seconds <= 1.05


def test_very_slow_drawing_is_never_delayed_for_long():
    throttle = new_throttle()

    assert [True, False, False, False, True] == [throttle.may_draw(tick / 16, 1.0 * tick) for tick in range(5)]
