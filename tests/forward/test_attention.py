"""Attention by two matmuls has the results of the fused kernel, also for large scores."""

import torch
from torch.nn import functional

from specchat.forward import attention
from specchat.forward.attention import MATMUL_MIN_SCORES, sdpa
from tests.each_row import each_row

HEADS, NODES, SIZE = 2, 64, 16
WIDTH = MATMUL_MIN_SCORES // NODES


def tensors(score_scale: float = 1.0, width: int = WIDTH, blocks: int = 1):
    torch.manual_seed(1)
    rows = torch.randn(blocks, HEADS, NODES, SIZE) * score_scale
    keys, values = torch.randn(2, blocks, HEADS, width, SIZE)
    mask = torch.zeros(blocks, 1, NODES, width).masked_fill_(torch.rand(blocks, 1, NODES, width) < 0.1, float("-inf"))
    return [each.bfloat16() for each in (rows, keys, values, mask)]


def relative_error(output, rows, keys, values, mask):
    """Against float64."""
    exact = functional.scaled_dot_product_attention(rows.double(), keys.double(), values.double(), mask.double())
    return float((output.double() - exact).norm() / exact.norm())


@each_row("score_scale", [0.1, 1, 4, 16])
def test_matmuls_are_as_precise_as_bfloat16_allows(score_scale):
    parts = tensors(score_scale)

    assert relative_error(sdpa(*parts), *parts) < 0.008  # without the second matmul: 0.03 with a sharp softmax


@each_row("width, is_used", [(WIDTH, True), (WIDTH - 1, False)])
def test_matmuls_are_used_for_many_scores_only(width, is_used, monkeypatch):
    calls = []
    monkeypatch.setattr(attention, "_attention_by_matmuls", lambda *parts: calls.append(parts))

    sdpa(*tensors(width=width))
    sdpa(*(each.float() for each in tensors(width=width)))

    assert is_used == bool(calls)
    assert len(calls) <= 1  # never in float32, whose scores are not rounded


def test_a_block_is_bit_identical_in_every_batch():
    rows, keys, values, mask = tensors(blocks=3)

    together = sdpa(rows, keys, values, mask)

    for block in range(3):
        alone = sdpa(*(each[block : block + 1] for each in (rows, keys, values, mask)))
        assert torch.equal(together[block], alone[0])


def test_no_mask_is_a_mask_of_zeros():
    rows, keys, values, mask = tensors()

    assert torch.equal(sdpa(rows, keys, values, None), sdpa(rows, keys, values, torch.zeros_like(mask)))
