"""When a price of another day is given up."""

from __future__ import annotations

from specchat.chooser.drift import DriftDetector, confirmed_detector
from tests.each_row import each_row


def factors(doubt: DriftDetector, *measured: float) -> list[float | None]:
    """What each measurement says where 1 second was expected."""
    return [doubt.scale_factor(seconds, 1.0) for seconds in measured]


@each_row("first, second, milder", [(3.0, 2.5, 2.5), (2.5, 3.0, 2.5), (0.3, 0.4, 0.4)])
def test_two_consistent_measurements_are_drift_by_the_smaller_factor(first, second, milder):
    doubt = DriftDetector()

    assert factors(doubt, first, second) == [None, milder]
    assert not doubt.is_unconfirmed


def test_a_single_stall_is_no_drift():
    doubt = DriftDetector()

    assert factors(doubt, 5.0, 1.1, 5.0, 5.0) == [None] * 4
    assert not doubt.is_unconfirmed


def test_too_slow_and_then_too_fast_is_no_drift():
    doubt = DriftDetector()

    assert factors(doubt, 5.0, 0.5) == [None, None]
    assert doubt.is_unconfirmed


def test_the_drift_test_ends_after_a_number_of_measurements():
    doubt = DriftDetector()

    assert factors(doubt, *[5.0, 0.2] * 8) == [None] * 16
    assert not doubt.is_unconfirmed


def test_a_new_cost_is_only_lowered():
    assert factors(DriftDetector(is_new=True), 0.2, 1.0, 5.0, 5.0, 0.5) == [0.2, None, None, None, 0.5]


def test_a_confirmed_cost_is_not_scaled():
    assert factors(confirmed_detector(), 5.0, 5.0) == [None, None]
