"""What the planner says before loading, and what the tensors of the fake GPU take afterwards."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from specchat.engine.decode import Generation
from specchat.forward.batch import BatchLimits
from specchat.hub.memory_plan import GIB, PYTHON_BYTES, QuantizedModel, plan_memory, workspace_bytes
from specchat.hub.safetensors_headers import read_architecture
from specchat.weights.llama_weights import load_llama
from tests.fake_gpu import fake_gpu

pytestmark = pytest.mark.full

CPU_FORMATS = {"float": "bf16", "int8": "int8", "nf4": "int8"}
FORMATS = {"float": "bf16", "int8": "int8", "fp8": "fp8", "nf4": "nf4", "nf4-double": "nf4-double"}


@pytest.fixture(scope="module", params=[False, True], ids=["own output matrix", "tied embeddings"])
def folder(request, tmp_path_factory) -> Path:
    """A network large enough that norms and tables do not matter."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("sized")
    config = Qwen3Config(
        vocab_size=8192, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, tie_word_embeddings=request.param,
    )  # fmt: skip
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("quant_format", FORMATS)
def test_the_weights_take_what_was_planned(folder, quant_format):
    planned = QuantizedModel(read_architecture(folder), FORMATS[quant_format]).weight_bytes()
    with fake_gpu() as gpu:
        model = load_llama(folder, torch.bfloat16, torch.device("cuda"), None, BatchLimits(), quant_format=quant_format)
        gc.collect()

        assert gpu.held_bytes - model.pool.bytes == pytest.approx(planned, rel=0.03)
        assert model.bytes == pytest.approx(planned, rel=0.03)


@pytest.mark.parametrize("quant_format", ["float", "int8", "nf4"])
def test_layers_in_main_memory_take_what_was_planned(folder, quant_format):
    architecture, on_cpu = read_architecture(folder), CPU_FORMATS[quant_format]
    quantized = QuantizedModel(architecture, FORMATS[quant_format], cpu_layers=3, cpu_format=on_cpu)
    plan = plan_memory(quantized, None, 900)
    with fake_gpu() as gpu:
        limits, cuda = BatchLimits(), torch.device("cuda")
        model = load_llama(folder, torch.bfloat16, cuda, 900, limits, quant_format=quant_format, cpu_layers=3)
        gc.collect()

        assert gpu.held_bytes == pytest.approx(plan.weight_bytes + plan.kv_cache_bytes, rel=0.03)
        rows = sum(stack.nbytes for stack in model.pool.arena.stacks.values() if stack.is_cpu)
        in_main_memory = model.bytes - plan.weight_bytes + rows
        assert in_main_memory == pytest.approx(plan.main_memory_bytes - PYTHON_BYTES, rel=0.03)


@pytest.mark.parametrize("quant_format", ["float", "int8", "nf4"])
def test_layers_on_other_gpus_take_what_was_planned(folder, quant_format):
    quantized = QuantizedModel(read_architecture(folder), FORMATS[quant_format], gpu_layers=(1, 2))
    plan, workspace = plan_memory(quantized, None, 900), workspace_bytes(quantized, 900, has_logits=False)
    with fake_gpu(other_gpus=(GIB, GIB)) as gpu:
        limits, cuda = BatchLimits(), torch.device("cuda")
        model = load_llama(folder, torch.bfloat16, cuda, 900, limits, quant_format=quant_format, gpu_layers=(1, 2))
        gc.collect()

        assert gpu.held_on(0) == pytest.approx(plan.weight_bytes + plan.kv_cache_bytes, rel=0.03)
        for number, planned in enumerate(plan.other_gpu_bytes, 1):
            assert gpu.held_on(number) == pytest.approx(planned - workspace, rel=0.04)
        assert len(model.weights.layers) == 4


@pytest.mark.parametrize("quant_format", ["float", "nf4"])
def test_weights_and_the_kv_arena_take_what_was_planned(folder, quant_format):
    model_plan = QuantizedModel(read_architecture(folder), FORMATS[quant_format])
    plan = plan_memory(model_plan, None, 900)
    with fake_gpu() as gpu:
        model = load_llama(folder, torch.bfloat16, torch.device("cuda"), 900, BatchLimits(), quant_format=quant_format)
        gc.collect()
        held, conversations = gpu.held_bytes, [Generation(model) for _ in range(3)]
        assert held == pytest.approx(plan.weight_bytes + plan.kv_cache_bytes, rel=0.03)
        assert model.pool.bytes == plan.kv_cache_bytes

        for each in conversations:
            with model.pool.acquire_slot(each.cache, 900):
                pass
        gc.collect()

        assert gpu.held_bytes == held
