"""Mixtures of experts on a GPU, a real one where there is one: in graphs, with trees, and few launches for a layer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.forward.batch import BatchLimits
from specchat.forward.linear.block_linear import BlockLinear
from specchat.forward.llama.llama import LlamaModel
from specchat.forward.llama.moe import MixtureOfExperts
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.llama_weights import load_llama
from tests.fake_gpu import FakeGpu, fake_gpu
from tests.gguf_models import network, write_gguf
from tests.tiny import Chaos, answer, saved, target
from tests.triton_interpreter import IS_INTERPRETED, interpreted_kernels
from tests.weights.test_mxfp4_checkpoints import FILE, packed

pytestmark = [pytest.mark.gpu, pytest.mark.full]
MOST_LAUNCHES_OF_EXPERTS = 12  # router and weighted sum included
GREEDY, WARM = Sampler(), Sampler(0.8, seed=3)
PROMPT = [5, 6, 7]


@pytest.fixture(autouse=True)
def gpu() -> Iterator[FakeGpu | None]:
    if not IS_INTERPRETED:
        yield None
        return
    with fake_gpu(has_triton=True) as fake, interpreted_kernels():
        yield fake


def mixtures(model: LlamaModel) -> list[MixtureOfExperts]:
    return [layer.mlp for layer in model.weights.layers if isinstance(layer.mlp, MixtureOfExperts)]


def writes_the_text_of_the_cpu(model: LlamaModel, on_cpu: LlamaModel, limit: int = 4) -> bool:
    return all(
        answer(model, drafter, PROMPT, sampler, limit) == answer(on_cpu, Drafter(), PROMPT, sampler, limit)
        for drafter, sampler in ((Drafter(), WARM), (Chaos(3), GREEDY), (Chaos(4), WARM))
    )


@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral", "qwen2_moe", "gpt_oss", "qwen3_5_moe", "qwen3_next"])
def test_graphs_write_the_text_of_the_cpu_with_drafts_too(family, gpu):
    model, on_cpu = target(f"dense-{family}", device="cuda"), target(f"dense-{family}")
    assert isinstance(model, LlamaModel) and isinstance(on_cpu, LlamaModel)

    assert model.has_graphs and model.supports_trees and all(each.is_on_device for each in mixtures(model))
    assert writes_the_text_of_the_cpu(model, on_cpu)
    assert model.graphs is not None and not model.graphs.is_disabled and len(model.graphs) > 0


@pytest.mark.parametrize(("family", "storage"), [("qwen3moe", "Q8_0"), ("mixtral", "Q4_0"), ("gpt-oss", "MXFP4")])
def test_experts_of_a_gguf_file_stay_blocks(family, storage, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    sizes = {"hidden_size": 64, "intermediate_size": 64}
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", family, storage=storage, model=network(family, **sizes)))
    model, on_cpu = (
        load_llama(folder, torch.float32, torch.device(device), None, BatchLimits(prefill_chunk=16), quant_format=each)
        for device, each in (("cuda", "gguf"), ("cpu", "float"))
    )

    experts = mixtures(model)[0].down_proj
    assert isinstance(experts.stack, BlockLinear) and experts.is_batch_invariant
    assert model.has_graphs and model.is_exact
    assert writes_the_text_of_the_cpu(model, on_cpu)


def test_published_experts_of_gpt_oss_stay_four_bits(tmp_path):
    tensors, config = load_file(saved("gpt_oss") / FILE), json.loads((saved("gpt_oss") / "config.json").read_text())
    for name in [each for each in tensors if each.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        tensors |= {f"{name}{part}": each for part, each in packed(experts, outputs, inputs).items()}
    save_file(tensors, tmp_path / FILE)
    config["quantization_config"] = {"quant_method": "mxfp4"}
    Path(tmp_path / "config.json").write_text(json.dumps(config))
    model, on_cpu = (
        load_llama(tmp_path, torch.float32, torch.device(device), None, BatchLimits(prefill_chunk=16))
        for device in ("cuda", "cpu")
    )

    stacks = [stack for each in mixtures(model) for stack in (each.gate_up_proj.stack, each.down_proj.stack)]
    assert all(isinstance(each, BlockLinear) and each.parts[0].type_name == "MXFP4" for each in stacks)
    assert model.has_graphs and model.bytes < 0.5 * on_cpu.bytes
    assert writes_the_text_of_the_cpu(model, on_cpu)


@pytest.mark.skipif(not IS_INTERPRETED, reason="the fake GPU counts launches")
def test_the_experts_of_a_layer_launch_few_kernels_whatever_the_number_of_rows(gpu):
    model = target("dense-qwen3_moe", device="cuda")
    assert isinstance(model, LlamaModel)
    mixture, launches = mixtures(model)[0], set[int]()
    for count in (1, 5, 40):
        rows = torch.randn(count, 48, generator=torch.Generator().manual_seed(1)).cuda()
        mixture(rows, model.ops)
        gpu.reset()
        mixture(rows, model.ops)
        launches.add(gpu.launches)
        assert not gpu.waits

    assert len(launches) == 1 and launches.pop() <= MOST_LAUNCHES_OF_EXPERTS, launches
