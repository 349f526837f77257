"""What a pass costs, measured: what is divided by what, and what is left as it was found."""

import pytest

from specchat.engine.tree import DraftTree
from specchat.profile.keys import Profile
from specchat_bench.chain_passes import MedianRange, random_context
from tests.counting import counting
from tools.pass_costs import (
    ROW_COUNTS,
    STEPS_PER_ROUND,
    PassCosts,
    TimedModel,
    as_table,
    load_models,
    measure_pass_costs,
    pass_seconds,
)
from tools.transformers_passes import COMPARED_ROWS, compare_with_transformers, comparison_table


@pytest.fixture
def profile(tmp_path):
    return profile_of(counting(tmp_path))


def profile_of(folder):
    return Profile().override({"models.target": str(folder), "limits.context": 512, "limits.answer": 8})


def row(**fields):
    one = MedianRange.from_values([0.010, 0.020, 0.012])
    known = {
        "threads": 1,
        "relative_cost_by_rows": {1: MedianRange.from_values([1]), 16: MedianRange.from_values([1.5])},
        "bytes_per_second": 2e10,
        "device_syncs": None,
    }
    return PassCosts(
        "bfloat16",
        "float",
        128,
        **(
            {
                "single_row_seconds": one,
                "bandwidth_utilization": MedianRange.from_values([0.5]),
                "host_seconds": MedianRange.from_values([2e-4]),
            }
            | known
            | fields
        ),
    )


@pytest.fixture
def subject(profile):
    [subject] = load_models(profile, ["float32"], 64, 0)
    return subject


@pytest.mark.full
def test_every_width_is_measured_in_every_dtype(profile):
    said = []

    rows = [
        measure_pass_costs(each, 64, 2, said.append) for each in load_models(profile, ["float32", "bfloat16"], 64, 0)
    ]

    assert [("float32", 64), ("bfloat16", 64)] == [(each.dtype, each.context) for each in rows]
    assert all(
        tuple(each.relative_cost_by_rows) == ROW_COUNTS and each.relative_cost_by_rows[1].median == 1 for each in rows
    )
    assert all(
        each.single_row_seconds.lowest > 0 and each.bandwidth_utilization.lowest > 0 and each.device_syncs is None
        for each in rows
    )
    assert said == [f"{dtype}, 64 tokens: round {number}" for dtype in ("float32", "bfloat16") for number in (1, 2)]


def test_a_context_fits_with_what_is_written_behind_it(subject):
    longest = subject.target.context_window - max(ROW_COUNTS) - STEPS_PER_ROUND

    assert subject.fits(longest - 1)
    assert not subject.fits(longest)


def test_a_pass_reads_all_weights_but_the_table_of_embeddings(subject):
    assert subject.target.bytes - 1000 * 64 * 4 == subject.weight_bytes_per_pass


def test_a_pass_over_one_row_reads_only_the_experts_that_the_row_selects(tmp_path):
    [loaded] = load_models(profile_of(counting(tmp_path, "qwen3_moe")), ["float32"], 64, 0)
    table, unread = 1000 * 64 * 4, 2 * (16 - 2) * 3 * 64 * 32 * 4

    assert loaded.weight_bytes_per_pass == pytest.approx(loaded.target.bytes - table - unread, rel=0.01)


def test_the_text_stands_as_before_after_steps_were_measured(subject):
    with random_context(TimedModel(subject.target), 64) as writing:
        assert (65, 64) == (len(writing.tokens), writing.cache.length)
    measure_pass_costs(subject, 64, 1, lambda _said: None)

    assert not subject.target.pool.bytes


def test_a_clocked_model_tells_each_pass_once(subject):
    watched = TimedModel(subject.target)
    with random_context(watched, 16) as writing:
        watched.forward(DraftTree(1), writing.cache)

        assert watched.take_pass_seconds() > 0
        assert watched.take_pass_seconds() == 0


def test_the_rows_of_a_measured_pass_differ(subject, monkeypatch):
    trees = list[DraftTree]()
    monkeypatch.setattr(subject.target, "forward", lambda tree, _cache: trees.append(tree))
    with random_context(subject.target, 16) as writing:
        pass_seconds(subject.target, writing.cache, 8)

    assert len(set(trees[0].tokens)) == 8


def test_the_same_weights_take_turns_with_transformers(profile):
    [loaded] = load_models(profile, ["float32"], 16, 0)
    said = list[str]()

    compared = compare_with_transformers(loaded, profile.models.target, 16, 2, said.append)

    assert len(said) == 3
    assert all(compared.ratios[rows].lowest > 0 for rows in COMPARED_ROWS)
    assert comparison_table([compared]).count("| float32 | 16 |") == len(COMPARED_ROWS)


def test_the_table_tells_milliseconds_ratios_and_shares():
    expected = "| bfloat16 | float | 128 | 12.0 (10.0-20.0) | 1.50 | 50% of 20 GB/s | 0.20 (0.20-0.20) | - |"

    assert expected in as_table([row()])
    assert as_table([row(device_syncs=2)]).endswith("| 2 |")
