"""The kernels of recurrences compute what torch computes, and a row alike in every pass."""

from dataclasses import replace

import pytest
import torch

from specchat.forward.recurrences import (
    Convolution,
    DeltaRule,
    convolution_by_torch,
    convolve,
    delta_rule_by_torch,
    native_recurrences,
    step_delta_rule,
)
from tests.each_row import each_row

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.03}


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def delta_rule(dtype: torch.dtype, decays: int) -> DeltaRule:
    heads, keys, values = 4, 24, 40  # a block of 32 columns, and a part of one
    query, key, value = (
        numbers(seed, 6, count, size, dtype=dtype)
        for seed, count, size in ((1, 2, keys), (2, 2, keys), (3, heads, values))
    )
    decay, beta = -numbers(4, 6, heads, decays).abs(), numbers(5, 6, heads).sigmoid()
    return DeltaRule(numbers(6, 1, heads, keys, values), query, key, value, decay, beta)


@each_row("dtype", TOLERANCE)
@each_row("decays", [1, 24])
def test_the_kernel_of_the_delta_rule_computes_what_torch_computes(dtype, decays):
    ours, reference = delta_rule(dtype, decays), delta_rule(dtype, decays)

    actual, expected = step_delta_rule(ours, into=ours.state), delta_rule_by_torch(reference, reference.state)

    torch.testing.assert_close(actual, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    torch.testing.assert_close(ours.state, reference.state, atol=1e-4, rtol=1e-4)


@each_row("dtype", TOLERANCE)
@each_row("has_silu", [True, False])
def test_the_kernel_of_the_convolution_computes_what_torch_computes(dtype, has_silu):
    bias = numbers(3, 40, dtype=dtype)
    windows = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 5], [3, 5, 7, 8]])
    convolution = Convolution(numbers(1, 9, 40, dtype=dtype), windows, numbers(2, 4, 40, dtype=dtype), bias, has_silu)

    actual, expected = convolve(convolution), convolution_by_torch(convolution)

    torch.testing.assert_close(actual, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_row_has_the_same_bits_alone_and_with_others(dtype):
    if not native_recurrences(dtype):
        pytest.skip("no C++ compiler")
    together, alone = delta_rule(dtype, 1), delta_rule(dtype, 1)
    outputs = step_delta_rule(together)
    assert torch.equal(together.state, alone.state)  # not changed without being asked

    for row in range(6):
        rule = alone.along([row])
        assert torch.equal(outputs[row : row + 1], step_delta_rule(rule, into=rule.state))


def test_a_node_has_the_bits_of_the_chain_that_leads_to_it():
    if not native_recurrences(torch.bfloat16):
        pytest.skip("no C++ compiler")
    rule = delta_rule(torch.bfloat16, 1)
    of_tree = step_delta_rule(replace(rule, parents=torch.tensor([-1, 0, 0, 1, 2, 4])))

    for path in ([0, 1, 3], [0, 2, 4, 5]):
        assert torch.equal(of_tree[path], step_delta_rule(rule.along(path)))
