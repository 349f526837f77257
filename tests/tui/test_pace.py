"""What waits is shown in order, completely, and never late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specchat.tui.pace import CALM_SECONDS, FEW_CHARACTERS, LONG_SECONDS, MANY_CHARACTERS, TICK_SECONDS, Pace


@given(st.lists(st.tuples(st.text(max_size=400), st.integers(0, 3))))
def test_nothing_is_lost_and_nothing_changes_places(pieces):
    pace, now, shown = Pace(), 0.0, ""
    for text, ticks in pieces:
        pace.add(text, now)
        for _ in range(ticks):
            now += TICK_SECONDS
            shown += pace.take(now)

    assert "".join(text for text, _ in pieces) == shown + pace.rest()


def test_a_burst_is_spread_over_some_ticks():
    pace = Pace()
    pace.add("x" * 60, 0.0)

    assert 20 == len(pace.take(0.01))
    assert 13 == len(pace.take(0.07))


def test_what_piles_up_is_shown_at_once():
    pace = Pace()
    pace.add("x" * MANY_CHARACTERS, 0.0)

    assert MANY_CHARACTERS == len(pace.take(0.01))


def test_what_waits_for_long_is_shown_at_once():
    pace = Pace()
    pace.add("x" * 100, 0.0)

    assert 100 == len(pace.take(LONG_SECONDS))


def test_it_slows_down_again_only_after_it_was_calm_for_a_while():
    pace = Pace()
    pace.add("x" * MANY_CHARACTERS, 0.0)
    pace.take(0.01)
    shown = []
    for number in range(8):
        now = 0.1 + number * TICK_SECONDS
        pace.add("x" * (FEW_CHARACTERS - 20), now)
        shown.append(len(pace.take(now)))

    assert FEW_CHARACTERS - 20 == shown[0] == shown[3]
    assert FEW_CHARACTERS - 20 > shown[-1]
    assert TICK_SECONDS * 8 > CALM_SECONDS
