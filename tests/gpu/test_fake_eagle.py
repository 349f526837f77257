"""EAGLE trees on the fake GPU: those of a CPU, with one wait for a tree of any depth."""

from __future__ import annotations

import pytest
import torch

from specchat.drafters.eagle.dynamic_tree import TreeConfig
from specchat.drafters.eagle.eagle_drafter import EagleDrafter
from specchat.drafters.eagle.head import EagleHead
from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from tests.each_row import each_row
from tests.fake_gpu import CaptureError, FakeGpu
from tests.tiny import target, write
from tests.tiny_heads import drafter_of, read

pytestmark = pytest.mark.full

TEXT = [7, 3, 9, 12, 40, 41, 42, 60, 61] * 3
DEEP = TreeConfig(depth=5, width=3, max_draft_tokens=12, min_level_probability=0.0)
SAMPLERS = {
    "greedy": Sampler(),
    "T1": Sampler(1.0, seed=4),
    "padded": Sampler(0.7, seed=4, vocab_size=80),
    "top-p": Sampler(1.0, top_p=0.8, seed=4),
    "penalty": Sampler(0.8, repetition_penalty=1.3, seed=5),
}


def made(device: str, kind: str = "eagle3", config: TreeConfig | None = DEEP) -> tuple[Generation, EagleDrafter]:
    model = target("dense-llama", device=device)
    drafter = drafter_of(kind, model, config)
    assert isinstance(drafter, EagleDrafter)
    return Generation(model, (drafter,)), drafter


def drafted(writing: Generation, drafter: EagleDrafter, sampler: Sampler, budget: int = 12) -> DraftTree:
    device = writing.target.pool.layout.device
    seen = sampler.make_seen_tokens(writing.tokens, writing.target.vocab_size, device)
    return drafter.propose(DraftContext(writing.tokens, sampler, budget, seen))


def shape(tree: DraftTree) -> tuple[list[int], list[int]]:
    return tree.tokens, tree.parents


def captured(writing: Generation, drafter: EagleDrafter) -> None:
    """As `load_engine` leaves them."""
    writing.target.capture_graphs(lambda *_: None)  # type: ignore[attr-defined]
    drafter.kernel.capture(writing.target)  # type: ignore[attr-defined]


def waits_per_step(gpu: FakeGpu, config: TreeConfig, sampler: Sampler) -> float:
    """Nothing is captured. The drafter has read the prompt."""
    writing, drafter = made("cuda", config=config)
    captured(writing, drafter)
    writing.replace_tokens(TEXT)
    steps = list[Step]()
    with writing.target.pool.acquire_slot(writing.cache, writing.rows_needed(60)):
        list(writing.prefill())
        for step in writing.decode(GenerationConfig(drafter, sampler, 8, 60)):
            steps.append(step)
            if len(steps) == 2:
                gpu.reset()
            if len(steps) == 8:
                break
    assert gpu.captures == 0
    assert sum(step.drafted for step in steps) > 6
    return gpu.waits.total() / (len(steps) - 2)


@each_row("kind", ["eagle3", "mtp"])
def test_a_tree_of_the_device_is_that_of_the_host(kind):
    for config in (DEEP, TreeConfig()):
        (there, on_gpu), (here, on_cpu) = made("cuda", kind, config), made("cpu", kind, config)
        for text, budget in ((TEXT, 12), ([*TEXT, 5, 6], 3), ([*TEXT, 5, 6, *TEXT * 4], 12), (TEXT[:9], 1)):
            read(there, text)
            read(here, text)
            tree = drafted(there, on_gpu, SAMPLERS["greedy"], budget)
            assert shape(tree) == shape(drafted(here, on_cpu, SAMPLERS["greedy"], budget))
            assert len(tree) > 1 or config == TreeConfig()


@each_row("sampler", ["T1", "greedy", "padded", "top-p", "penalty"])
def test_it_ranks_with_the_noise_and_the_rules_of_the_sampler(sampler):
    (there, on_gpu), (here, on_cpu) = made("cuda"), made("cpu")
    for text in (TEXT, [*TEXT, 9, 9]):
        read(there, text)
        read(here, text)
        assert shape(drafted(there, on_gpu, SAMPLERS[sampler])) == shape(drafted(here, on_cpu, SAMPLERS[sampler]))


@pytest.mark.parametrize("depth", [7, 2])
@pytest.mark.parametrize("sampler", ["T1", "greedy", "top-p"])
def test_a_step_waits_twice_whatever_the_depth_of_the_tree(gpu, depth, sampler):
    config = TreeConfig(depth=depth, width=3, max_draft_tokens=12, min_level_probability=0.0)

    assert waits_per_step(gpu, config, SAMPLERS[sampler]) <= 2


@pytest.mark.full
def test_two_conversations_share_the_graph_and_not_the_pairs(gpu):
    (one, first), (other, _) = made("cuda"), made("cuda")
    second = EagleDrafter(first.head, one.target, DEEP)
    other = Generation(one.target, (second,))
    for text in (TEXT, [*TEXT, 4]):
        trees = list[DraftTree]()
        read(one, text)
        read(other, text[::-1])
        trees += [drafted(one, first, Sampler()), drafted(other, second, Sampler())]
        for tree, given in zip(trees, (text, text[::-1]), strict=True):
            fresh, alone = made("cpu")
            read(fresh, given)
            assert shape(tree) == shape(drafted(fresh, alone, Sampler()))
    assert len(first.head.graphs) == 1


def test_without_memory_for_a_graph_it_drafts_the_same(monkeypatch, caplog):
    def refuse(*_arguments: object, **_options: object) -> object:
        raise CaptureError("operation not permitted when stream is capturing")

    (there, on_gpu), (here, on_cpu) = made("cuda"), made("cpu")
    read(there, TEXT)
    read(here, TEXT)
    with monkeypatch.context() as failing:
        failing.setattr(torch.cuda, "graph", refuse)
        tree = drafted(there, on_gpu, Sampler())

    assert shape(tree) == shape(drafted(here, on_cpu, Sampler()))
    assert "not permitted" in caplog.text
    assert isinstance(on_gpu.head, EagleHead)
    assert not on_gpu.head.graphs


def test_the_text_stays_that_of_plain_decoding():
    writing, drafter = made("cuda", config=None)
    plain = Generation(target("dense-llama", device="cuda"))
    for each in (writing, plain):
        each.replace_tokens(TEXT)
        write(each, GenerationConfig(drafter if each is writing else Drafter(), Sampler(0.8, seed=1), 8, 20))

    assert writing.tokens[: len(TEXT) + 20] == plain.tokens
