"""Each expert that a pass needs is read once, and a row does not depend on the other rows of its pass."""

import pytest
import torch

from specchat.forward.expert_linear import ExpertLinear, rows_by_expert, run_experts
from specchat.forward.linear import WeightSource

EXPERTS, OUTPUTS, INPUTS = 6, 48, 64
CHOSEN = torch.tensor([[0, 3], [3, 1], [5, 3], [1, 0], [0, 3]])


@pytest.fixture(scope="module")
def weights():
    return torch.randn(EXPERTS, OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(4))


def quantized(weights, quant_format):
    return ExpertLinear.quantize(EXPERTS, lambda expert: WeightSource.from_tensor(weights[expert]), quant_format)


def test_each_chosen_expert_comes_once_with_all_its_rows():
    found = {each.expert: (each.rows.tolist(), each.places.tolist()) for each in rows_by_expert(CHOSEN)}

    assert found == {
        0: ([0, 3, 4], [0, 1, 0]),
        1: ([1, 3], [1, 0]),
        3: ([0, 1, 2, 4], [1, 0, 1, 1]),
        5: ([2], [0]),
    }


@pytest.mark.parametrize("quant_format", ["int8", "nf4"])
def test_quantized_experts_are_near_their_floats(weights, quant_format):
    experts, rows = quantized(weights, quant_format), torch.randn(7, INPUTS)

    for expert in range(EXPERTS):
        expected = rows @ weights[expert].T
        assert (experts[expert](rows) - expected).norm() < 0.15 * expected.norm()
    assert experts.bytes < weights.nbytes / 3


def test_the_experts_of_a_row_are_added_with_their_shares(weights):
    rows, shares = torch.randn(len(CHOSEN), INPUTS), torch.rand(CHOSEN.shape)
    calls = []

    def mlp(expert):
        return lambda given: calls.append(expert) or given @ weights[expert].T @ weights[expert]

    out = run_experts(rows, CHOSEN, shares, [mlp(expert) for expert in range(EXPERTS)])

    expected = torch.stack(
        [
            sum(
                share * (row @ weights[expert].T @ weights[expert])
                for expert, share in zip(chosen.tolist(), row_shares, strict=True)
            )
            for row, chosen, row_shares in zip(rows, CHOSEN, shares, strict=True)
        ]
    )
    assert torch.allclose(out, expected, rtol=1e-3, atol=1e-3)
    assert calls == [0, 1, 3, 5]


@pytest.mark.parametrize("quant_format", ["int8", "nf4"])
def test_a_row_of_quantized_experts_is_the_same_in_every_batch(weights, quant_format):
    experts = quantized(weights, quant_format)
    back = ExpertLinear.quantize(
        EXPERTS, lambda expert: WeightSource.from_tensor(weights[expert].T.contiguous()), quant_format
    )
    assert experts.is_batch_invariant
    rows, shares = torch.randn(len(CHOSEN), INPUTS), torch.rand(CHOSEN.shape)
    mlps = [lambda given, expert=expert: back[expert](experts[expert](given).relu()) for expert in range(EXPERTS)]

    out = run_experts(rows, CHOSEN, shares, mlps)

    for row in range(len(rows)):
        alone = slice(row, row + 1)
        assert torch.equal(run_experts(rows[alone], CHOSEN[alone], shares[alone], mlps), out[alone])
