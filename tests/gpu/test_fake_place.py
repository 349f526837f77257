"""The first layers of a network in main memory beside a GPU: the texts of a CPU, whatever is where."""

from __future__ import annotations

import pytest
import torch

from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.llama.llama import LlamaModel
from specchat.loading.load_engine import load_engine
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.fake_gpu import FakeGpu, fake_gpu
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
from tests.tiny import SIZES, Chaos, answer, saved


def test_weights_and_rows_of_the_first_layers_are_in_main_memory_and_the_others_in_graphs(gpu: FakeGpu):
    model = placed(2)
    model.capture_graphs(lambda *_: None)
    captures = gpu.captures
    text = answer(model, Drafter(), TEXT, Sampler(), 12)

    assert [each.type for each in devices(model)] == ["cpu", "cpu", "cuda"]
    assert text == answer(on_cpu(), Drafter(), TEXT, Sampler(), 12)
    assert gpu.captures == captures
    assert gpu.replays >= 12


@pytest.mark.full
@pytest.mark.parametrize("cpu_layers", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
@each_row("drafter, sampler", [(drafter, sampler) for drafter in DRAFTERS for sampler in (Sampler(), WARM)])
def test_no_place_and_no_drafter_changes_the_text(shape, cpu_layers, drafter, sampler):
    model = placed(cpu_layers, shape=shape)
    if drafter == "eagle3" and model.dimensions.hidden_size != SIZES["hidden_size"]:
        return

    assert answer(model, DRAFTERS[drafter](model), TEXT, sampler) == answer(on_cpu(shape), Drafter(), TEXT, sampler)


@each_row("cpu_layers", [1, 2])
def test_the_states_of_layers_in_main_memory_are_in_the_output(cpu_layers):
    states = [*states_of(placed(cpu_layers)), *states_of(on_cpu())]

    assert [each.shape[1] for each in states] == [5 * 48] * 4
    assert torch.allclose(torch.cat(states[:2]), torch.cat(states[2:]), atol=1e-4)


@each_row("exit_layer", [1, 2, 3])
def test_an_early_exit_may_lie_in_main_memory(exit_layer):
    logits = [early_exit_logits(each, exit_layer) for each in (placed(2), on_cpu())]

    assert torch.allclose(*logits, atol=1e-4)


@pytest.mark.full
@each_row("shape", ["llama", "qwen3_moe"])
def test_texts_go_back_take_turns_and_wait_in_main_memory(shape):
    texts = [*texts_in_turns(placed(2, shape=shape)), *texts_in_turns(on_cpu(shape))]

    assert texts[:2] == texts[2:]


@pytest.mark.full
def test_rows_of_another_text_go_on_in_a_copy():
    rows, first, second = continued_copy(placed(1))

    assert sorted(stack.shape[0] for stack in rows.stacks.values()) == [2, 4]  # keys and values of 1 and 2 layers
    assert first == second


@pytest.mark.full
def test_a_step_waits_once_more_for_its_embeddings(gpu):
    assert waits_of_ten_steps(placed(1), gpu) == 20


@pytest.mark.full
@each_row("weights", ["int8", "nf4", "nf4-double", "fp8"])
def test_each_format_has_layers_in_main_memory(weights):
    model = placed(1, quant_format=weights)

    assert answer(model, Chaos(3), TEXT, WARM) == answer(model, Drafter(), TEXT, WARM)


@pytest.mark.full
def test_exact_passes_of_both_parts_have_one_size():
    model = placed(1, exact=True)

    assert answer(model, Chaos(3), TEXT, WARM) == answer(model, Drafter(), TEXT, WARM)
    assert len(model.graphs) == 1


@each_row(
    "shape, cpu_layers, says",
    [
        ("gemma4", 1, "its first 1 layers cannot be on another device"),
        ("llama", 3, "its first 3 layers cannot be on another device"),
        ("cohere", 1, "for models in our own passes only; use --place none"),
    ],
)
def test_layers_that_cannot_be_alone_are_refused(shape, cpu_layers, says):
    with pytest.raises(ModelError, match=says):
        load_model(saved(shape), LoadOptions("float32", "cuda", 256, cpu_layers=cpu_layers))


def test_what_a_gpu_has_no_room_for_is_loaded_into_main_memory_with_one_line(monkeypatch):
    monkeypatch.setattr(LlamaModel, "capture_graphs", lambda *_: None)
    whole, split = (planned(place).memory().total_bytes for place in ("none", "cpu:1"))

    with fake_gpu(memory_bytes=whole - 1):
        engine = load_engine(PROFILE)
        assert [each.type for each in devices(engine.models.target)] == ["cpu", "cuda"]
        assert "the first 1 of 2 layers in main memory (slower passes)" in engine.models.notices[-1]
    with fake_gpu(memory_bytes=split - 1), pytest.raises(ModelError, match="does not fit: it takes"):
        load_engine(PROFILE)


@each_row(
    "place, says",
    [
        ("cpu:2", r"it has 2 layers, and --place cpu:2 leaves none for the first GPU; place 1 or fewer elsewhere"),
        ("cpu:99", r"it has 2 layers, and --place cpu:99 leaves none"),
        ("cuda:1:1", r"--place cuda:1:1 names a GPU that torch does not find: here is 1, and cuda:1 is the second one"),
    ],
)
def test_a_place_that_does_not_exist_is_refused_before_anything_is_read(monkeypatch, place, says):
    monkeypatch.setattr("specchat.loading.load_engine.load_model", lambda *_: pytest.fail("it was loaded"))

    with pytest.raises(ModelError, match=says):
        load_engine(PROFILE.override({"models.place": place}))
