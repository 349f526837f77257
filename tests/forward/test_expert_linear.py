"""Each expert that a pass needs is read once, and a row does not depend on the other rows of its pass."""

import pytest
import torch

from specchat.forward.linear.expert_linear import ExpertLinear, RowsByExpert
from specchat.forward.linear.linear import WeightSource
from specchat.forward.linear.quant_linear import quant_linear, supports_nf4_packed

EXPERTS, OUTPUTS, INPUTS = 6, 48, 64
CHOSEN = torch.tensor([[0, 3], [3, 1], [5, 3], [1, 0], [0, 3]])


@pytest.fixture(scope="module")
def weights():
    return torch.randn(EXPERTS, OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(4))


def quantized(weights, quant_format):
    return ExpertLinear(tuple(quant_linear(WeightSource.from_tensor(each), quant_format) for each in weights))


def test_each_chosen_expert_comes_once_with_all_its_rows():
    by_expert = RowsByExpert.sort(CHOSEN)
    rows = by_expert.gather(torch.arange(len(CHOSEN))[:, None]).flatten()
    parts = zip(by_expert.experts, rows.split(by_expert.counts), strict=True)

    assert {expert: part.tolist() for expert, part in parts} == {0: [0, 3, 4], 1: [1, 3], 3: [0, 1, 2, 4], 5: [2]}


def test_the_outputs_of_a_row_come_back_in_the_order_of_its_choices():
    by_expert = RowsByExpert.sort(CHOSEN)
    outputs = torch.tensor(by_expert.experts).repeat_interleave(torch.tensor(by_expert.counts))[:, None]

    assert torch.equal(by_expert.scatter(outputs)[:, :, 0], CHOSEN)


@pytest.mark.parametrize("quant_format", ["int8", "nf4"])
def test_quantized_experts_are_near_their_floats(weights, quant_format):
    experts, rows = quantized(weights, quant_format), torch.randn(7, INPUTS)

    for expert in range(EXPERTS):
        expected = rows @ weights[expert].T
        assert (experts.experts[expert](rows) - expected).norm() < 0.15 * expected.norm()
    assert experts.bytes < 0.37 * weights.nbytes  # whole blocks of outputs


@pytest.mark.parametrize("quant_format", ["float", "int8", "nf4"])
@pytest.mark.usefixtures("native_library")
def test_a_row_of_experts_is_the_same_in_every_batch(weights, quant_format):
    linear = quantized(weights, quant_format)
    if quant_format == "nf4" and not supports_nf4_packed():
        assert not linear.is_batch_invariant
        pytest.skip("no kernel for nf4 on this CPU")
    assert linear.is_batch_invariant
    rows = torch.randn(len(CHOSEN), INPUTS)

    def outputs(chosen, rows):
        by_expert = RowsByExpert.sort(chosen)
        return by_expert.scatter(linear(by_expert.gather(rows), by_expert))

    together = outputs(CHOSEN, rows)

    for row in range(len(rows)):
        assert torch.equal(outputs(CHOSEN[row : row + 1], rows[row : row + 1])[0], together[row])
