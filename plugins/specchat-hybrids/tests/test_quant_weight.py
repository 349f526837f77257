"""A quantized weight in the code of a network: its products are our linear layers, anything else gets its floats."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from specchat.forward.linear.expert_linear import ExpertLinear
from specchat.forward.linear.linear import WeightSource
from specchat.forward.linear.quant_linear import quant_linear
from specchat_hybrids.quant_weight import QuantExperts, QuantMatrix, WeightUses, quant_weights

OUTPUTS, INPUTS, EXPERTS = 48, 64, 3


@pytest.fixture
def uses():
    return WeightUses()


@pytest.fixture
def numbers():
    return torch.randn(EXPERTS, OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(1))


def linear_of(numbers):
    return quant_linear(WeightSource.from_tensor(numbers), "int8")


def matrix(numbers, uses):
    return QuantMatrix.make(linear_of(numbers), numbers, "w", uses, False)


def stack(numbers, uses, is_transposed=False):
    experts = ExpertLinear(tuple(linear_of(each) for each in numbers))
    seen = numbers.mT if is_transposed else numbers
    return QuantExperts.make(experts, seen, "w", uses, is_transposed)


def test_a_linear_layer_of_torch_computes_with_it_whatever_the_shape_of_the_rows(numbers, uses):
    linear = nn.Linear(INPUTS, OUTPUTS)
    del linear.weight
    linear.weight = matrix(numbers[0], uses)
    rows = torch.randn(2, 5, INPUTS)

    expected = linear_of(numbers[0])(rows.view(10, INPUTS)).view(2, 5, OUTPUTS) + linear.bias
    assert torch.equal(linear(rows), expected)
    assert linear(rows[:, :0]).shape == (2, 0, OUTPUTS)
    assert quant_weights(linear) == [linear.weight]
    assert not uses.by_name


def test_products_with_a_transposed_weight_are_those_of_the_layer(numbers, uses):
    weight, rows = matrix(numbers[0], uses), torch.randn(4, INPUTS)
    expected, bias = linear_of(numbers[0])(rows), torch.randn(OUTPUTS)

    assert torch.equal(rows @ weight.T, expected)
    assert torch.equal(torch.matmul(rows, weight.transpose(0, 1)), expected)
    assert torch.equal(torch.addmm(bias, rows, weight.t()), expected + bias)
    assert torch.equal(functional.linear(rows, weight.to(torch.bfloat16)), expected)
    assert not uses.by_name


def test_an_expert_is_multiplied_alone_and_all_together(numbers, uses):
    rows = torch.randn(EXPERTS, 4, INPUTS)
    expected = [linear_of(each)(own) for each, own in zip(numbers, rows, strict=True)]
    weight, transposed = stack(numbers, uses), stack(numbers, uses, is_transposed=True)

    for expert in range(EXPERTS):
        assert torch.equal(functional.linear(rows[expert], weight[expert]), expected[expert])
        assert torch.equal(rows[expert] @ transposed[torch.tensor(expert)], expected[expert])
    assert torch.equal(torch.bmm(rows, transposed), torch.stack(expected))
    assert [tuple(each.shape) for each in weight] == [(OUTPUTS, INPUTS)] * EXPERTS
    assert not uses.by_name


def test_anything_else_gets_the_numbers_and_is_noted(numbers, uses):
    weight = matrix(numbers[0], uses)
    rows = torch.randn(4, INPUTS)

    halves = weight.view(2, -1, INPUTS)

    assert torch.allclose(torch.cat([rows @ half.T for half in halves], dim=1), linear_of(numbers[0])(rows), atol=0.3)
    assert torch.allclose(weight * 1, numbers[0], atol=0.04)  # half a step of seven bits, on a CPU without VNNI
    assert uses.by_name == {"w": "float"}


def test_a_product_with_its_other_side_is_right_and_noted(numbers, uses):
    weight, rows = matrix(numbers[0], uses), torch.randn(4, OUTPUTS)

    assert torch.allclose(rows @ weight, rows @ numbers[0], atol=0.3)
    assert uses.by_name == {"w": "transposed"}


def test_shape_dtype_and_device_are_no_use_of_the_numbers(numbers, uses):
    weight = matrix(numbers[0].bfloat16(), uses)

    assert (tuple(weight.shape), weight.dtype, weight.device.type) == ((OUTPUTS, INPUTS), torch.bfloat16, "cpu")
    assert weight.size(0) == len(weight) == OUTPUTS
    assert not uses.by_name
