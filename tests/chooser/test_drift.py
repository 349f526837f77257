"""When a price of another day is given up."""

from __future__ import annotations

import pytest

from specchat.chooser.drift import DriftDetector, confirmed_detector


def factors(doubt: DriftDetector, *measured: float) -> list[float | None]:
    """What each measurement says where 1 second was expected."""
    return [doubt.scale_factor(seconds, 1.0) for seconds in measured]


@pytest.mark.parametrize(("first", "second", "milder"), [(3.0, 2.5, 2.5), (2.5, 3.0, 2.5), (0.3, 0.4, 0.4)])
def test_two_of_a_kind_overthrow_it_and_the_milder_is_believed(first, second, milder):
    doubt = DriftDetector()

    assert factors(doubt, first, second) == [None, milder]
    assert not doubt.is_unconfirmed


def test_a_stall_among_others_does_not():
    doubt = DriftDetector()

    assert factors(doubt, 5.0, 1.1, 5.0, 5.0) == [None] * 4
    assert not doubt.is_unconfirmed


def test_too_slow_and_then_too_quick_is_no_pair():
    doubt = DriftDetector()

    assert factors(doubt, 5.0, 0.5) == [None, None]
    assert doubt.is_unconfirmed


def test_measurements_that_never_agree_do_not_keep_it_open():
    doubt = DriftDetector()

    assert factors(doubt, *[5.0, 0.2] * 8) == [None] * 16
    assert not doubt.is_unconfirmed


def test_what_is_new_may_have_been_slow_for_being_the_first():
    assert factors(DriftDetector(is_new=True), 0.2, 1.0, 5.0, 5.0, 0.5) == [0.2, None, None, None, 0.5]


def test_what_is_settled_is_not_overthrown():
    assert factors(confirmed_detector(), 5.0, 5.0) == [None, None]
