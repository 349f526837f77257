"""The catalog, the memory plan against known totals, and recommendations."""

from __future__ import annotations

import re
from dataclasses import astuple, replace
from statistics import median

import pytest

from specchat.devices import CPU, CUDA, MPS
from specchat.engine.cache_sizes import SCRATCH_ROWS, slot_rows
from specchat.errors import ModelError
from specchat.hub import catalog as hub_catalog
from specchat.hub import machine as hub_machine
from specchat.hub import memory_plan as hub_memory_plan
from specchat.hub.catalog import GPU_SIZES_GB, catalog, catalog_review_date, find_entry, head_architecture
from specchat.hub.find_models import find_model
from specchat.hub.local_models import cached_folder, local_models, locate_model
from specchat.hub.machine import Bandwidth, Device, Machine, probed_gpus, simulated_gpu
from specchat.hub.memory_plan import (
    GIB,
    STORAGE_FORMATS,
    QuantizedModel,
    can_quantize,
    kv_cache_bytes,
    plan_memory,
    usable_gpu_bytes,
    weight_bytes,
)
from specchat.hub.pair_text import describe_device, describe_pair, describe_speed, profile_text
from specchat.hub.recommend import (
    FORMAT_QUALITY,
    DrafterChoice,
    ModelPair,
    drafter_quant_format,
    fitting_gpu_sizes,
    recommend,
)
from specchat.own_tables import own_tables
from specchat.profile.profile_files import load_profile
from tests.each_row import each_row
from tests.processes import modules_after

# From published configs, computed by hand: target, its format, drafter, its format, GPU in GB, GiB at 8k tokens.
PAIRS = [
    ("Qwen2.5-Coder-7B-Instruct", "nf4-double", "Qwen2.5-Coder-0.5B-Instruct", "nf4-double", 8, 7.1),
    ("Qwen3-4B", "nf4-double", "eagle3", "bf16", 8, 5.8),
    ("Llama-3.1-8B-Instruct", "nf4-double", "eagle3", "bf16", 8, 8.1),
    ("Qwen3-8B", "nf4-double", "eagle3", "bf16", 12, 8.5),
    ("Qwen2.5-Coder-7B-Instruct", "int8", "Qwen2.5-Coder-0.5B-Instruct", "bf16", 12, 10.5),
    ("Qwen2.5-Coder-14B-Instruct", "nf4-double", "Qwen2.5-Coder-0.5B-Instruct", "nf4-double", 12, 12.1),
    ("Qwen3-14B", "nf4-double", "eagle3", "bf16", 16, 12.6),
    ("Qwen2.5-Coder-14B-Instruct", "nf4-double", "Qwen2.5-Coder-1.5B-Instruct", "nf4-double", 16, 13.0),
    ("gpt-oss-20b", "mxfp4", "eagle3", "bf16", 24, 15.3),
    ("Mistral-Small-24B-Instruct-2501", "nf4-double", "", "", 16, 15.5),
    ("Qwen2.5-Coder-32B-Instruct", "nf4-double", "Qwen2.5-Coder-0.5B-Instruct", "bf16", 24, 21.8),
    ("Qwen3-32B", "nf4-double", "eagle3", "bf16", 24, 22.4),
    ("Qwen3-8B", "bf16", "eagle3", "bf16", 24, 18.1),
    ("Llama-3.1-8B-Instruct", "bf16", "eagle3", "bf16", 24, 17.8),
    ("Qwen2.5-Coder-14B-Instruct", "int8", "Qwen2.5-Coder-0.5B-Instruct", "bf16", 24, 18.6),
    ("gemma-3-27b-it", "nf4-double", "gemma-3-1b-it", "nf4-double", 32, 23.7),
    ("Llama-3.3-70B-Instruct", "nf4-double", "eagle3", "bf16", 48, 42.9),
    ("Qwen2.5-Coder-32B-Instruct", "int8", "Qwen2.5-Coder-1.5B-Instruct", "bf16", 48, 37.9),
    ("Qwen3-14B", "bf16", "eagle3", "bf16", 48, 30.9),
]
# Parameters in billions; GiB in bf16, INT8, NF4 with double quantization; KiB of KV cache per token.
MODELS = [
    ("Qwen2.5-Coder-0.5B-Instruct", 0.49, 0.9, 0.6, 0.4, 12),
    ("Qwen3-8B", 8.19, 15.3, 8.2, 4.9, 144),
    ("Llama-3.3-70B-Instruct", 70.55, 131.4, 66.7, 36.3, 320),
    ("gemma-2-9b-it", 9.24, 17.2, 9.5, 5.8, 336),
    ("gemma-3-27b-it", 27.01, 50.3, 26.5, 15.3, 496),
    ("deepseek-coder-6.7b-instruct", 6.74, 12.6, 6.4, 3.5, 512),
    ("phi-4", 14.66, 27.3, 14.1, 8.0, 200),
    ("Mistral-7B-Instruct-v0.3", 7.25, 13.5, 6.9, 3.8, 128),
]
APPLE = Device(MPS, "an Apple GPU", 32 * GIB, 32 * GIB)
CPU_SKILLS = ("AVX2", "AVX512", "VNNI", "BF16")


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """Only the built-in profiles, and an empty cache of the hub."""
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def main_memory(gib: float) -> Device:
    return Device(CPU, "some CPU", int(gib * GIB), int(gib * GIB))


def quantized(target: str, drafter: str, quant_format: str) -> QuantizedModel | None:
    if not drafter:
        return None
    entry = find_entry(drafter)
    return QuantizedModel(
        entry.architecture if entry else head_architecture(find_entry(target).id, drafter), quant_format
    )


@each_row("target, quant_format, drafter, drafter_format, gpu, gib", PAIRS)
def test_the_memory_plan_of_a_pair_is_the_known_total(target, quant_format, drafter, drafter_format, gpu, gib):
    model = QuantizedModel(find_entry(target).architecture, quant_format)
    plan = plan_memory(model, quantized(target, drafter, drafter_format), 8192)

    assert plan.total_bytes / GIB == pytest.approx(gib, rel=0.05)


@each_row("name, parameters, bf16, int8, nf4, row", MODELS)
def test_the_memory_of_a_model_is_the_known_total(name, parameters, bf16, int8, nf4, row):
    architecture = find_entry(name).architecture
    gib = [weight_bytes(architecture, quant_format) / GIB for quant_format in ("bf16", "int8", "nf4-double")]

    assert architecture.parameters / 1e9 == pytest.approx(parameters, abs=0.006)
    assert gib == pytest.approx([bf16, int8, nf4], abs=0.06)
    assert row == kv_cache_bytes(architecture, 1024) / 2**20


@each_row("target, kind, gib", [
    ("Qwen3-1.7B", "eagle3", 0.25), ("Qwen3-4B", "eagle3", 0.41), ("Qwen3-8B", "eagle3", 0.74),
    ("Qwen3-32B", "eagle3", 1.46), ("Qwen3-8B", "dflash", 1.95),
])  # fmt: skip
def test_a_head_is_as_large_as_the_published_ones(target, kind, gib):
    assert weight_bytes(head_architecture(find_entry(target).id, kind), "bf16") / GIB == pytest.approx(gib, abs=0.03)


def test_every_drafter_is_in_the_catalog_and_has_the_tokens_of_its_target():
    for entry in catalog().values():
        assert all(catalog()[draft].token_family == entry.token_family for draft in entry.draft_models)
        assert all(
            catalog()[draft].architecture.parameters < entry.architecture.parameters for draft in entry.draft_models
        )
        assert all(
            head_architecture(entry.id, head.kind).hidden_size == entry.architecture.hidden_size
            for head in entry.usable_heads
            if head.kind == "mtp" or "intermediate_size" in entry.config  # else its MLP does not follow from the target
        )


def test_models_are_found_by_id_by_name_and_by_same_shape():
    ids = {find_entry(name).id for name in ("Qwen/Qwen3-8B", "qwen3-8b")}

    assert {"Qwen/Qwen3-8B"} == ids
    assert "Qwen/Qwen2.5-Coder-32B-Instruct" == find_entry("Qwen/QwQ-32B").id
    assert find_entry("nobody/nothing") is None


@pytest.mark.full
@each_row("gpu", GPU_SIZES_GB)
def test_a_recommended_pair_fits_and_its_profile_names_it(tmp_path, gpu):
    device = simulated_gpu(gpu)
    pairs = recommend(device)
    path = tmp_path / "it.toml"

    assert len(pairs) >= 3
    for pair in pairs:
        path.write_text(profile_text(pair, "it"), encoding="utf-8")
        profile = load_profile(str(path))

        assert pair.memory_plan.total_bytes <= device.free_bytes
        assert slot_rows(profile.limits.context + SCRATCH_ROWS) == profile.limits.context + SCRATCH_ROWS
        assert pair.entry.id == profile.models.target
        named = [each for each in (*profile.models.heads, profile.models.draft) if each != "auto"]
        assert named == [pair.drafter.id] * bool(pair.drafter.kind)
        assert pair.quant_format in (profile.models.weights, {"bfloat16": "bf16"}.get(profile.models.dtype))


@each_row("gpu, target, quant_format, drafter", [
    (8, "MiniCPM5-2B", "nf4-double", ""),
    (12, "granite-4.1-8b", "nf4-double", ""),
    (16, "gemma-4-12B-it", "nf4-double", ""),
    (24, "Qwen3.8-27B", "nf4-double", "mtp"),
    (48, "Qwen3.8-27B", "nf4-double", "mtp"),
    (96, "Qwen3.8-27B", "nf4-double", "mtp"),
])  # fmt: skip
def test_gpus_get_the_pairs_of_this_year(gpu, target, quant_format, drafter):
    best = recommend(simulated_gpu(gpu))[0]

    assert (target, quant_format, drafter) == (best.entry.name, best.quant_format, best.drafter.kind)


def test_quantized_weights_that_need_a_plugin_say_so(monkeypatch):
    pair = next(
        pair for pair in recommend(APPLE) if pair.entry.architecture.recurrent_elements and pair.quant_format == "int8"
    )
    line = f"{pair.quant_format} weights need a plugin: "

    assert any(line in told and "./plugins/specchat-hybrids" in told for told in describe_pair(pair))
    monkeypatch.setattr(hub_memory_plan, "find_extensions", lambda _kind: {"network-weights": None})
    assert not any(line in told for told in describe_pair(pair))


def test_a_larger_gpu_never_gets_the_same_model_slower():
    fastest = dict[str, float]()
    for size in GPU_SIZES_GB:
        for pair in recommend(simulated_gpu(size)):
            assert pair.token_seconds <= 1.05 * fastest.get(pair.entry.id, pair.token_seconds), (pair.entry.id, size)
            fastest[pair.entry.id] = pair.token_seconds


def test_a_model_with_graphs_is_priced_by_its_bytes_and_one_with_experts_by_their_kernels_too():
    pairs = {pair.entry.name: pair for pair in recommend(simulated_gpu(96))}
    names = "Qwen3.5-9B", "granite-4.1-8b", "Qwen3.6-35B-A3B", "gemma-4-26B-A4B-it"
    hybrid, dense, experts, one_by_one = (pairs[name] for name in names)

    assert hybrid.has_graphs and experts.has_graphs and not one_by_one.has_graphs
    assert dense.plain_seconds == pytest.approx(hybrid.plain_seconds, rel=0.3)
    read_seconds = 0.4 * dense.plain_seconds  # 3B parameters instead of 8B
    assert 40 * 0.1e-3 < experts.plain_seconds < 40 * 0.1e-3 + read_seconds
    assert one_by_one.plain_seconds == pytest.approx(30 * (0.8e-3 + 8 * 0.03e-3))


@each_row("gpu", GPU_SIZES_GB)
def test_every_pair_leaves_five_percent_of_the_memory_and_quantizes_only_what_the_engine_can(gpu):
    for pair in recommend(simulated_gpu(gpu)):
        assert pair.memory_plan.total_bytes <= 0.95 * usable_gpu_bytes(gpu)
        assert pair.quant_format == "bf16" or can_quantize(pair.entry.architecture)
        assert "" == pair.entry.not_recommended
        assert pair.drafter.kind in ("", "draft", "eagle3", "mtp")


def test_the_median_age_of_the_recommended_models_is_at_most_a_year():
    """By the day of the last review in the catalog: with today's date, it would begin to fail without a change."""
    reviewed = catalog_review_date()
    ages = [(reviewed - entry.released).days for entry in catalog().values() if not entry.not_recommended]

    assert median(ages) <= 365
    assert min(ages) >= 0, "the catalog has models that are newer than its review: set the date"


def test_unused_experts_lookups_and_encoders_are_not_active():
    small, experts = find_entry("gemma-4-E2B-it"), find_entry("gemma-4-26B-A4B-it")

    assert 2.2e9 < small.active_parameters < 2.4e9 < 5.0e9 < small.architecture.parameters
    assert 3.5e9 < experts.active_parameters < 4.6e9


def test_what_is_free_at_the_moment_does_not_change_the_choice_and_too_little_is_said():
    devices = [Device(CUDA, "a GPU", free * GIB, 80 * GIB) for free in (79, 70, 20)]
    idle, used, full = (recommend(device)[0] for device in devices)

    assert idle.entry is used.entry is full.entry
    assert "warning: only 20.0 GiB are free now" in told(full)
    assert "free now" not in told(idle)
    for free in (1, 7):
        device = Device(CPU, "some CPU", free * GIB, 8 * GIB)
        pair = recommend(device, Machine((), CPU_SKILLS, 20e9))[0]
        assert pair.entry is recommend(main_memory(8), Machine((), CPU_SKILLS, 20e9))[0].entry
        assert ("free now" in told(pair)) == (pair.memory_plan.total_bytes > free * GIB)


def test_a_long_context_leaves_memory_for_a_smaller_model_only():
    short, long = (
        max(pair.entry.architecture.parameters for pair in recommend(simulated_gpu(24), context_tokens=each))
        for each in (8192 - 256, 131072 - 256)
    )

    assert long < short


def test_without_a_gpu_the_memory_bandwidth_decides():
    slow, quick = (recommend(main_memory(128), Machine((), CPU_SKILLS, bandwidth))[0] for bandwidth in (12e9, 400e9))

    assert slow.entry.active_parameters < 4e9 < 20e9 < quick.entry.active_parameters
    assert all(pair.memory_plan.total_bytes <= 0.75 * 128 * GIB for pair in (slow, quick))
    assert describe_device(slow.device, slow.bandwidth).endswith("; speeds are estimated from 12 GB/s")


def told(pair: ModelPair) -> str:
    return "\n".join(describe_pair(pair))


def test_a_pair_without_a_drafter_says_which_plugin_drafts_with_its_head():
    for name in ("gemma-4-E2B-it", "gemma-4-31B-it"):
        pair = ModelPair(find_entry(name), "int8", DrafterChoice(), 8192, simulated_gpu(80))
        assert f"drafts of google/{name}-assistant: variant 'assistant' is of a plugin" in told(pair)
        assert "pip install ./plugins/specchat-heads" in told(pair)
    assert "of a plugin" not in "".join(told(pair) for pair in recommend(simulated_gpu(24)) if pair.drafter.kind)


def pair_with_mtp() -> ModelPair:
    return next(pair for pair in recommend(simulated_gpu(24)) if pair.entry.id == "Qwen/Qwen3.5-9B")


def test_without_the_plugin_a_hybrid_on_a_gpu_without_kernels_promises_no_drafts():
    pair = next(pair for pair in recommend(APPLE) if pair.entry.id == "Qwen/Qwen3.5-9B")
    pair = replace(pair, bandwidth=Bandwidth(100e9))

    assert not pair_with_mtp().lacks_plugin
    assert pair.token_seconds == pair.plain_seconds
    assert "draft" not in describe_speed(pair)
    assert "'pip install ./plugins/specchat-hybrids'" in list(describe_pair(pair))[2]
    assert "head" not in told(pair)
    assert not any(each.lacks_plugin for each in recommend(main_memory(64), machine=Machine((), CPU_SKILLS)))


def test_every_speed_says_what_it_follows_from():
    gpu, (cpu, *_) = pair_with_mtp(), recommend(main_memory(16), machine=Machine((), CPU_SKILLS))
    unknown, named = (
        next(pair for pair in recommend(Device(CUDA, name, 24 * GIB, 24 * GIB)) if pair.entry is gpu.entry)
        for name in ("NVIDIA Unknown 1", "NVIDIA GeForce RTX 4090")
    )

    assert "about 90 tokens/s, about 100 with drafts" == describe_speed(gpu)
    assert [True, True] == [
        describe_device(pair.device, pair.bandwidth).endswith(f"estimated from {text}")
        for pair, text in ((gpu, "936 GB/s (RTX 3090)"), (named, "1008 GB/s (RTX 4090)"))
    ]
    nothing = "speed: nothing is known of NVIDIA Unknown 1"
    assert f"{nothing}; 'specchat bench drafters' measures it" == describe_speed(unknown)
    assert "more where text repeats" in describe_speed(cpu)


def test_without_a_published_acceptance_the_speed_up_is_unknown():
    pairs = recommend(simulated_gpu(48))

    assert "speed-up by drafts: unknown" in describe_speed(next(each for each in pairs if each.drafter.kind == "draft"))


def test_a_suggestion_has_two_lines_with_the_download_and_the_licence():
    first, second = describe_pair(pair_with_mtp())

    assert "Qwen/Qwen3.5-9B: 18.4 GB to download (25 min at 100 Mbit/s), licence Apache-2.0" == first
    assert "GiB of 22.1 GiB in nf4-double with 8192 tokens; about" in second
    assert second.endswith("; with its own mtp head")


def test_a_cpu_without_bf16_gets_float32_and_one_without_vnni_no_int8():
    assert {"float32"} == {pair.quant_format for pair in recommend(main_memory(64), Machine((), ("AVX2",), 30e9))}
    assert {"int8"} == {pair.quant_format for pair in recommend(main_memory(64), Machine((), ("AVX2", "VNNI"), 30e9))}


@each_row("device, quant_format", [(main_memory(64), "int8"), (simulated_gpu(48), "bf16")])
def test_the_draft_of_an_int8_target_is_int8_on_a_cpu_only(device, quant_format, tmp_path):
    draft, draft_format = find_entry("Qwen3-0.6B"), drafter_quant_format("int8", kind=device.kind)
    drafter = DrafterChoice("draft", draft.id, QuantizedModel(draft.architecture, draft_format))
    path = tmp_path / "it.toml"
    path.write_text(profile_text(ModelPair(find_entry("Qwen3-8B"), "int8", drafter, 8192, device), "it"))

    assert quant_format == draft_format
    assert ("int8" if quant_format == "int8" else "auto") == load_profile(str(path)).models.draft_weights


def test_where_nothing_fits_nothing_is_recommended():
    assert [] == recommend(simulated_gpu(1))
    assert [] == recommend(main_memory(1))


def test_a_larger_gpu_never_fits_fewer_models():
    for entry in catalog().values():
        sizes = fitting_gpu_sizes(entry)

        assert sizes == GPU_SIZES_GB[len(GPU_SIZES_GB) - len(sizes) :]


def test_every_format_with_a_known_quality_has_a_size():
    assert STORAGE_FORMATS.keys() >= FORMAT_QUALITY.keys()


def test_a_mixture_of_experts_fits_where_its_quantized_experts_do():
    assert 24 == min(fitting_gpu_sizes(find_entry("Qwen3-30B-A3B-Instruct-2507")))
    assert 16 == min(fitting_gpu_sizes(find_entry("gpt-oss-20b")))


@pytest.mark.full
def test_the_hub_cache_is_read_without_huggingface_hub(tmp_path):
    snapshot = tmp_path / "hub" / "models--org--its-name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text((locate_model("embedded/draft").folder / "config.json").read_text())

    assert ["org/its-name"] == [each.id for each in local_models() if not each.id.startswith("embedded/")]
    assert snapshot == cached_folder("org/its-name") == locate_model("org/its-name").folder
    assert locate_model("org/its-name").architecture.stored_bytes is None  # only its config is there
    assert cached_folder("org/other") is None


def test_a_cached_model_goes_before_the_catalog(tmp_path):
    assert locate_model("Qwen3-8B").folder is None
    snapshot = tmp_path / "hub" / "models--Qwen--Qwen3-8B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text((locate_model("embedded/draft").folder / "config.json").read_text())

    assert snapshot == locate_model("qwen3-8b").folder


def test_gpus_are_those_that_torch_reports():
    reported = [{"kind": "cuda", "name": "NVIDIA GeForce RTX 4090", "free": 23 * GIB, "total": 24 * GIB}]

    assert (Device(CUDA, "NVIDIA GeForce RTX 4090", 23 * GIB, 24 * GIB),) == probed_gpus({"gpus": reported})
    assert () == probed_gpus({"error": "torch is broken"})


def test_a_gpu_that_shares_main_memory_has_what_is_free_of_both(monkeypatch):
    reported = {"gpus": [{"kind": "mps", "name": "Apple M4", "free": 11 * GIB, "total": 12 * GIB}]}
    monkeypatch.setattr(hub_machine, "main_memory", lambda: main_memory(9))

    assert (Device(MPS, "Apple M4", 9 * GIB, 12 * GIB),) == probed_gpus(reported)


def test_torch_is_not_asked_where_no_driver_is_loaded(monkeypatch):
    monkeypatch.setattr(hub_machine, "may_have_gpu", lambda: False)
    monkeypatch.setattr(hub_machine, "probe", lambda _package: pytest.fail("torch is imported"))

    assert () == hub_machine.detect_gpus()


def test_an_apple_gpu_is_recommended_no_format_that_it_cannot_compute():
    formats = {pair.quant_format for pair in recommend(Device(MPS, "Apple M4", 40 * GIB, 48 * GIB))}

    assert formats and formats <= {"bf16", "int8"}


@pytest.mark.full
def test_no_heavy_package_is_imported():
    heavy = {"torch", "transformers", "huggingface_hub", "numpy"}

    assert not heavy & modules_after("import specchat.hub.recommend, specchat.hub.local_models, specchat.hub.machine")


def test_the_catalog_has_no_duplicates():
    ids = [table["id"] for table in own_tables(hub_catalog.__file__)["models"]]

    assert len(ids) == len(set(ids)) == len(catalog())


@pytest.mark.full
def test_the_stored_sizes_are_those_of_the_networks_of_transformers():
    from tools.catalog_sizes import sizes_of

    for name in ("Qwen/Qwen3-8B", "google/gemma-4-E2B-it", "openai/gpt-oss-20b"):
        stored = catalog()[name].architecture.matrices
        assert [tuple(each) for each in sizes_of(name)] == [astuple(each) for each in stored]
    for entry in catalog().values():
        embeddings = entry.config["vocab_size"] * entry.config["hidden_size"]
        assert embeddings == entry.architecture.parameters_of_kind("embedding"), f"{entry.id}: run tools.catalog_sizes"


@each_row(
    "name, hint",
    [("startr", "did you mean 'starter'?"), ("qwen3-0.6", "did you mean 'Qwen/Qwen3-0.6B'?"),
     ("Qwen/Qwen3-0.6", "did you mean 'Qwen/Qwen3-0.6B'?"), ("zzz", None)],
)  # fmt: skip
def test_a_model_that_is_not_found_is_named_beside_the_nearest_one(monkeypatch, name, hint):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError) as raised:
        find_model(name, "target")

    found = re.search("did you mean '.*'[?]", str(raised.value))
    assert hint == (found and found[0])
