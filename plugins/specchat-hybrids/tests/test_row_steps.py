"""Recurrent layers that are stepped: a pass leaves their states alone until its rows are committed."""

from dataclasses import replace

import torch

from specchat.engine.tree import DraftTree
from specchat_hybrids.chains import OwnCacheChains
from specchat_hybrids.scan import Scan, step_scan
from tests.each_row import each_row
from tools.zoo_networks import tiny_network

STEPPED = ["qwen3_next", "kimi_linear", "granitemoehybrid", "nemotron_h", "lfm2"]


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def scan(dtype: torch.dtype) -> Scan:
    x, inputs, outputs = (
        numbers(seed, 6, n, size, dtype=dtype) for seed, n, size in ((1, 4, 10), (2, 2, 20), (3, 2, 20))
    )
    dt, rates, skip = numbers(4, 6, 4).abs(), -numbers(5, 4).abs(), numbers(6, 4)
    return Scan(numbers(7, 1, 4, 10, 20), x, dt, rates, inputs, outputs, skip)


def test_the_scan_is_the_recurrence_of_its_paper():
    given, outputs = scan(torch.float32), []
    state = given.state[0].clone()
    for row in range(6):
        for head in range(4):
            dt, group = given.dt[row, head], head // 2
            change = dt * torch.outer(given.x[row, head], given.inputs[row, group])
            state[head] = (dt * given.rates[head]).exp() * state[head] + change
            outputs.append(state[head] @ given.outputs[row, group] + given.skip[head] * given.x[row, head])

    torch.testing.assert_close(step_scan(given, stores=True), torch.stack(outputs).view(6, 4, 10))
    torch.testing.assert_close(given.state[0], state)


@each_row("dtype", [torch.float32, torch.bfloat16])
def test_a_row_of_a_scan_has_the_same_bits_alone_and_with_others(dtype):
    together, alone = scan(dtype), scan(dtype)
    outputs = step_scan(together)
    assert torch.equal(together.state, alone.state)  # not changed without being asked

    for row in range(6):
        step = replace(alone, **{name: getattr(alone, name)[row:] for name in ("x", "dt", "inputs", "outputs")})
        assert torch.equal(outputs[row : row + 1], step_scan(step.first(1), stores=True))


@each_row("family", STEPPED)
def test_a_rejected_draft_token_costs_no_row_of_the_next_pass(family):
    network = tiny_network(family)
    model, lengths = OwnCacheChains(network), list[int]()
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
    model = OwnCacheChains(tiny_network("qwen3_next"))
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 64):
        model.prefill([1, 2, 3], cache)
        model.forward(DraftTree(3), cache)

    assert before == dict(vars(modeling_qwen3_next))
