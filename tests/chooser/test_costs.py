"""What passes and drafters cost: measured, learnt from every step, kept on disk, and then doubted."""

from __future__ import annotations

from itertools import count
from time import perf_counter

import pytest

from specchat.chooser.costs import Costs, load_costs, nearest_curve
from specchat.chooser.curve import Curve, PassCurve
from specchat.engine.cache_sizes import bucket_of
from specchat.engine.decode import Generation
from specchat.engine.sampling import Sampler
from tests.each_row import each_row
from tests.tiny import target

IDENTITY = {"target": "tiny", "device": "here"}


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
    assert costs.is_unconfirmed("draft", 100)


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


def test_a_second_start_loads_the_costs_of_the_first(tmp_path):
    costs = load_costs(IDENTITY, tmp_path)
    costs.learn_pass(100, 1, 0.5)
    costs.learn_draft("draft", 100, 4, 0.25)
    costs.save()

    again = load_costs(IDENTITY, tmp_path)

    assert again.plain_seconds(100) == 0.5
    assert again.draft_curves["draft"][1024].seconds_at(4) == 0.25
    assert not load_costs({**IDENTITY, "device": "there"}, tmp_path).pass_curves


def test_stored_costs_are_confirmed_in_steps(tmp_path):
    costs = Costs({1024: Curve({1: 1.0, 16: 2.0})}, path=load_costs(IDENTITY, tmp_path).path)
    costs.learn_draft("draft", 100, 4, 0.25)
    costs.save()

    again = load_costs(IDENTITY, tmp_path)

    assert pass_seconds(again, 100, 16) == pass_seconds(costs, 100, 16) == costs.trusted_pass_seconds(100, 16)
    assert again.trusted_pass_seconds(100, 16) == pass_seconds(again, 100, 1)
    assert again.is_unconfirmed("draft", 100)
    again.learn_pass(100, 1, 1.0)
    again.learn_draft("draft", 100, 4, 0.25)
    assert len(again.trusted_pass_seconds(100, 16) or ()) == 5
    assert not again.is_unconfirmed("draft", 100)


def test_an_unmeasured_length_is_unconfirmed_if_its_neighbour_is(tmp_path):
    costs = Costs({1024: Curve({1: 1.0, 16: 2.0})}, path=load_costs(IDENTITY, tmp_path).path)
    costs.save()
    again = load_costs(IDENTITY, tmp_path)

    again.learn_pass(3000, 1, 3.0)

    assert again.trusted_pass_seconds(3000, 16) == pass_seconds(again, 3000, 1)
    again.learn_pass(3000, 1, 3.0)
    assert again.plain_seconds(3000) == pytest.approx(3.0)
    assert again.plain_seconds(100) == 1.0


def test_calibrated_costs_are_confirmed(tmp_path):
    costs = Costs({1024: Curve({1: 1.0})}, path=load_costs(IDENTITY, tmp_path).path)
    costs.save()
    again = load_costs(IDENTITY, tmp_path)

    for width in (1, 4, 16):
        again.pass_curves[1024].set_point(width, 2.0)

    assert again.trusted_pass_seconds(100, 16) == pass_seconds(again, 100, 16)


@each_row(
    "content", ["", "{", "[]", '{"passes": {"1024": {"1": -1}}, "drafts": {}}', '{"passes": {"a": {}}, "drafts": {}}']
)
def test_a_broken_file_is_ignored(tmp_path, content):
    costs = load_costs(IDENTITY, tmp_path)
    costs.learn_pass(100, 1, 0.5)
    costs.save()
    assert costs.path is not None
    costs.path.write_text(content)

    assert not load_costs(IDENTITY, tmp_path).pass_curves


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "costs").write_text("a file, no folder")
    costs = load_costs(IDENTITY, tmp_path)
    costs.learn_pass(100, 1, 0.5)

    costs.save()

    assert costs.plain_seconds(100) == 0.5
