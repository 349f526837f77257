"""Each kind of device is asked in one file, and computes the text of a CPU; GPUs are simulated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from specchat import devices
from specchat.checks import health_checks
from specchat.checks.health_checks import OK, WARN, CheckContext, Finding
from specchat.devices import CPU, CUDA, KINDS, MPS, XPU, DeviceMemory, check_available, gpu_memory, kind_of
from specchat.drafters.eagle.eagle_drafter import EagleDrafter
from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.selftest import load_selected_head
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.llama.llama import LlamaModel
from specchat.hub.machine import Machine, main_memory, probed_gpus
from specchat.hub.memory_plan import GIB, PYTHON_BYTES, QuantizedModel, plan_memory, workspace_bytes
from specchat.hub.package_probes import PROBES
from specchat.hub.safetensors_headers import read_architecture
from specchat.loading.engine_memory import SPARE_SHARE, compute_features, free_bytes
from specchat.weights.load import load_model
from specchat.weights.load_options import EMBEDDED, LoadOptions
from tests.each_row import each_row
from tests.fake_gpu import fake_gpu
from tests.tiny import Chaos, saved, target

SOURCES = Path(devices.__file__).parent
NAMES_A_DEVICE = re.compile(r"torch\.(cuda|mps|xpu)\b|\.type [!=]= \"(cuda|mps|xpu)\"|is_cuda\b")
SAMPLERS = {
    "greedy": Sampler(),
    "warm": Sampler(temperature=0.8, seed=3),
    "narrow": Sampler(temperature=0.9, top_p=0.8, top_k=20, min_p=0.02, repetition_penalty=1.1, seed=3),
}
NO_GRAPHS = pytest.mark.parametrize("kind", ["mps", "xpu"])


def written(model: Model, drafter: Drafter, sampler: Sampler = SAMPLERS["greedy"]) -> list[int]:
    generation = Generation(model, () if type(drafter) is Drafter else (drafter,))
    generation.replace_tokens([5, 6, 7, 8, 5, 6])
    with model.pool.acquire_slot(generation.cache, 80):
        list(generation.prefill())
        list(generation.decode(GenerationConfig(drafter, sampler, 4, 12)))
    return generation.tokens


def test_only_the_capture_of_cuda_graphs_names_a_kind_of_gpu():
    naming = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if NAMES_A_DEVICE.search(path.read_text(encoding="utf-8"))
    }

    assert naming == {"forward/cuda/cuda_graphs.py"}


@pytest.mark.dear
@NO_GRAPHS
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("shape", ["dense-qwen3", "dense-mistral", "llama"])
def test_a_gpu_without_graphs_writes_the_text_of_a_cpu(kind, shape, sampler):
    expected = written(target(shape), Drafter(), SAMPLERS[sampler])
    with fake_gpu(kind) as gpu:
        model = target(shape, device=kind)

        assert model.pool.layout.device.type == kind and model.pool.arena is None
        assert written(model, Drafter(), SAMPLERS[sampler]) == expected
        if sampler != "rejecting":
            assert written(model, Chaos(3), SAMPLERS[sampler]) == expected
        assert 0 == gpu.captures == gpu.replays
        if isinstance(model, LlamaModel):
            assert model.graphs is None


@pytest.mark.full
@pytest.mark.parametrize("kind", ["mps", pytest.param("xpu", marks=pytest.mark.full)])
def test_a_head_drafts_there_without_graphs(kind):
    options = LoadOptions("float32", kind, 1024, exact=True)
    expected = written(load_model(EMBEDDED / "target", LoadOptions("float32", "cpu", 1024)), Drafter())
    with fake_gpu(kind) as gpu:
        model = load_model(EMBEDDED / "target", options)
        head = load_selected_head(inspect_head(EMBEDDED / "eagle3"), model, None, model.pool.layout.device)
        assert isinstance(head, EagleHead)
        model.set_hidden_state_layers(head.hidden_state_layers)

        assert written(model, EagleDrafter(head, model)) == expected
        assert 0 == gpu.captures


@pytest.mark.dear
@NO_GRAPHS
def test_int8_weights_are_dequantized_there_and_smaller_ones_are_refused_in_one_line(kind, capsys):
    with fake_gpu(kind):
        model = load_model(saved("qwen3"), LoadOptions("float32", kind, 1024, quant_format="int8"))
        assert len(written(model, Drafter())) > 6
        with pytest.raises(ModelError) as refused:
            load_model(saved("qwen3"), LoadOptions("float32", kind, 1024, quant_format="nf4"))

    assert "no int8 matmul" in capsys.readouterr().err
    assert f"device {kind} has no kernel for nf4 weights; use --weights float or gguf or int8" in str(refused.value)


@pytest.mark.parametrize("kind", ["cuda", "mps", "xpu"])
def test_a_device_that_torch_does_not_have_is_one_line(kind):
    if devices.is_available(KINDS[kind]):
        pytest.skip("it is here")
    with pytest.raises(ModelError) as error:
        load_model(saved("qwen3"), LoadOptions(device=kind))

    assert f"device {kind}: torch {torch.__version__} finds no {KINDS[kind].title}; use --device " in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_device_is_one_line():
    with pytest.raises(ModelError, match=r"device npu:1: unknown; --device takes auto, cpu, cuda, mps, xpu"):
        check_available("npu:1")


@each_row("kind", ["cuda", "mps", "xpu"])
def test_auto_is_the_gpu_that_torch_finds(kind):
    with fake_gpu(kind):
        assert (kind, kind) == (devices.default_device(), compute_features().default_device)
        check_available(kind)


def test_the_memory_of_a_gpu_comes_from_torch(monkeypatch):
    with fake_gpu("cuda", memory_bytes=8 * GIB):
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 300)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 100)
        assert DeviceMemory(8 * GIB + 200, 8 * GIB) == gpu_memory("cuda:0")  # a cache of closed engines is free


def test_an_apple_gpu_has_the_share_of_main_memory_that_the_system_recommends(monkeypatch):
    from specchat.loading import engine_memory

    with fake_gpu("mps", memory_bytes=8 * GIB):
        held = torch.zeros(GIB, dtype=torch.uint8, device="mps")
        assert DeviceMemory(7 * GIB, 8 * GIB) == gpu_memory("mps")
        for main, expected in ((100 * GIB, 7 * GIB), (2 * GIB, 2 * GIB)):
            device = type("Main", (), {"free_bytes": main})
            monkeypatch.setattr(engine_memory, "main_memory", lambda device=device: device)
            assert round((1 - SPARE_SHARE) * expected) == free_bytes("mps")
        del held


def test_a_driver_of_intel_that_tells_no_free_memory_tells_the_total(monkeypatch):
    def unsupported(_device: object) -> tuple[int, int]:
        raise RuntimeError("The device (Intel(R) Graphics) doesn't support querying the available free memory.")

    with fake_gpu("xpu"):
        monkeypatch.setattr(torch.xpu, "mem_get_info", unsupported)
        monkeypatch.setattr(torch.xpu, "memory_reserved", lambda _device: 2 * GIB)
        monkeypatch.setattr(torch.xpu, "memory_allocated", lambda _device: 2 * GIB)
        properties = type("Properties", (), {"total_memory": 16 * GIB})
        monkeypatch.setattr(torch.xpu, "get_device_properties", lambda _device: properties)

        assert DeviceMemory(14 * GIB, 16 * GIB) == gpu_memory("xpu:0")


def test_the_planner_counts_no_arena_and_no_cuda_where_there_is_none():
    model = QuantizedModel(read_architecture(EMBEDDED / "target"), "bf16")
    plans = {kind.name: plan_memory(model, None, 4096, kind=kind) for kind in (CPU, CUDA, MPS, XPU)}

    assert plans["mps"].kv_cache_bytes == plans["xpu"].kv_cache_bytes == plans["cpu"].kv_cache_bytes
    assert plans["cuda"].kv_cache_bytes > plans["mps"].kv_cache_bytes
    assert plans["cuda"].weight_bytes == plans["mps"].weight_bytes
    assert PYTHON_BYTES < workspace_bytes(model, 4096, kind=MPS) < workspace_bytes(model, 4096, kind=CUDA)


@each_row(
    "kind, hip, expected",
    [("cuda", "6.4.1", "ROCm 6.4.1"), ("cuda", None, "CUDA 12.8"), ("xpu", None, "XPU 2025")],
)
def test_torch_is_built_for(kind, hip, expected, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.version, "cuda", None if hip else "12.8")
    monkeypatch.setattr(torch.version, "xpu", "2025", raising=False)

    assert expected == devices.platform_of(kind_of(kind))


@each_row("kind", ["cuda", "mps", "xpu"])
def test_the_probe_of_torch_lists_each_gpu(kind):
    with fake_gpu(kind, memory_bytes=4 * GIB):
        found = PROBES["torch"]()

    [gpu] = found["gpus"]
    assert (kind, 4 * GIB, 4 * GIB) == (gpu["kind"], gpu["free"], gpu["total"])
    assert gpu["name"]


@each_row("kind, reason", [("cuda", "Triton is not installed"), ("mps", "Apple GPUs have none")])
def test_the_probe_of_triton_says_why_there_is_no_kernel(kind, reason):
    with fake_gpu(kind):
        assert {"error": reason} == PROBES["triton_kernels"]()


def findings(gpus: list[dict[str, object]], kernels: dict[str, object]) -> dict[str, Finding]:
    context = CheckContext()
    torch_probe = {"version": "2.13", "platform": "", "threads": 2, "computes": True, "gpus": gpus}
    context.__dict__["package_probes"] = {"torch": torch_probe, "triton_kernels": kernels}
    context.__dict__["machine"] = Machine((*probed_gpus(torch_probe), main_memory()))
    found = [*health_checks.CHECKS["torch"](context), *health_checks.CHECKS["devices"](context)]
    return {each.check: each for each in found}


def test_doctor_says_what_is_used_on_a_device_and_what_was_never_tried():
    gpu = {"kind": "cuda", "name": "a GPU", "free": 8 * GIB, "total": 8 * GIB}
    probe = {"computes": True, "has_int4": True, "has_blocks": True}
    with_kernels = findings([gpu], probe)["device cuda"].message
    without = findings([gpu], {"error": "Failed to find C compiler"})["device cuda"].message
    apple = findings([gpu | {"kind": "mps"}], {})["device mps"].message

    assert "CUDA graphs, Triton kernels compiled and compared with torch, AWQ and GPTQ stay in 4 bits, " in with_kernels
    assert "GGUF files keep their blocks" in with_kernels
    assert "CUDA graphs, no Triton kernels: Failed to find C compiler" in without
    assert (
        "no graphs, no kernels of our own: torch computes, and nothing stays in 4 bits; weights float, gguf, int8;"
        in apple
    )
    assert apple.endswith("nothing of it was ever tried on a real one")
    assert all(found.endswith("tried on an NVIDIA H200 alone, with Linux") for found in (with_kernels, without))


def test_doctor_warns_of_a_driver_without_a_gpu_in_torch(monkeypatch):
    for maker, index in (("NVIDIA", "cu130"), ("AMD", "rocm6.4"), ("Intel", "xpu")):
        monkeypatch.setattr(health_checks, "drivers", lambda maker=maker: (maker,))
        found = findings([], {})["gpus"]

        assert WARN == found.status
        assert f"a driver of {maker} is loaded, and torch, built for no GPU, finds no GPU" in found.message
        assert f"https://download.pytorch.org/whl/{index}" in found.message


def test_a_driver_is_found_in_the_folder_of_windows(tmp_path, monkeypatch):
    monkeypatch.setenv("SYSTEMROOT", str(tmp_path))
    (tmp_path / "System32").mkdir()
    before = devices.drivers()
    (tmp_path / "System32" / "nvcuda.dll").touch()
    (tmp_path / "System32" / "amdhip64_6.dll").touch()

    assert "NVIDIA" not in before and {"NVIDIA", "AMD"} <= set(devices.drivers())


def test_windows_is_told_its_own_package_of_triton(monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda _name: None)
    elsewhere = devices.missing_triton()
    monkeypatch.setattr(devices.sys, "platform", "win32")

    assert elsewhere == "Triton is not installed"
    assert devices.missing_triton() == "Triton is not installed (pip install triton-windows)"


def test_a_quick_doctor_says_that_it_looks_for_no_gpu():
    [found] = health_checks.CHECKS["devices"](CheckContext(skips_measurements=True))

    assert (OK, "gpus") == (found.status, found.check)
