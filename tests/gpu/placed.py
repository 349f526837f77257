"""Networks whose first layers are elsewhere than on the first simulated GPU, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.decode import Generation, GenerationConfig, TextRows
from specchat.engine.drafter import Drafter
from specchat.engine.model import FINAL_NORM, Model
from specchat.engine.sampling import Sampler
from specchat.forward.batch import BatchLimits
from specchat.forward.llama.llama import LlamaModel
from specchat.loading.engine_memory import compute_features, memory_of_devices
from specchat.loading.fitted_plan import plan_that_fits
from specchat.loading.load_plan import LoadPlan
from specchat.weights.llama_weights import load_llama
from tests.fake_gpu import FakeGpu
from tests.tiny import GRAPHED_CONTEXT, Chaos, saved, target, tiny_profile, write
from tests.tiny_heads import drafter_of

TEXT = list(range(5, 45))
WARM = Sampler(0.8, seed=3)
LAST = 3  # layers of the networks
SHAPES = ["llama", "qwen3_moe", "gpt_oss", "gemma3", "olmo2", "granite", "gemma4_unified"]
DRAFTERS: dict[str, Callable[[Model], Drafter]] = {
    "none": lambda _model: Drafter(),
    "trees": lambda _model: Chaos(2),
    "chains": lambda _model: DraftModelDrafter(on_cpu("llama")),
    "eagle3": lambda model: drafter_of("eagle3", model),
}
PROFILE = tiny_profile().override(
    {
        "models.device": "cuda", "models.heads": [], "limits.context": 512, "limits.answer": 64,
        "models.weights": "float", "models.embedding_device": "device",
    }
)  # fmt: skip


def placed(
    cpu_layers: int, gpu_layers: Sequence[int] = (), shape: str = "llama", *, exact: bool = False, **options: object
) -> LlamaModel:
    """A network on the first GPU, but for its first layers."""
    limits = BatchLimits(prefill_chunk=16, max_rows=32, exact=exact)
    return load_llama(
        saved(shape), torch.float32, torch.device("cuda"), GRAPHED_CONTEXT, limits, cpu_layers=cpu_layers,
        gpu_layers=gpu_layers, **options,
    )  # fmt: skip


def on_cpu(shape: str = "llama") -> Model:
    return target(f"dense-{shape}")


def planned(place: str = "auto") -> LoadPlan:
    return plan_that_fits(PROFILE.override({"models.place": place}), compute_features(), memory_of_devices)


def devices(model: LlamaModel) -> list[torch.device]:
    """Of the rows of each layer."""
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 8):
        return [keys.device for keys, _values in cache.require_slot().layers]


def states_of(model: Model) -> list[Tensor]:
    """The hidden states of all layers, of a prompt in two parts."""
    model.set_hidden_state_layers((FINAL_NORM, 2, 0, LAST, 1))
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 300):
        return [model.prefill(part, cache).hidden_states.cpu() for part in (TEXT[:16], TEXT[16:20])]


def early_exit_logits(model: Model, exit_layer: int) -> Tensor:
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 300):
        model.prefill(TEXT[:16], cache)
        return model.forward_early_exit(TEXT[16:20], cache, exit_layer).cpu()


def texts_in_turns(model: Model) -> list[list[int]]:
    """Two texts that go back; the second one leaves no room for the first one, whose rows wait elsewhere."""
    first, second = Generation(model), Generation(model)
    for tokens in (TEXT * 20, TEXT * 10 + TEXT[::-1], TEXT * 20):
        for each in (first, second):
            each.replace_tokens(tokens if each is first else tokens[::-1])
            write(each, GenerationConfig(Chaos(1), WARM, 8, 12))
    return [first.tokens, second.tokens]


def continued_copy(model: Model) -> tuple[TextRows, list[int], list[int]]:
    """The rows of a text, and what it and a copy with these rows become."""
    first, second = Generation(model), Generation(model)
    first.replace_tokens(TEXT)
    write(first, GenerationConfig(Drafter(), Sampler(), 0, 8))
    rows = first.copy_rows()
    assert rows is not None
    second.restore(rows)
    second.replace_tokens(first.tokens)
    for each in (first, second):
        write(each, GenerationConfig(Drafter(), Sampler(), 0, 8))
    return rows, first.tokens, second.tokens


def waits_of_ten_steps(model: LlamaModel, gpu: FakeGpu) -> int:
    model.capture_graphs(lambda *_: None)
    writing = Generation(model)
    writing.replace_tokens(TEXT)
    with model.pool.acquire_slot(writing.cache, 300):
        list(writing.prefill())
        gpu.reset()
        list(writing.decode(GenerationConfig(Drafter(), WARM, 0, 10)))
    return gpu.waits.total()
