"""Recurrent layers that are stepped: a pass leaves their states alone until its rows are committed."""

from dataclasses import replace

import pytest
import torch

from specchat.engine.tree import DraftTree
from specchat.forward.recurrences import (
    Convolution,
    DeltaRule,
    Scan,
    convolution_by_torch,
    convolve,
    delta_rule_by_torch,
    native_recurrences,
    scan_by_torch,
    step_delta_rule,
    step_scan,
)
from specchat.forward.transformers.recurrent import RecurrentModel
from tests.each_row import each_row
from tools.zoo_networks import tiny_network

STEPPED = ["qwen3_next", "kimi_linear", "granitemoehybrid", "nemotron_h", "lfm2"]
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


def scan(dtype: torch.dtype) -> Scan:
    x, inputs, outputs = (
        numbers(seed, 6, n, size, dtype=dtype) for seed, n, size in ((1, 4, 10), (2, 2, 20), (3, 2, 20))
    )
    dt, rates, skip = numbers(4, 6, 4).abs(), -numbers(5, 4).abs(), numbers(6, 4)
    return Scan(numbers(7, 1, 4, 10, 20), x, dt, rates, inputs, outputs, skip)


@each_row("dtype", TOLERANCE)
@each_row("decays", [1, 24])
def test_the_kernel_of_the_delta_rule_computes_what_torch_computes(dtype, decays):
    ours, reference = delta_rule(dtype, decays), delta_rule(dtype, decays)

    actual, expected = step_delta_rule(ours, into=ours.state), delta_rule_by_torch(reference, reference.state)

    torch.testing.assert_close(actual, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    torch.testing.assert_close(ours.state, reference.state, atol=1e-4, rtol=1e-4)


@each_row("dtype", TOLERANCE)
def test_the_kernel_of_the_scan_computes_what_torch_computes(dtype):
    ours, reference = scan(dtype), scan(dtype)

    actual, expected = step_scan(ours, stores=True), scan_by_torch(reference, True)

    torch.testing.assert_close(actual, expected, atol=5 * TOLERANCE[dtype], rtol=TOLERANCE[dtype])
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
    together = delta_rule(dtype, 1), scan(dtype)
    alone = delta_rule(dtype, 1), scan(dtype)
    outputs = step_delta_rule(together[0]), step_scan(together[1])
    assert torch.equal(together[0].state, alone[0].state)  # not changed without being asked

    for row in range(6):
        rule = alone[0].along([row])
        step = replace(alone[1], **{name: getattr(alone[1], name)[row:] for name in ("x", "dt", "inputs", "outputs")})
        assert torch.equal(outputs[0][row : row + 1], step_delta_rule(rule, into=rule.state))
        assert torch.equal(outputs[1][row : row + 1], step_scan(step.first(1), stores=True))


def test_a_node_has_the_bits_of_the_chain_that_leads_to_it():
    if not native_recurrences(torch.bfloat16):
        pytest.skip("no C++ compiler")
    rule = delta_rule(torch.bfloat16, 1)
    of_tree = step_delta_rule(replace(rule, parents=torch.tensor([-1, 0, 0, 1, 2, 4])))

    for path in ([0, 1, 3], [0, 2, 4, 5]):
        assert torch.equal(of_tree[path], step_delta_rule(rule.along(path)))


@each_row("family", STEPPED)
def test_a_rejected_draft_token_costs_no_row_of_the_next_pass(family):
    network = tiny_network(family)
    model, lengths = RecurrentModel(network), list[int]()
    network.register_forward_pre_hook(
        lambda _network, _inputs, given: lengths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    text = [5, 9, 2, 7, 1, 8, 3, 4, 6, 11, 12, 10]
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 64), torch.inference_mode():
        model.prefill(text[:5], cache)
        for accepted in (0, 1, 3):
            chain = DraftTree(text[cache.length])
            chain.add_chain([*text[cache.length + 1 : cache.length + 1 + accepted], 14, 13])
            model.forward(chain, cache)
            cache.commit(list(range(accepted + 1)))
        actual = model.forward(DraftTree(3), cache).logits
        expected = network(input_ids=torch.tensor([[*text[: cache.length], 3]]), use_cache=False).logits[0, -1:]

    assert [5, 3, 4, 6, 1, 13] == lengths
    torch.testing.assert_close(actual, expected, atol=2e-3, rtol=2e-3)


def test_a_pass_that_is_not_stepped_finds_the_functions_of_transformers():
    from transformers.models.qwen3_next import modeling_qwen3_next

    before = dict(vars(modeling_qwen3_next))
    model = RecurrentModel(tiny_network("qwen3_next"))
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 64):
        model.prefill([1, 2, 3], cache)
        model.forward(DraftTree(3), cache)

    assert before == dict(vars(modeling_qwen3_next))
