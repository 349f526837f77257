"""Hybrid networks on the fake GPU, in our own passes: the text of a CPU, in graphs, with trees, and going back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.batch import ForwardDepth
from specchat.forward.cuda.triton_ops import TritonOps
from specchat.forward.llama import hybrid
from specchat.forward.llama.device_hybrid import DeviceHybridModel
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.fake_gpu import FakeGpu, fake_gpu
from tests.forward.test_hybrid import PROMPT, Oracle, extended
from tests.tiny import HYBRIDS, Chaos, saved, target
from tests.triton_interpreter import IS_INTERPRETED, interpreted_kernels

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not IS_INTERPRETED, reason="a real GPU is here, on which all of tests/gpu runs"),
]
SHORT = PROMPT[:6]
MOST_LAUNCHES_PER_LAYER = 12


@pytest.fixture(autouse=True)
def gpu() -> Iterator[FakeGpu]:
    with fake_gpu(has_triton=True) as fake, interpreted_kernels():
        yield fake


def gpu_model(name: str = "qwen3_5", *, has_graphs: bool = True) -> DeviceHybridModel:
    model = target(f"dense-{name}", device="cuda")
    assert isinstance(model, DeviceHybridModel) and isinstance(model.ops, TritonOps)
    if not has_graphs:
        model.graphs = None
    return model


def answer(model, drafter=None, prompt=SHORT, limit=4, sampler=None) -> list[int]:
    return extended(model, Generation(model), prompt, drafter or Drafter(), limit, sampler)


def test_the_text_of_graphs_with_trees_is_that_of_the_cpu(gpu):
    expected = answer(target("dense-qwen3_5"), limit=6)

    assert expected == answer(gpu_model(), Oracle(expected), limit=6)
    assert gpu.replays


def test_a_checkpoint_for_a_gpu_is_loaded_into_our_own_passes_and_has_graphs():
    model = load_model(saved("qwen3_5"), LoadOptions(dtype="float32", device="cuda", context_window=512))

    assert isinstance(model, DeviceHybridModel)
    assert model.has_graphs
    assert model.supports_trees


def test_without_kernels_transformers_computes_it(monkeypatch):
    monkeypatch.setenv("SPECCHAT_KERNELS", "none")
    model = load_model(saved("qwen3_5"), LoadOptions(dtype="float32", device="cuda", context_window=512))

    assert not isinstance(model, DeviceHybridModel)


@pytest.mark.parametrize("name", HYBRIDS)
@pytest.mark.parametrize("has_graphs", [False, True])
@pytest.mark.parametrize("sampler", [Sampler(), Sampler(0.8, seed=3)], ids=["greedy", "sampled"])
def test_the_text_is_that_of_the_cpu(name, has_graphs, sampler):
    expected = answer(target(f"dense-{name}"), limit=8, sampler=sampler)

    for drafter in (Drafter(), Oracle(expected), Chaos(3)):
        assert expected == answer(gpu_model(name, has_graphs=has_graphs), drafter, limit=8, sampler=sampler)


def test_a_long_prompt_and_going_back_to_a_checkpoint_have_the_text_of_the_cpu(monkeypatch):
    monkeypatch.setattr(hybrid, "CHECKPOINT_TOKENS", 66)
    prompt = (PROMPT * 2)[:70]
    model, cpu = gpu_model(), target("dense-qwen3_5")
    model.prefill_chunk = 66  # more rows than are recorded; then three
    generation = Generation(model)
    text = extended(cpu, Generation(cpu), prompt, Drafter(), limit=3)
    assert text == extended(model, generation, prompt, Oracle(text), limit=3)

    for kept in (68, 30):
        changed = [*text[:kept], 1 + text[kept] % 50, *PROMPT[:3]]
        expected = extended(cpu, Generation(cpu), changed, Drafter(), limit=2)
        assert expected == extended(model, generation, changed, Drafter(), limit=2)


def test_two_texts_take_turns_also_between_a_pass_and_its_commit():
    model, prompts = gpu_model(has_graphs=False), (SHORT, PROMPT[20:29])
    expected = [answer(target("dense-qwen3_5"), prompt=each, limit=3) for each in prompts]
    caches, texts = [model.pool.open() for _ in prompts], [list(each) for each in prompts]
    with model.pool.acquire_slot(caches[0], 64), model.pool.acquire_slot(caches[1], 64):
        for cache, text in zip(caches, texts, strict=True):
            model.prefill(text[:-1], cache)
        for _ in range(3):
            for cache, text in zip(caches, texts, strict=True):
                text.append(int(model.forward(DraftTree(text[-1]), cache).logits[0].argmax()))
            for cache in caches:  # the rows of the first were put aside when the second had its pass
                cache.commit([0])

    assert texts == expected


def test_states_that_were_kept_on_disk_go_on():
    model = gpu_model()
    text, cache = answer(model, limit=3), model.pool.open()
    with model.pool.acquire_slot(cache, 64):
        model.prefill(text[:-1], cache)
        states = model.copy_states(cache, len(text) - 1)
        expected = model.forward(DraftTree(text[-1]), cache).logits.cpu()
        model.restore_states(cache, states)
        assert all(not each.is_cuda for kept in states.values() for each in kept.values())
        assert torch.equal(expected, model.forward(DraftTree(text[-1]), cache).logits.cpu())


@each_row("layers", [(0, 1), (2, 3)])
def test_a_recurrent_layer_launches_at_most_twelve_kernels_whatever_the_number_of_rows(layers, gpu):
    model, launches = gpu_model(has_graphs=False), list[int]()
    cache, tree = model.pool.open(), DraftTree(7)
    tree.add_chain([1, 2, 3])
    with model.pool.acquire_slot(cache, 64):
        for count in layers:
            gpu.reset()
            nodes = model.limits.nodes(tree)
            model._forward(nodes, cache, ForwardDepth(count))
            launches.append(gpu.launches)

    assert 0 < launches[1] - launches[0] <= MOST_LAUNCHES_PER_LAYER


def test_a_step_of_plain_decoding_waits_once(gpu):
    model = gpu_model()
    generation = Generation(model)
    generation.replace_tokens(list(SHORT))
    with model.pool.acquire_slot(generation.cache, 64):
        list(generation.prefill())
        steps = generation.decode(GenerationConfig(Drafter(), Sampler(), 0, 8))
        for _ in range(3):
            next(steps)
        gpu.reset()
        next(steps)

    assert 1 == gpu.waits.total(), gpu.waits
