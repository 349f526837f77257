"""What top-k, top-p and min-p keep is what a complete sort keeps, in every row and for every size of a vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from specchat.engine.truncation import KeptTokens, keep_min_p, keep_top_k, keep_top_p, probability_units
from tests.each_row import each_row

SIZES = (7, 32, 33, 1000, 5003)
SPREADS = torch.tensor([[30.0], [3.0], [1.0], [0.01]])  # one token, dozens, thousands, and nearly all tokens


def rows(size: int) -> Tensor:
    return torch.randn(4, size, generator=torch.Generator().manual_seed(size)) * SPREADS


def kept_columns(kept: KeptTokens, row: int) -> list[int]:
    return kept.columns[row][kept.logits[row].isfinite()].tolist()


@each_row("size", SIZES)
@each_row("count", [1, 5, 40])
def test_top_k_keeps_the_highest_in_order(size, count):
    logits = rows(size)

    kept = keep_top_k(logits, count)

    expected = logits.topk(min(count, size))
    assert torch.equal(kept.logits, expected.values)
    assert torch.equal(kept.columns, expected.indices)


@each_row("size", SIZES)
@each_row("min_p", [0.5, 0.02, 1e-6])
def test_min_p_keeps_all_tokens_with_that_share_of_the_highest(size, min_p):
    logits = rows(size)

    kept = keep_min_p(logits, 1.0, min_p)

    probabilities = logits.softmax(-1)
    for row in range(4):
        expected = (probabilities[row] >= min_p * probabilities[row].amax()).nonzero()[:, 0].tolist()
        assert sorted(kept_columns(kept, row)) == expected


@each_row("size", SIZES)
@each_row("top_p", [0.2, 0.7, 0.95, 0.9999])
@each_row("count", [1, 8])
def test_top_p_keeps_the_fewest_tokens_that_are_probable_enough(size, top_p, count):
    kept = keep_top_p(rows(size), 1.0, top_p, count)

    assert kept.columns.shape[-1] >= min(count, size)
    for row in range(4):
        ranked, order = rows(size)[row].double().softmax(-1).sort(descending=True)
        expected = order[ranked.cumsum(-1) - ranked < top_p].tolist()
        found = kept_columns(kept, row)
        assert len(set(expected) ^ set(found)) <= 1 + len(expected) // 500  # sums are rounded differently
        assert rows(size)[row][found].diff().amax() <= 1e-5 if len(found) > 1 else True


def test_equal_tokens_are_kept_by_their_column_whatever_the_other_rows_are():
    tied = torch.zeros(1, 400)
    tied[0, [37, 290]] = 20.0
    flat = torch.zeros(1, 400)

    alone, among_others = keep_top_p(tied, 1.0, 0.4), keep_top_p(torch.cat([flat, tied]), 1.0, 0.4)

    assert kept_columns(alone, 0) == kept_columns(among_others, 1) == [37]


def test_units_of_probability_are_whole_numbers_that_no_device_changes():
    """Written down, because other devices and the kernels of a CPU must have these very numbers."""
    logits = torch.tensor([[3.0, 3.0, 2.0, 2.25, -1.5, -18.4, -18.5, float("-inf")]])

    assert probability_units(logits, 1.0).tolist() == [
        [2147483648, 2147483648, 790015096, 1014399480, 23856392, 1, 0, 0]
    ]


@each_row("temperature", [0.2, 1.0, 1.5])
def test_units_of_probability_are_those_of_a_softmax(temperature):
    logits = rows(1000)

    units = probability_units(logits, temperature).double()

    expected = (logits.double() / temperature).softmax(-1)
    assert torch.allclose(units / units.sum(-1, keepdim=True), expected, rtol=1e-4, atol=1e-7)


def test_a_text_keeps_all_tokens_that_have_exactly_the_probability():
    """A tenth of the probability each: nine of them have 0.9 together, and no rounding adds a tenth one."""
    assert kept_columns(keep_top_p(torch.zeros(1, 10), 1.0, 0.9), 0) == list(range(9))
