"""A network on two simulated GPUs, and on two beside main memory: the texts of a CPU and of one GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.llama.llama import LlamaModel
from specchat.loading.engine_memory import planned_bytes
from specchat.loading.load_engine import load_engine
from tests.each_row import each_row
from tests.fake_gpu import MEMORY_BYTES, FakeGpu, fake_gpu
from tests.gpu.placed import (
    DRAFTERS,
    PROFILE,
    SHAPES,
    TEXT,
    WARM,
    continued_copy,
    devices,
    early_exit_logits,
    on_cpu,
    placed,
    planned,
    states_of,
    texts_in_turns,
    waits_of_ten_steps,
)
from tests.tiny import Chaos, answer

PLACES = [(0, (1,)), (0, (2,)), (0, (1, 1)), (1, (1,)), (1, (0, 1))]  # in main memory, on other GPUs


@pytest.fixture(autouse=True)
def gpus() -> Iterator[FakeGpu]:
    """Three of them."""
    with fake_gpu(other_gpus=(MEMORY_BYTES, MEMORY_BYTES)) as fake:
        yield fake


def test_each_gpu_has_its_layers_rows_and_graphs(gpus: FakeGpu):
    model = placed(0, (1, 1))
    text = answer(model, Chaos(2), TEXT, WARM, 6)

    assert list(map(str, devices(model))) == ["cuda:1", "cuda:2", "cuda:0"]
    assert text == answer(on_cpu(), Drafter(), TEXT, WARM, 6)
    assert gpus.replays >= 3 * 3
    assert all(gpus.held_on(number) for number in range(3))


@pytest.mark.full
def test_all_graphs_of_all_gpus_are_captured_before_a_turn(gpus: FakeGpu):
    model = placed(0, (1, 1))
    model.capture_graphs(lambda *_: None)
    captures = gpus.captures
    answer(model, Drafter(), TEXT, Sampler(), 12)

    assert captures == 3 * (len(model.graph_widths) + 1) == gpus.captures  # and one that keeps each memory pool


@pytest.mark.full
@each_row("drafter, sampler", [(drafter, sampler) for drafter in DRAFTERS for sampler in (Sampler(), WARM)])
def test_neither_gpus_nor_drafters_change_the_text(drafter, sampler):
    plain = answer(on_cpu(), Drafter(), TEXT, sampler, 12)
    on_one, on_two = placed(0, ()), placed(0, (2,))

    assert [answer(each, DRAFTERS[drafter](each), TEXT, sampler, 12) for each in (on_one, on_two)] == [plain, plain]


@pytest.mark.full
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shape", SHAPES)
@each_row("drafter, sampler", [(drafter, sampler) for drafter in DRAFTERS for sampler in (Sampler(), WARM)])
def test_no_place_of_any_family_changes_the_text(shape, place, drafter, sampler):
    model = placed(*place, shape)
    if drafter == "eagle3" and shape != "llama":
        return

    assert answer(model, DRAFTERS[drafter](model), TEXT, sampler) == answer(on_cpu(shape), Drafter(), TEXT, sampler)


@each_row("place", PLACES[2:4])
def test_the_states_of_layers_of_other_gpus_are_in_the_output(place):
    states = [*states_of(placed(*place)), *states_of(on_cpu())]

    assert [each.shape[1] for each in states] == [5 * 48] * 4
    assert torch.allclose(torch.cat(states[:2]), torch.cat(states[2:]), atol=1e-4)


@pytest.mark.full
@each_row("exit_layer", [1, 2, 3])
def test_an_early_exit_may_lie_on_another_gpu(exit_layer):
    logits = [early_exit_logits(each, exit_layer) for each in (placed(0, (1, 1)), on_cpu())]

    assert torch.allclose(*logits, atol=1e-4)


@pytest.mark.full
@each_row("place", PLACES)
def test_texts_go_back_take_turns_and_wait_in_main_memory(place):
    texts = [*texts_in_turns(placed(*place)), *texts_in_turns(on_cpu())]

    assert texts[:2] == texts[2:]


@pytest.mark.full
def test_rows_of_another_text_go_on_in_a_copy():
    rows, first, second = continued_copy(placed(1, (1,)))

    assert sorted(stack.shape[0] for stack in rows.stacks.values()) == [2, 2, 2]  # keys and values of a layer each
    assert first == second


@pytest.mark.full
def test_a_step_waits_as_often_as_on_one_gpu(gpus: FakeGpu):
    waits = [waits_of_ten_steps(each, gpus) for each in (placed(0), placed(0, (1, 1)))]

    assert waits == [10, 10]


@pytest.mark.full
@each_row("weights", ["int8", "nf4", "nf4-double", "fp8"])
def test_each_format_has_layers_on_other_gpus(weights):
    plain = answer(placed(0, (), quant_format=weights), Drafter(), TEXT, WARM)

    assert answer(placed(0, (2,), quant_format=weights), Chaos(3), TEXT, WARM) == plain


@pytest.mark.full
def test_exact_passes_of_all_parts_have_one_size():
    model = placed(0, (1,), exact=True)

    assert answer(model, Chaos(3), TEXT, WARM) == answer(model, Drafter(), TEXT, WARM)
    assert len(model.graphs) == 1


def test_what_one_gpu_does_not_hold_is_split_over_two_with_one_line_within_the_limit_of_each(monkeypatch):
    monkeypatch.setattr(LlamaModel, "capture_graphs", lambda *_: None)
    whole, memory = planned("none").memory(), planned("cuda:1:1").memory()
    limits = whole.total_bytes - 1, memory.other_gpu_bytes[0]

    with fake_gpu(memory_bytes=limits[0], other_gpus=limits[1:]) as gpus:
        engine = load_engine(PROFILE)
        assert list(map(str, devices(engine.models.target))) == ["cuda:1", "cuda:0"]
        assert "layers split over 2 GPUs" in engine.models.notices[-1]
        held = [gpus.held_on(number) for number in range(2)]
        assert all(each < limit for each, limit in zip(held, limits, strict=True))
        assert held[1] > 0
        assert planned_bytes(PROFILE) == {"cuda": memory.total_bytes, "cuda:1": limits[1]}


def test_a_gpu_that_is_too_small_for_a_layer_gets_none(monkeypatch):
    monkeypatch.setattr(LlamaModel, "capture_graphs", lambda *_: None)
    whole, other = planned("none").memory().total_bytes, planned("cuda:1:1").memory().other_gpu_bytes[0]

    with fake_gpu(memory_bytes=whole - 1, other_gpus=(2**20, other)):
        plan = planned()
        assert plan.target.options.gpu_layers == (0, 1)
        assert "the first 1 layers on cuda:2" in plan.target.describe()
    with fake_gpu(memory_bytes=whole - 1, other_gpus=(other - 1,)):
        assert planned().target.options.places == [("cpu", 1)]
    with fake_gpu(memory_bytes=whole - 1, other_gpus=(other - 1,)), pytest.raises(ModelError, match="does not fit"):
        load_engine(PROFILE.override({"models.place": "none"}))


@pytest.mark.usefixtures("gpus")
def test_a_hidden_gpu_is_not_used_and_cannot_be_named():
    """CUDA_VISIBLE_DEVICES leaves one GPU to torch, which then counts one."""
    whole = planned("none").memory().total_bytes

    with fake_gpu(memory_bytes=whole - 1):
        assert planned().target.options.places == [("cpu", 1)]
        with pytest.raises(ModelError, match="names a GPU that torch does not find: here is 1"):
            load_engine(PROFILE.override({"models.place": "cuda:1:1"}))


def test_a_place_that_a_person_chose_stays():
    plan = planned("cpu:1")

    assert plan.target.options.places == [("cpu", 1)]
    with pytest.raises(ModelError, match="--place cpu:1,cuda:1:1 leaves none for the first GPU"):
        planned("cpu:1,cuda:1:1").check()
