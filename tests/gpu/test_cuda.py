"""The same laws on a CUDA device: a real one where there is one, else the fake one."""

from functools import cache

import pytest
import torch

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.engine.drafter import Drafter
from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import LogitRows, Sampler, gumbel_noise
from specchat.forward.batch import BatchLimits
from specchat.weights.llama_weights import load_llama
from tests.cover import matrix
from tests.each_row import each_row
from tests.engine.test_lossless import SAMPLERS, STOPS, two_turns
from tests.quantized_models import quantized_target, saved_network
from tests.tiny import Chaos, FirstOf, target

pytestmark = [pytest.mark.gpu, pytest.mark.full]
DRAFTERS = {
    "chaos": lambda _shape: Chaos(3),
    "lookup": lambda _shape: PromptLookup(),
    "self": lambda shape: DraftModelDrafter(target(shape, device="cuda")),
    "lookup-else-self": lambda shape: FirstOf(PromptLookup(), DraftModelDrafter(target(shape, device="cuda"))),
}


@pytest.mark.parametrize(
    ("shape", "drafter", "sampler"),
    matrix(["llama", "gemma3", "dense-llama", "dense-qwen3", "dense-mistral"], list(DRAFTERS), list(SAMPLERS), step=7),
)
def test_no_drafter_can_change_the_text(shape, drafter, sampler):
    model = target(shape, device="cuda")

    assert two_turns(model, DRAFTERS[drafter](shape), SAMPLERS[sampler], STOPS) == plain_text(shape, sampler)


@cache
def plain_text(shape: str, sampler: str) -> list[list[int]]:
    return two_turns(target(shape, device="cuda"), Drafter(), SAMPLERS[sampler], STOPS)


@each_row("drafter", DRAFTERS)
@each_row("shape", ["llama", "dense-qwen3"])
def test_exact_mode_keeps_the_text_in_bfloat16_too(shape, drafter):
    model = target(shape, exact=True, dtype=torch.bfloat16, device="cuda")

    expected = two_turns(model, Drafter(), SAMPLERS["T1"], STOPS)

    assert two_turns(model, DRAFTERS[drafter](shape), SAMPLERS["T1"], STOPS) == expected


@each_row("drafter", DRAFTERS)
@each_row("weights", ["int8", "fp8", "nf4", "nf4-double"])
def test_exact_mode_keeps_the_text_of_quantized_weights(weights, drafter):
    model = quantized_target(weights, "bfloat16", device="cuda")

    expected = two_turns(model, Drafter(), SAMPLERS["T1"], STOPS)

    assert two_turns(model, DRAFTERS[drafter]("llama"), SAMPLERS["T1"], STOPS) == expected


@each_row("weights", ["float", "int8", "fp8", "nf4"])
def test_the_embedding_may_stay_on_the_cpu(weights):
    shape, cpu = BatchLimits(prefill_chunk=16, max_rows=32, exact=True), torch.device("cpu")
    cuda = torch.device("cuda")
    apart = load_llama(saved_network(), torch.bfloat16, cuda, None, shape, quant_format=weights, embedding_device=cpu)

    assert apart.weights.embedding.device == cpu
    assert two_turns(apart, Chaos(3), SAMPLERS["T1"], STOPS) == two_turns(apart, Drafter(), SAMPLERS["T1"], STOPS)


@each_row("sampler", SAMPLERS)
def test_a_draft_may_compute_on_the_cpu(sampler):
    model, drafter = target("dense-qwen3", device="cuda"), DraftModelDrafter(target("dense-qwen3"))

    expected = two_turns(model, Drafter(), SAMPLERS[sampler], STOPS)

    assert two_turns(model, drafter, SAMPLERS[sampler], STOPS) == expected


def test_the_noise_is_that_of_the_cpu():
    ids = torch.arange(50_000)

    here, there = gumbel_noise(3, [1, 2, 99], ids), gumbel_noise(3, [1, 2, 99], ids.cuda()).cpu()

    assert torch.allclose(here, there, atol=1e-5)


def test_samples_are_those_of_the_cpu():
    torch.manual_seed(0)
    logits, rows = torch.randn(40, 5000) * 2, LogitRows(list(range(40)), [[7]] * 40)
    sampler = Sampler(0.8, top_k=100, top_p=0.9, min_p=0.01, repetition_penalty=1.2, seed=5)

    here = sampler.sample(logits, rows, SeenTokens([1, 2, 3], 5000, logits.device))
    there = sampler.sample(logits.cuda(), rows, SeenTokens([1, 2, 3], 5000, torch.device("cuda")))

    assert here == there
