"""The first layers of a network in main memory beside a GPU: the texts of a CPU, whatever is where."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import FINAL_NORM, Model
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.forward.llama.llama import LlamaModel
from specchat.loading.engine_memory import compute_features, memory_of_devices
from specchat.loading.fitted_plan import plan_that_fits
from specchat.loading.load_engine import load_engine
from specchat.weights.llama_weights import load_llama
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.fake_gpu import FakeGpu, fake_gpu
from tests.tiny import GRAPHED_CONTEXT, SIZES, Chaos, answer, saved, target, tiny_profile, write
from tests.tiny_heads import drafter_of

TEXT = list(range(5, 45))
CUDA = torch.device("cuda")
WARM = Sampler(0.8, seed=3)
LAST = 3  # layers of the networks


def placed(cpu_layers: int, shape: str = "llama", **options: object) -> LlamaModel:
    """A network on the GPU, but for its first layers."""
    limits = BatchLimits(prefill_chunk=16, max_rows=32, exact=bool(options.pop("exact", False)))
    return load_llama(saved(shape), torch.float32, CUDA, GRAPHED_CONTEXT, limits, cpu_layers=cpu_layers, **options)


def devices(model: LlamaModel) -> list[str]:
    """Of the rows of each layer."""
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 8):
        return [keys.device.type for keys, _values in cache.require_slot().layers]


def on_cpu(shape: str = "llama") -> Model:
    return target(f"dense-{shape}")


def test_weights_and_rows_of_the_first_layers_are_in_main_memory_and_the_others_in_graphs(gpu: FakeGpu):
    model = placed(2)
    model.capture_graphs(lambda *_: None)
    captures = gpu.captures
    text = answer(model, Drafter(), TEXT, Sampler(), 12)

    assert devices(model) == ["cpu", "cpu", "cuda"]
    assert text == answer(on_cpu(), Drafter(), TEXT, Sampler(), 12)
    assert gpu.captures == captures
    assert gpu.replays >= 12


DRAFTERS: dict[str, Callable[[Model], Drafter]] = {
    "none": lambda _model: Drafter(),
    "trees": lambda _model: Chaos(2),
    "chains": lambda _model: DraftModelDrafter(on_cpu("llama")),
    "eagle3": lambda model: drafter_of("eagle3", model),
}


@pytest.mark.full
@pytest.mark.parametrize("cpu_layers", [1, 2])
@pytest.mark.parametrize("shape", ["llama", "qwen3_moe", "gpt_oss", "gemma3", "olmo2", "granite", "gemma4_unified"])
@each_row("drafter, sampler", [(drafter, sampler) for drafter in DRAFTERS for sampler in (Sampler(), WARM)])
def test_no_place_and_no_drafter_changes_the_text(shape, cpu_layers, drafter, sampler):
    model = placed(cpu_layers, shape)
    if drafter == "eagle3" and model.dimensions.hidden_size != SIZES["hidden_size"]:
        return

    assert answer(model, DRAFTERS[drafter](model), TEXT, sampler) == answer(on_cpu(shape), Drafter(), TEXT, sampler)


@each_row("cpu_layers", [1, 2])
def test_the_states_of_layers_in_main_memory_are_in_the_output(cpu_layers):
    model, other, states = placed(cpu_layers), on_cpu(), list[torch.Tensor]()
    for each in (model, other):
        each.set_hidden_state_layers((FINAL_NORM, 2, 0, LAST, 1))
        cache = each.pool.open()
        with each.pool.acquire_slot(cache, 300):
            for part in (TEXT[:16], TEXT[16:20]):
                states.append(each.prefill(part, cache).hidden_states.cpu())

    assert [each.shape[1] for each in states] == [5 * 48] * 4
    assert torch.allclose(torch.cat(states[:2]), torch.cat(states[2:]), atol=1e-4)


@each_row("exit_layer", [1, 2, 3])
def test_an_early_exit_may_lie_in_main_memory(exit_layer):
    logits = list[torch.Tensor]()
    for model in (placed(2), on_cpu()):
        cache = model.pool.open()
        with model.pool.acquire_slot(cache, 300):
            model.prefill(TEXT[:16], cache)
            logits.append(model.forward_early_exit(TEXT[16:20], cache, exit_layer).cpu())

    assert torch.allclose(*logits, atol=1e-4)


@pytest.mark.full
@each_row("shape", ["llama", "qwen3_moe"])
def test_texts_go_back_take_turns_and_wait_in_main_memory(shape):
    """The second text leaves no room for the first one, whose rows wait elsewhere."""
    texts = list[list[int]]()
    for model in (placed(2, shape), on_cpu(shape)):
        first, second = Generation(model), Generation(model)
        for tokens in (TEXT * 20, TEXT * 10 + TEXT[::-1], TEXT * 20):
            for each in (first, second):
                each.replace_tokens(tokens if each is first else tokens[::-1])
                write(each, GenerationConfig(Chaos(1), WARM, 8, 12))
        texts += [first.tokens, second.tokens]

    assert texts[:2] == texts[2:]


@pytest.mark.full
def test_rows_of_another_text_go_on_in_a_copy():
    model = placed(1)
    first, second = Generation(model), Generation(model)
    first.replace_tokens(TEXT)
    write(first, GenerationConfig(Drafter(), Sampler(), 0, 8))
    rows = first.copy_rows()
    second.restore(rows)
    second.replace_tokens(first.tokens)
    for each in (first, second):
        write(each, GenerationConfig(Drafter(), Sampler(), 0, 8))

    assert sorted(stack.shape[0] for stack in rows.stacks.values()) == [2, 4]  # keys and values of 1 and 2 layers
    assert first.tokens == second.tokens


@pytest.mark.full
def test_a_step_waits_once_more_for_its_embeddings(gpu):
    model = placed(1)
    model.capture_graphs(lambda *_: None)
    writing = Generation(model)
    writing.replace_tokens(TEXT)
    with model.pool.acquire_slot(writing.cache, 300):
        list(writing.prefill())
        gpu.reset()
        list(writing.decode(GenerationConfig(Drafter(), WARM, 0, 10)))

    assert gpu.waits.total() == 20


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


PROFILE = tiny_profile().override(
    {
        "models.device": "cuda", "models.heads": [], "limits.context": 512, "limits.answer": 64,
        "models.weights": "float", "models.embedding_device": "device",
    }
)  # fmt: skip


def bytes_on_gpu(place: str) -> int:
    plan = plan_that_fits(PROFILE.override({"models.place": place}), compute_features(), memory_of_devices)
    return plan.memory().total_bytes


def test_what_a_gpu_has_no_room_for_is_loaded_into_main_memory_with_one_line(monkeypatch):
    monkeypatch.setattr(LlamaModel, "capture_graphs", lambda *_: None)
    whole, split = bytes_on_gpu("none"), bytes_on_gpu("cpu:1")

    with fake_gpu(memory_bytes=whole - 1):
        engine = load_engine(PROFILE)
        assert devices(engine.models.target) == ["cpu", "cuda"]
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
