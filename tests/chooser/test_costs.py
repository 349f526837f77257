"""What passes and drafters cost: measured, learnt from every step, kept on disk, and then doubted."""

from __future__ import annotations

from itertools import count
from time import perf_counter

import pytest

from specchat.chooser.costs import Costs, nearest_curve
from specchat.chooser.curve import Curve, PassCurve
from specchat.engine.cache_sizes import bucket_of
from specchat.engine.decode import Generation
from specchat.engine.sampling import Sampler
from tests.tiny import target


def pass_seconds(costs: Costs, text_length: int, max_rows: int) -> list[float] | None:
    """Measured or stored, confirmed or not."""
    curve = nearest_curve(costs.pass_curves, bucket_of(text_length))
    assert curve is not None
    return curve.seconds_up_to(max_rows)


def test_there_are_no_costs_without_measurements():
    costs = Costs()
    costs.learn_pass(100, 1, 2.0)

    assert costs.plain_seconds(100) == pytest.approx(2.0)
    assert costs.plain_seconds(5000) is None
    assert Costs().trusted_pass_seconds(100, 4) is None


def test_an_unmeasured_length_costs_as_much_as_its_neighbour():
    costs = Costs({1024: Curve({1: 1.0}), 8192: Curve({1: 3.0})})

    assert pass_seconds(costs, 2000, 1) == [pytest.approx(0.9), 1.0]
    assert pass_seconds(costs, 20000, 1) == [pytest.approx(2.7), 3.0]


def test_a_pass_costs_what_the_next_wider_graph_does():
    costs = Costs({1024: Curve({1: 1.0, 16: 2.0, 24: 4.0})}, widths=(1, 2, 16, 24))
    seconds = costs.trusted_pass_seconds(100, 17) or []

    assert seconds[3:17] == [2.0] * 14
    assert seconds[17] == costs.relative_pass_cost(100, 20) == 4.0


def test_what_a_pass_cost_is_learned_of_the_rows_that_it_computed():
    costs = Costs({1024: PassCurve({1: 1.0, 16: 2.0, 24: 4.0})}, widths=(1, 16, 24))
    for _ in range(40):
        costs.learn_pass(100, 17, 3.0)

    assert set(costs.pass_curves[1024].points) == {1, 16, 24}
    assert costs.trusted_pass_seconds(100, 24)[17:] == [pytest.approx(3.0, rel=0.2)] * 8


def test_a_curve_that_covers_few_rows_allows_no_graph_that_is_wider():
    costs = Costs({1024: PassCurve({1: 1.0, 16: 2.0}, is_unconfirmed=True)}, widths=(1, 2, 3, 6, 16))
    costs.learn_pass(100, 1, 1.0)

    assert len(costs.trusted_pass_seconds(100, 16) or ()) == 4


def test_calibration_measures_every_width_of_a_graph(monkeypatch):
    writing, costs, measured = Generation(target()), Costs(widths=(1, 2, 4, 8)), list[int]()
    writing.replace_tokens([5, 6, 7, 8])
    monkeypatch.setattr(writing, "measure_pass", lambda rows, _sampler: measured.append(rows) or 0.2 * rows)

    costs.calibrate(writing)

    assert sorted(set(measured)) == [1, 2, 4, 8, 16]


def test_calibration_measures_three_row_counts_once_and_leaves_the_text_unchanged(monkeypatch):
    monkeypatch.setattr("specchat.chooser.costs.thread_time", perf_counter)
    writing, costs = Generation(target()), Costs()
    writing.replace_tokens([5, 6, 7, 8])
    with writing.target.pool.acquire_slot(writing.cache, writing.rows_needed(4)):
        for _known in writing.prefill():
            pass
        costs.calibrate(writing)
        points = dict(costs.pass_curves[1024].points)
        costs.calibrate(writing)

    assert sorted(points) == [1, 4, 16]
    assert costs.pass_curves[1024].points == points
    assert (writing.tokens, writing.cache.length) == ([5, 6, 7, 8], 3)


def test_a_calibration_beside_other_load_is_a_guess_and_repeated(monkeypatch):
    writing, costs, measured = Generation(target()), Costs(), list[int]()
    writing.replace_tokens([5, 6, 7, 8])
    monkeypatch.setattr(writing, "measure_pass", lambda rows, _sampler: measured.append(rows) or 0.2 * rows)
    monkeypatch.setattr("specchat.chooser.costs.perf_counter", (0.1 * call for call in count()).__next__)
    monkeypatch.setattr("specchat.chooser.costs.thread_time", iter([0.0, 0.1, 1.0, 1.4]).__next__)

    costs.calibrate(writing)
    guessed = costs.trusted_pass_seconds(4, 16)
    costs.calibrate(writing)

    assert len(guessed or ()) == 5
    assert len(costs.trusted_pass_seconds(4, 16) or ()) == 17
    assert sorted(set(measured)) == [1, 4, 16]


def test_drafts_follow_a_change_of_the_plain_pass_and_are_measured_again():
    costs = Costs({1024: PassCurve({1: 2.0, 4: 3.0})})
    costs.learn_draft("draft", 100, 4, 1.0)

    for _ in range(2):
        costs.learn_pass(100, 1, 1.0)

    assert costs.draft_curve("draft", 100).seconds_at(4) == pytest.approx(0.5, rel=0.1)
    assert costs.draft_curve("draft", 100).is_unconfirmed


def test_the_rows_of_a_measured_pass_are_the_latest_tokens_of_the_text(monkeypatch):
    writing, passes = Generation(target()), list[list[int]]()
    writing.replace_tokens([5, 6, 7, 8])
    forward = writing.target.forward
    monkeypatch.setattr(
        writing.target, "forward", lambda tree, cache: passes.append(tree.tokens) or forward(tree, cache)
    )
    with writing.target.pool.acquire_slot(writing.cache, writing.rows_needed(4)):
        list(writing.prefill())
        for row_count in (1, 3, 6):
            writing.measure_pass(row_count, Sampler())

    assert passes == [[8], [8, 6, 7], [8, 5, 6, 7, 8, 5]]
