"""Seconds by a count: between what was measured, learnt from every step, and doubted when it is from another day."""

from __future__ import annotations

import pytest

from specchat.chooser.curve import Curve, PassCurve
from tests.each_row import each_row


def test_a_curve_interpolates_and_extrapolates():
    seconds = Curve({1: 1.0, 4: 1.6, 16: 4.0}).seconds_up_to(32)

    assert seconds is not None
    assert seconds[2] == pytest.approx(1.2)
    assert seconds[10] == pytest.approx(2.8)
    assert seconds[32] == pytest.approx(4.0 + 16 * 0.2)


def test_more_rows_never_cost_less():
    seconds = Curve({1: 1.0, 4: 0.5, 16: 2.0}).seconds_up_to(20)

    assert seconds is not None
    assert seconds == sorted(seconds)


def test_a_stall_does_not_change_a_curve():
    curve = Curve({1: 1.0})

    curve.learn(1, 100.0)

    assert curve.seconds_at(1) == pytest.approx(1.05)


def test_many_slow_steps_change_a_curve():
    curve = Curve({1: 1.0, 16: 2.0})
    for _ in range(60):
        curve.learn(1, 2.0)

    assert curve.seconds_at(1) == pytest.approx(2.0, rel=0.1)


def test_a_slower_machine_slows_all_row_counts():
    curve = Curve({1: 1.0, 4: 1.0, 16: 2.0})

    curve.learn(4, 1.2)

    assert curve.points[4] == pytest.approx(1.04)
    assert curve.points[1] == pytest.approx(1.02)


def test_two_slow_drafts_in_a_row_scale_a_curve_and_one_does_not():
    curve = Curve({1: 1.0, 4: 2.5}, slope=0.5)
    curve.learn(1, 8.0)
    once = curve.seconds_at(4)

    curve.learn(1, 6.0)

    assert once == pytest.approx(2.5, rel=0.05)
    assert curve.seconds_at(4) == pytest.approx(6.0 * 2.5, rel=0.1)


def test_every_measured_count_gets_a_point_as_costs_may_be_a_staircase():
    """The graphs of a GPU: three and four rows cost the same, five as much as eight."""
    curve = Curve({1: 1.0, 4: 1.2, 8: 2.0, 16: 3.0})
    for _ in range(60):
        for count, seconds in ((3, 1.2), (4, 1.2), (5, 2.0), (8, 2.0)):
            curve.learn(count, seconds)

    assert curve.seconds_up_to(8)[3:] == pytest.approx([1.2, 1.2, 2.0, 2.0, 2.0, 2.0], rel=0.05)


def kept() -> PassCurve:
    """A steep curve of another day, whose plain pass was seen again."""
    curve = PassCurve({1: 1.0, 4: 1.6, 16: 4.0}, is_unconfirmed=True)
    curve.learn(1, 1.0)
    return curve


def calibrated(points: dict[int, float]) -> PassCurve:
    """A curve that was measured in this process."""
    curve = PassCurve()
    for count, seconds in points.items():
        curve.set_point(count, seconds)
    return curve


def test_a_stored_curve_is_trusted_only_as_far_as_it_is_confirmed():
    curve, widths = PassCurve({1: 1.0, 4: 1.6, 16: 4.0}, is_unconfirmed=True), list[int]()
    for count, seconds in ((1, 1.0), (3, 1.4), (16, 4.0)):
        widths.append(len(curve.trusted_seconds_up_to(20) or ()) - 1)
        curve.learn(count, seconds)

    assert widths == [1, 4, 20]
    assert curve.seconds_up_to(20) == pytest.approx(Curve({1: 1.0, 4: 1.6, 16: 4.0}).seconds_up_to(20))


def test_the_first_draft_tokens_are_allowed_on_a_stored_curve_that_is_too_steep():
    curve = PassCurve({1: 1.0, 4: 2.0, 16: 16.0}, is_unconfirmed=True)
    curve.learn(1, 1.0)

    assert curve.trusted_seconds_up_to(20) == pytest.approx([2 / 3, 1.0, 1.1, 1.2, 1.3])


def test_of_a_very_steep_curve_only_the_first_draft_token_is_cheap():
    """It may be right, as with experts in a slow tier; two rows show that as well."""
    curve = PassCurve({1: 1.0, 4: 4.0, 16: 16.0}, is_unconfirmed=True)
    curve.learn(1, 1.0)

    assert curve.trusted_seconds_up_to(20) == pytest.approx([0.0, 1.0, 1.1, 3.0, 4.0])
    curve.learn(2, 1.05)
    assert curve.trusted_seconds_up_to(20)[4] < 1.2


def test_wide_passes_correct_the_slope_of_a_stored_curve():
    curve = kept()

    for _ in range(2):
        curve.learn(3, 1.0)
        curve.learn(9, 1.0)

    assert curve.seconds_at(1) == 1.0
    assert curve.seconds_at(16) == pytest.approx(1.0, rel=0.1)


def test_one_pass_that_is_much_too_slow_does_not_change_the_slope():
    curve = kept()

    curve.learn(3, 9.0)

    assert curve.seconds_at(16) == 4.0
    assert len(curve.trusted_seconds_up_to(20) or ()) == 5


def test_a_slower_plain_pass_scales_the_whole_stored_curve():
    curve = PassCurve({1: 1.0, 4: 1.6, 16: 4.0}, is_unconfirmed=True)

    for _ in range(2):
        curve.learn(1, 3.0)

    assert curve.seconds_at(16) == pytest.approx(12.0)
    assert len(curve.trusted_seconds_up_to(20) or ()) == 5


@each_row("curve_type", [Curve, PassCurve])
def test_a_cheap_wide_pass_corrects_a_narrow_one_that_was_measured_beside_other_load(curve_type):
    curve = curve_type({1: 1.0, 2: 3.0, 4: 1.5, 8: 2.0}, is_unconfirmed=True)
    curve.learn(1, 1.0)

    curve.learn(4, 1.5)

    assert curve.seconds_up_to(8)[2:5] == pytest.approx([1.5, 1.5, 1.5])
    assert curve.seconds_at(8) == pytest.approx(2.0)


def test_a_dear_narrow_pass_corrects_the_wider_ones():
    curve = Curve({1: 1.0, 2: 1.9, 4: 2.0, 8: 4.0})

    for _ in range(60):
        curve.learn(2, 3.0)

    assert curve.seconds_at(4) >= curve.seconds_at(2) >= 2.8
    assert curve.seconds_at(8) >= 4.0


def test_all_costs_follow_the_plain_pass():
    curve = calibrated({1: 3.0, 4: 6.0, 16: 30.0})

    for _ in range(2):
        curve.learn(1, 1.0)

    assert curve.seconds_at(16) == pytest.approx(10.0)


def test_after_a_change_of_the_plain_pass_wide_passes_are_measured_again():
    """Beside other load, wide passes took relatively longer."""
    curve = calibrated({1: 2.0, 4: 10.0, 16: 40.0})
    before = len(curve.trusted_seconds_up_to(20))
    for _ in range(2):
        curve.learn(1, 1.0)

    after = curve.trusted_seconds_up_to(20)
    for _ in range(2):
        curve.learn(4, 1.2)

    assert before == 21
    assert after == pytest.approx([0.0, 1.0, 1.1, 11 / 3, 5.0])
    assert curve.seconds_at(16) < 3.0
    assert len(curve.trusted_seconds_up_to(20)) == 21


def test_two_wide_passes_that_do_not_fit_correct_the_whole_slope():
    curve = calibrated({1: 1.0, 4: 5.0, 16: 20.0})

    for _ in range(2):
        curve.learn(1, 1.0)
        curve.learn(4, 1.5)

    assert curve.seconds_at(16) < 5.0


def test_wide_passes_that_are_much_faster_wait_for_a_plain_one():
    """Other load has ended: all passes are faster, and rows cost as much as before."""
    curve, calm = calibrated({1: 1.5, 4: 3.0, 16: 6.0}), {1: 1.0, 4: 2.0, 16: 4.0}
    for _ in range(4):
        curve.learn(4, calm[4])
    asked = curve.trusted_seconds_up_to(20)
    for _ in range(2):
        curve.learn(1, calm[1])
    curve.learn(4, calm[4])

    assert len(asked) == 2  # for a plain pass
    assert curve.seconds_at(16) / curve.seconds_at(1) == pytest.approx(4.0, rel=0.1)


@each_row("points", [{13: 0.013}, {13: 0.013, 20: 0.08}, {2: 0.01, 3: 0.05}])
def test_a_plain_pass_takes_time_also_where_only_wide_passes_were_measured(points):
    """As when a grammar forces all tokens of an answer."""
    curve = PassCurve()
    for count, seconds in points.items():
        curve.learn(count, seconds)

    assert (curve.seconds_at(1) or 0.0) >= min(points.values()) / min(points)
