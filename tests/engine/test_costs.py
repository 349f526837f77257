"""Seconds by rows: between what was measured, learnt from every step, kept on disk."""

from __future__ import annotations

import pytest

from specchat.engine.costs import Costs, Curve, load_costs, proportional
from specchat.engine.decode import Writing
from tests.tiny import target

IDENTITY = {"target": "tiny", "device": "here"}


def test_what_was_not_measured_lies_between_its_neighbours_and_goes_on_as_they_do():
    seconds = Curve({1: 1.0, 4: 1.6, 16: 4.0}).up_to(32)

    assert seconds is not None
    assert seconds[2] == pytest.approx(1.2)
    assert seconds[10] == pytest.approx(2.8)
    assert seconds[32] == pytest.approx(4.0 + 16 * 0.2)


def test_more_rows_never_cost_less():
    seconds = Curve({1: 1.0, 4: 0.5, 16: 2.0}).up_to(20)

    assert seconds is not None
    assert seconds == sorted(seconds)


def test_nothing_is_known_of_what_was_never_seen():
    costs = Costs()
    costs.learn_pass(100, 1, 2.0)

    assert costs.at(100) == pytest.approx(2.0)
    assert costs.at(5000) is None
    assert Costs().rows(100, 4) is None


def test_a_length_that_was_never_seen_costs_as_much_as_its_neighbour():
    costs = Costs({1024: Curve({1: 1.0}), 8192: Curve({1: 3.0})})

    assert costs.rows(2000, 1) == [pytest.approx(0.9), 1.0]
    assert costs.rows(20000, 1) == [pytest.approx(2.7), 3.0]


def test_a_stall_is_no_news():
    curve = Curve({1: 1.0})

    curve.learn(1, 100.0)

    assert curve.at(1) == pytest.approx(1.05)


def test_many_slow_steps_are():
    curve = Curve({1: 1.0, 16: 2.0})
    for _ in range(60):
        curve.learn(1, 2.0)

    assert curve.at(1) == pytest.approx(2.0, rel=0.1)


def test_a_machine_that_slows_down_slows_every_width():
    curve = Curve({1: 1.0, 4: 1.0, 16: 2.0})

    curve.learn(4, 1.2)

    assert curve.points[4] == pytest.approx(1.04)
    assert curve.points[1] == pytest.approx(1.02)


def test_the_first_time_may_be_slow():
    curve = proportional()
    curve.learn(1, 8.0)

    curve.learn(1, 1.0)

    assert curve.at(2) == pytest.approx(2.0)


def test_calibration_measures_three_widths_once_and_leaves_the_text_alone():
    writing, costs = Writing(target()), Costs()
    writing.revise([5, 6, 7, 8])
    with writing.target.pool.seated(writing.cache, writing.rows_for(4)):
        for _known in writing.read():
            pass
        costs.calibrate(writing)
        points = dict(costs.passes[1024].points)
        costs.calibrate(writing)

    assert sorted(points) == [1, 4, 16]
    assert costs.passes[1024].points == points
    assert (writing.tokens, writing.cache.length) == ([5, 6, 7, 8], 3)


def test_a_second_start_knows_what_the_first_has_measured(tmp_path):
    costs = load_costs(IDENTITY, tmp_path)
    costs.learn_pass(100, 1, 0.5)
    costs.learn_draft("draft", 100, 4, 0.25)
    costs.save()

    again = load_costs(IDENTITY, tmp_path)

    assert again.at(100) == 0.5
    assert again.drafts["draft"][1024].at(8) == pytest.approx(0.5)
    assert not load_costs({**IDENTITY, "device": "there"}, tmp_path).passes


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"passes": {"1024": {"1": -1}}, "drafts": {}}', '{"passes": {"a": {}}, "drafts": {}}']
)
def test_a_broken_file_is_ignored(tmp_path, content):
    costs = load_costs(IDENTITY, tmp_path)
    costs.learn_pass(100, 1, 0.5)
    costs.save()
    assert costs.path is not None
    costs.path.write_text(content)

    assert not load_costs(IDENTITY, tmp_path).passes


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "costs").write_text("a file, no folder")
    costs = load_costs(IDENTITY, tmp_path)
    costs.learn_pass(100, 1, 0.5)

    costs.save()

    assert costs.at(100) == 0.5
