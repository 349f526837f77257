"""The plan of loading a profile is complete before anything is loaded, and it needs no torch."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from specchat.devices import CPU, CUDA
from specchat.errors import ModelError
from specchat.hub import memory_plan, safetensors_headers
from specchat.hub.machine import Device, Machine
from specchat.hub.memory_plan import fitting_format, weight_bytes
from specchat.hub.safetensors_headers import read_architecture
from specchat.loading import load_plan
from specchat.loading.load_engine import load_engine
from specchat.loading.load_plan import (
    EMBEDDED_HEADS,
    RECOMMEND_HINT,
    ComputeFeatures,
    check_named_drafters,
    drafters_that_fit,
    plan_load,
)
from specchat.profile.keys import Profile
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.load_options import EMBEDDED
from tests.each_row import each_row
from tests.gguf_models import write_gguf
from tests.tiny import tiny_profile

OLD_CPU, NEW_CPU, GPU = ComputeFeatures("cpu", False), ComputeFeatures("cpu", True), ComputeFeatures("cuda", True)
FAST_BLOCKS = ComputeFeatures("cpu", has_cpu_bf16=True, has_fast_gguf_blocks=True)
MACHINE = Machine((Device(CPU, "a CPU", 2**40, 2**40),))


def test_the_plan_of_the_default_profile_names_the_embedded_models_and_heads():
    plan = plan_load(Profile(), OLD_CPU)

    assert plan.draft is not None
    assert [EMBEDDED / "target", EMBEDDED / "draft"] == [plan.target.folder, plan.draft.folder]
    assert [EMBEDDED / source.removeprefix("embedded/") for source in EMBEDDED_HEADS] == [
        head.path for head in plan.heads
    ]


@each_row("features, device, dtype", [(OLD_CPU, "cpu", "float32"), (NEW_CPU, "cpu", "auto"), (GPU, "cuda", "auto")])
def test_device_and_dtype_follow_from_the_hardware(features, device, dtype):
    options = plan_load(tiny_profile(), features).target.options

    assert (device, dtype) == (options.device, options.dtype)


def test_the_profile_overrides_device_dtype_and_format():
    profile = tiny_profile().override({"models.device": "cpu", "models.dtype": "bfloat16", "models.weights": "int8"})

    target = plan_load(profile, GPU).target

    assert ("cpu", "bfloat16", "int8") == (target.options.device, target.options.dtype, target.options.quant_format)
    assert target.memory_format == "int8"


def test_the_engine_is_loaded_as_planned():
    profile = tiny_profile().override({"models.device": "cpu", "models.dtype": "bfloat16"})
    layout = load_engine(profile).models.target.pool.layout

    assert (plan_load(profile, OLD_CPU).target.options.dtype, "cpu") == (str(layout.dtype)[6:], layout.device.type)


def test_a_missing_hub_model_is_planned_without_a_download(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    plan = plan_load(tiny_profile().override({"models.target": "no/such", "models.heads": ["no/head"]}), OLD_CPU)

    assert plan.target.folder is None
    assert plan.memory() is None
    assert [line.role for line in plan.lines() if not line.is_local] == ["target", "head"]
    assert "specchat models pull no/such" in plan.text(MACHINE)


def test_a_missing_folder_and_a_server_profile_are_errors():
    with pytest.raises(ModelError, match="no such folder"):
        plan_load(tiny_profile().override({"models.target": "./none"}), OLD_CPU)
    with pytest.raises(ModelError, match="uses a server"):
        plan_load(tiny_profile().override({"models.backend": "vllm", "models.url": "http://localhost:1"}), OLD_CPU)


def test_the_plan_counts_a_kv_cache_in_8_bits():
    profile = Profile().override({"models.draft": ""})
    floats, int8 = (plan_load(profile.override({"models.kv_cache": each}), OLD_CPU) for each in ("float", "int8"))
    architecture = floats.target.architecture()

    assert "int8 KV cache" in int8.text(MACHINE)
    assert "KV cache" not in floats.target.describe()
    assert int8.memory().kv_cache_bytes * 4 == floats.memory().kv_cache_bytes * (1 + 4 / architecture.head_size)


def test_the_text_of_a_plan_has_a_line_for_each_model_and_the_memory():
    rows = [row.split()[0] for row in plan_load(Profile(), OLD_CPU).text(MACHINE).splitlines()]

    assert rows == ["target", "draft", *["head"] * len(EMBEDDED_HEADS), "context", "memory"]


def test_the_memory_of_a_plan_counts_its_heads():
    with_heads, alone = (
        plan_load(Profile().override({"models.heads": heads}), OLD_CPU) for heads in (("embedded",), ())
    )

    heads = sum(file.stat().st_size for head in with_heads.heads for file in head.path.glob("*.safetensors"))
    assert heads > 0
    assert with_heads.memory().drafter_bytes == alone.memory().drafter_bytes + heads


@each_row("free, words", [(2**40, "; fits, "), (1, "; does not fit, 0 MiB are free on a CPU")])
def test_the_text_of_a_plan_says_whether_it_fits(free, words):
    assert words in plan_load(Profile(), OLD_CPU).text(Machine((Device(CPU, "a CPU", free, 2**40),)))


def test_a_draft_and_heads_of_another_target_are_left_out_with_a_line_each():
    profile = tiny_profile().override({"models.draft": "embedded", "models.heads": [str(EMBEDDED / "mtp"), "embedded"]})

    plan = plan_load(profile, OLD_CPU)

    assert (None, ()) == (plan.draft, plan.heads)
    assert [("draft", True), ("head", True)] == [(line.role, line.is_left_out) for line in plan.lines()][1:]
    assert all(line.text in plan.text(MACHINE) for line in plan.lines())
    assert all("specchat models recommend" in notice for notice in plan.notices)


def test_the_drafters_of_the_embedded_target_fit_a_copy_of_it(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(EMBEDDED / "target", copy)
    drafters = {"models.draft": "embedded", "models.heads": [str(EMBEDDED / "eagle3")]}
    profile = Profile().override({"models.target": str(copy), **drafters})

    plan = plan_load(profile, OLD_CPU)

    assert plan.draft is not None
    assert (1, ()) == (len(plan.heads), plan.left_out)


def test_the_line_names_a_published_drafter_of_a_target_of_the_catalog():
    assert "Qwen3-8B" in drafters_that_fit("/models/Qwen3-8B")
    assert RECOMMEND_HINT == drafters_that_fit("/models/mine")


@each_row(
    "values, names, fault",
    [
        ({"models.draft": "embedded"}, {"names_draft": True}, "draft embedded does not fit"),
        ({"models.heads": ["embedded"]}, {"names_heads": True}, "head embedded does not fit"),
        ({"models.heads": ["embedded/eagle3"]}, {"names_heads": True}, "head embedded/eagle3 does not fit"),
    ],
)
def test_a_drafter_that_the_user_names_must_fit(values, names, fault):
    chosen = {"names_draft": False, "names_heads": False} | names

    with pytest.raises(ModelError, match=fault):
        check_named_drafters(tiny_profile().override(values), **chosen)
    check_named_drafters(tiny_profile().override(values), names_draft=False, names_heads=False)


def test_a_gguf_file_is_planned_before_and_after_its_preparation(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    path = write_gguf(tmp_path / "tiny.gguf")
    profile = tiny_profile().override({"models.target": str(path)})

    before = plan_load(profile, OLD_CPU)
    prepared_gguf(path)
    after = plan_load(profile, OLD_CPU)

    assert f"target  {path} (GGUF): float32 on cpu" in before.text(MACHINE)
    assert before.text(MACHINE) == after.text(MACHINE)
    assert before.memory() == after.memory()
    assert all(line.is_local for line in before.lines())


def test_the_memory_of_a_prepared_file_is_that_of_its_tensors_and_no_network_is_built(tmp_path, monkeypatch):
    """transformers, which would build it, takes a hundred megabytes of an engine process."""
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    path = write_gguf(tmp_path / "tiny.gguf")
    prepared_gguf(path)
    monkeypatch.setattr(safetensors_headers, "architecture_from_config", None)

    assert plan_load(tiny_profile().override({"models.target": str(path)}), OLD_CPU).memory() is not None


@pytest.mark.full
def test_planning_imports_no_torch():
    code = (
        "import sys; from specchat.loading.load_plan import *; from specchat.profile.keys import Profile;"
        "from specchat.hub.machine import detect_machine;"
        "print(plan_load(Profile(), ComputeFeatures('cpu', False)).text(detect_machine()));"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@each_row(
    "settings, features, weights",
    [
        ({}, FAST_BLOCKS, "gguf"),
        ({}, NEW_CPU, "float"),
        ({"device": "cuda"}, NEW_CPU, "gguf"),
        ({"device": "cuda", "dtype": "float16"}, GPU, "float"),
        ({"device": "mps"}, FAST_BLOCKS, "float"),
        ({"dtype": "float32"}, FAST_BLOCKS, "float"),
        ({"weights": "float"}, FAST_BLOCKS, "float"),
        ({"weights": "int8"}, FAST_BLOCKS, "int8"),
    ],
)
def test_a_gguf_file_is_computed_as_it_is_stored_where_that_is_fast(tmp_path, monkeypatch, settings, features, weights):
    monkeypatch.setattr(load_plan, "missing_triton", lambda: "")
    path = write_gguf(tmp_path / "tiny.gguf")
    profile = tiny_profile().override(
        {"models.target": str(path), **{f"models.{key}": value for key, value in settings.items()}}
    )

    assert weights == plan_load(profile, features).target.options.quant_format


@each_row("flags, is_fast", [(["AVX2"], True), (["AVX2", "AMX"], True), (["NEON"], False)])
def test_blocks_are_fast_on_a_cpu_with_vectors(flags, is_fast):
    cpu = Device(CPU, "cpu", 1, 1)

    assert is_fast == ComputeFeatures.of_machine(Machine((cpu,), tuple(flags))).has_fast_gguf_blocks


@each_row("bits", [4, 5, 8])
def test_blocks_of_a_file_are_planned_with_their_own_bits(tmp_path, bits):
    path = write_gguf(tmp_path / "tiny.gguf", storage=f"Q{bits}_0")

    plan = plan_load(tiny_profile().override({"models.target": str(path)}), FAST_BLOCKS)

    assert plan.target.memory_format == f"gguf{bits}"


@each_row("missing, quant_format, memory_format", [("", "gguf", "gguf"), ("no Triton", "float", "bf16")])
def test_blocks_on_a_gpu_are_planned_as_they_are_stored(tmp_path, monkeypatch, missing, quant_format, memory_format):
    for module in (load_plan, memory_plan):
        monkeypatch.setattr(module, "missing_triton", lambda: missing)
    path = write_gguf(tmp_path / "tiny.gguf", "qwen3", storage="Q8_0")

    plan = plan_load(tiny_profile().override({"models.target": str(path), "models.device": "cuda"}), GPU)

    memory, known = plan.memory(), plan.target.architecture()
    assert (quant_format, memory_format) == (plan.target.options.quant_format, plan.target.memory_format)
    assert memory is not None and known is not None
    assert (memory.weight_bytes < 1.1 * path.stat().st_size) == (missing == "")
    assert fitting_format(known, memory.total_bytes, 512, kind=CUDA) == "bf16"  # the list says: fits


def test_blocks_without_a_kernel_on_a_gpu_are_planned_as_floats(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", "qwen3", storage="F16")

    known = read_architecture(path)

    assert known.block_bytes == weight_bytes(known, "bf16")


def test_a_folder_is_computed_in_floats():
    assert plan_load(tiny_profile(), FAST_BLOCKS).target.options.quant_format == "float"
