"""What is loaded where a pair does not fit: what gives way, what stays as chosen, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.devices import CPU
from specchat.errors import ModelError
from specchat.hub import machine as machine_module
from specchat.hub.machine import Device, Machine, simulated_gpu
from specchat.hub.memory_plan import GIB, PYTHON_BYTES
from specchat.loading import fitted_plan
from specchat.loading.fitted_plan import plan_for_machine, plan_that_fits
from specchat.loading.load_plan import ComputeFeatures, LoadPlan
from specchat.profile.keys import Profile
from tests.each_row import each_row
from tests.front import command
from tests.gguf_models import write_gguf

QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 128, "num_key_value_heads": 8}
TARGET = QWEN3 | {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
    "num_attention_heads": 32, "max_position_embeddings": 40960, "tie_word_embeddings": False,
}  # fmt: skip
DRAFT = QWEN3 | {
    "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "max_position_embeddings": 40960, "tie_word_embeddings": True,
}  # fmt: skip
HUGE = TARGET | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64}
GPU = ComputeFeatures("cuda", has_cpu_bf16=True)
CPU_MEMORY = Device(CPU, "a CPU", 23 * GIB, 32 * GIB)


def shapes(config: dict) -> dict[str, list[int]]:
    width, mlp, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    layer = {
        "self_attn.q_proj": [queries, width], "self_attn.k_proj": [keys, width], "self_attn.v_proj": [keys, width],
        "self_attn.o_proj": [width, queries], "mlp.gate_proj": [mlp, width], "mlp.up_proj": [mlp, width],
        "mlp.down_proj": [width, mlp],
    }  # fmt: skip
    tensors = {"model.embed_tokens.weight": [config["vocab_size"], width]}
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = [config["vocab_size"], width]
    numbered = range(config["num_hidden_layers"])
    return tensors | {f"model.layers.{at}.{name}.weight": shape for at in numbered for name, shape in layer.items()}


def save_headers(folder: Path, config: dict, stored: str = "BF16") -> str:
    """A model without its numbers: nothing that plans may read those."""
    folder.mkdir()
    header = {name: {"dtype": stored, "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes(config).items()}
    content = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(content).to_bytes(8, "little") + content)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return str(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, object]:
    """A pair of 8B and 0.6B as the values of a profile."""
    folder = tmp_path_factory.mktemp("pair")
    draft = save_headers(folder / "draft", DRAFT)
    return {"models.target": save_headers(folder / "target", TARGET), "models.draft": draft, "models.heads": []}


def planned(models: dict[str, object], gpu_gib: float | None, **values: object) -> LoadPlan:
    settings = {f"{'limits' if key == 'context' else 'models'}.{key}": value for key, value in values.items()}
    gpus = (simulated_gpu(gpu_gib),) if gpu_gib else ()
    return plan_for_machine(Profile().override(models | settings), Machine((*gpus, CPU_MEMORY), ("AVX2", "BF16")))


def choice(plan: LoadPlan) -> tuple[str, str, int]:
    draft = plan.draft.options.quant_format if plan.draft else "none"
    return plan.target.options.quant_format, draft, plan.context_tokens


@each_row(
    "gpu_gib, context, expected",
    [
        (24, 8192, ("float", "float", 8192)),
        (24, 32768, ("float", "nf4", 16384)),
        (12, 8192, ("nf4", "float", 8192)),
        (12, 32768, ("nf4", "float", 8192)),
        (8, 32768, ("nf4-double", "none", 8192)),
    ],
)
def test_formats_context_and_draft_are_chosen_together_so_that_the_pair_fits(models, gpu_gib, context, expected):
    plan = planned(models, gpu_gib, context=context)

    assert expected == choice(plan)
    assert plan.memory().total_bytes <= simulated_gpu(gpu_gib).free_bytes
    assert bool(plan.given_way) == (expected != ("float", "float", context))


def test_what_gave_way_is_one_line_with_its_price_and_the_bytes_of_the_plan(models):
    plan = planned(models, 12, context=32768)

    (line,) = plan.notices
    assert "nf4 weights instead of bf16 (another text, 0.5 times the time of a pass in bf16)" in line
    assert f"it takes {plan.memory().total_bytes / GIB:.1f} GiB instead of " in line
    assert line in plan.text(Machine((simulated_gpu(12), CPU_MEMORY)))


@each_row(
    "values, stays",
    [
        ({"weights": "int8"}, lambda plan: plan.target.options.quant_format == "int8"),
        ({"draft_weights": "float"}, lambda plan: plan.draft is None or plan.draft.options.quant_format == "float"),
        ({"embedding_device": "device"}, lambda plan: plan.target.options.embedding_device == "device"),
    ],
)
def test_what_a_person_chose_stays(models, values, stays):
    plan = planned(models, 12, **values)

    assert stays(plan)
    assert plan.given_way and not plan.refusal


def test_a_format_that_cannot_fit_is_refused_with_one_that_would(models):
    plan = planned(models, 8, weights="float", place="none")

    assert "does not fit: it takes" in plan.refusal and "with nf4-double weights instead of bf16" in plan.refusal
    with pytest.raises(ModelError, match="which the settings exclude"):
        plan.check()


@each_row(
    "gpu_gib, values, expected",
    [
        (8, {"weights": "float"}, ("float", "int8", 4096)),
        (6, {}, ("nf4-double", "nf4", 4096)),
        (6, {"weights": "int8", "context": 4096}, ("int8", "nf4", 4096)),
        (4, {}, ("nf4", "none", 4096)),
    ],
)
def test_the_first_layers_are_in_main_memory_where_nothing_else_is_enough(models, gpu_gib, values, expected):
    plan, gpu = planned(models, gpu_gib, **values), simulated_gpu(gpu_gib)
    count, memory = plan.target.options.cpu_layers, plan.memory()
    fewer = replace(plan, target=plan.target.with_options(cpu_layers=count - 1)).memory()

    assert expected == choice(plan)
    assert 0 < count < 36
    assert memory.total_bytes <= gpu.free_bytes and fewer.total_bytes > 0.94 * gpu.free_bytes
    assert f"the first {count} of 36 layers in main memory (" in plan.given_way
    assert f"{memory.main_memory_bytes / GIB:.1f} GiB of main memory instead of" in plan.given_way
    line = f"{memory.main_memory_bytes / GIB:.1f} GiB in main memory; fits"
    assert line in plan.text(Machine((gpu, CPU_MEMORY)))


def test_layers_that_a_person_placed_stay_there(models):
    plans = {place: planned(models, 24, place=place) for place in ("auto", "none", "cpu:12")}
    auto, none, pinned = plans.values()

    assert auto == none and not auto.given_way
    assert pinned.target.options.cpu_layers == 12 and not pinned.given_way
    weights, kv = (getattr(auto.memory(), part) - getattr(pinned.memory(), part)
                   for part in ("weight_bytes", "kv_cache_bytes"))  # fmt: skip
    assert pinned.memory().main_memory_bytes == weights + kv + PYTHON_BYTES
    assert weights == 12 * 2 * sum(rows * columns for rows, columns in layer_shapes())
    assert "the first 12 layers in main memory" in pinned.text(Machine((simulated_gpu(24), CPU_MEMORY)))


def layer_shapes() -> list[list[int]]:
    return [shape for name, shape in shapes(TARGET).items() if ".layers.0." in name]


def test_main_memory_must_hold_the_layers_too(models):
    machine = Machine((simulated_gpu(8), Device(CPU, "a CPU", 3 * GIB, 4 * GIB)), ("AVX2", "BF16"))
    plan = plan_for_machine(Profile().override(models | {"models.weights": "float"}), machine)
    pinned = plan_for_machine(
        Profile().override(models | {"models.weights": "float", "models.place": "cpu:20"}), machine
    )

    assert "does not fit" in plan.refusal and "does not fit" in pinned.refusal


@each_row(
    "place, says",
    [
        ("cpu:99", "it has 36 layers, and --place cpu:99 leaves none for the first GPU; place 35 or fewer elsewhere"),
        ("cpu:36", "it has 36 layers, and --place cpu:36 leaves none"),
    ],
)
def test_a_place_without_layers_is_refused(models, place, says):
    assert says in planned(models, 24, place=place).refusal
    assert not planned(models, None, place=place).refusal  # on a CPU they are all in main memory anyway


def planned_on(models: dict[str, object], sizes_gib: list[float], **values: object) -> tuple[LoadPlan, Machine]:
    """On several GPUs."""
    machine = Machine((*map(simulated_gpu, sizes_gib), CPU_MEMORY), ("AVX2", "BF16"))
    settings = {f"models.{key}": value for key, value in values.items()}
    return plan_for_machine(Profile().override(models | settings), machine), machine


@each_row(
    "sizes_gib, gpus",
    [
        ([24, 24], "one"),
        ([16, 16], "even"),
        ([12, 24], "most on the second"),
        ([16, 2, 16], "not on the small one"),
        ([10, 10, 10], "all three"),
    ],
)
def test_what_one_gpu_does_not_hold_is_split_by_what_each_has_free_before_anything_else_gives_way(
    models, sizes_gib, gpus
):
    plan, machine = planned_on(models, sizes_gib)
    elsewhere, memory = plan.target.options.gpu_layers, plan.memory()
    fit = plan.fit(machine)

    assert choice(plan) == ("float", "float", 8192) and not plan.refusal
    assert all(needed <= gpu.free_bytes for needed, gpu in fit.needs)
    assert {
        "one": elsewhere == (),
        "even": elsewhere[:1] > (17,) and len(elsewhere) == 1,
        "most on the second": elsewhere[:1] > (24,),
        "not on the small one": elsewhere[:1] == (0,) and elsewhere[1:] > (17,),
        "all three": len(elsewhere) == 2 and min(elsewhere, default=0) > 11,
    }[gpus]
    if elsewhere:
        shares = [needed / gpu.free_bytes for needed, gpu in fit.needs[:-1] if needed]
        assert max(shares) - min(shares) < 0.08
        assert plan.given_way.startswith(f"so that it fits {machine.devices[0].name}: layers split over ")
        assert f"{memory.other_gpu_bytes[-1] / GIB:.1f} GiB on cuda:{len(elsewhere)}; fits" in plan.text(machine)


def test_layers_go_to_main_memory_only_where_all_gpus_are_full(models):
    plan, machine = planned_on(models, [6, 6], weights="float", draft="")
    options = plan.target.options

    assert options.cpu_layers > 0 and options.gpu_layers[0] > 0 and not plan.refusal
    assert all(needed <= device.free_bytes for needed, device in plan.fit(machine).needs)
    words = f"the first {options.cpu_layers} layers in main memory, the next {options.gpu_layers[0]} layers on cuda:1"
    assert words in plan.text(machine)


def test_layers_that_a_person_placed_on_gpus_stay_there(models):
    plan, _machine = planned_on(models, [24, 24], place="cpu:2,cuda:1:12")
    none, _machine = planned_on(models, [16, 16], place="none")
    alone = planned(models, 24)

    assert plan.target.options.places == [("cpu", 2), ("cuda:1", 12)] and not plan.given_way
    assert none.target.options.places == [] and "int8 weights" in none.given_way
    weights = alone.memory().weight_bytes - plan.memory().weight_bytes
    assert weights == 14 * 2 * sum(rows * columns for rows, columns in layer_shapes())


@each_row(
    "place, says",
    [
        ("cuda:2:4", "--place cuda:2:4 names a GPU that torch does not find: here are 2"),
        ("cpu:20,cuda:1:16", "it has 36 layers, and --place cpu:20,cuda:1:16 leaves none for the first GPU"),
    ],
)
def test_a_place_that_this_machine_does_not_have_is_refused(models, place, says):
    assert says in planned_on(models, [24, 24], place=place)[0].refusal


def test_a_network_with_recurrent_layers_is_not_split():
    profile = Profile().override({"models.target": "Qwen/Qwen3.8-27B", "models.heads": [], "models.draft": ""})
    machine = Machine((simulated_gpu(8), CPU_MEMORY))

    assert "does not fit" in plan_for_machine(profile, machine).refusal
    pinned = plan_for_machine(profile.override({"models.place": "cpu:4"}), machine)
    assert "its layers cannot be on several devices; use --place none" in pinned.refusal


def test_the_layers_of_a_mixture_take_their_experts_along():
    names = {"models.target": "Qwen/Qwen3-Coder-30B-A3B-Instruct", "models.heads": [], "models.draft": ""}
    plan = plan_for_machine(Profile().override(names), Machine((simulated_gpu(12), CPU_MEMORY)))

    assert " of 48 layers with their experts in main memory (about " in plan.given_way


def test_a_model_that_fits_in_no_format_is_refused_with_another_one(tmp_path):
    huge = HUGE | {"num_hidden_layers": 160}
    plan = planned({"models.target": save_headers(tmp_path / "huge", huge), "models.heads": []}, 24)

    assert "are free on a GPU with 24 GB" in plan.refusal
    assert " fits; 'specchat models recommend' names models that fit" in plan.refusal


def test_weights_that_a_gpu_keeps_in_4_bits_are_counted_so(tmp_path):
    config = HUGE | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    folder = tmp_path / "awq"
    save_headers(folder, config)
    plan = planned({"models.target": str(folder), "models.heads": []}, 48)

    assert (plan.target.memory_format, plan.given_way, plan.refusal) == ("int4", "", "")


def test_on_a_cpu_quantized_weights_that_the_memory_does_not_hold_stay_on_the_disk(models, monkeypatch):
    monkeypatch.setitem(models, "models.draft", "")
    plan = planned(models | {"models.weights": "int8"}, None)
    assert not plan.given_way

    small = Machine((Device(CPU, "a CPU", 7 * GIB, 16 * GIB),), ("AVX2", "BF16"))
    plan = plan_for_machine(Profile().override(models | {"models.weights": "int8"}), small)

    assert plan.target.options.maps_weights
    assert "stay on the disk" in plan.given_way


def test_on_a_cpu_the_blocks_of_a_gguf_file_that_the_memory_does_not_hold_stay_on_the_disk(tmp_path, monkeypatch):
    """The line says what a token reads: of a mixture of experts not all. Where that is too much, it is refused."""
    for family, fits_by_experts in (("qwen3", False), ("qwen3moe", True)):
        path = write_gguf(tmp_path / f"{family}.gguf", family, storage="Q8_0")
        profile = Profile().override({"models.target": str(path), "models.draft": "", "limits.context": 4096})
        whole = planned_on_cpu(profile, 16 * GIB)
        assert not whole.given_way

        weights = whole.memory().weight_bytes
        free = whole.memory().total_bytes - weights * 3 // 4
        plan = planned_on_cpu(profile, free)
        assert (plan.target.options.maps_weights, plan.target.options.quant_format) == (True, "gguf")
        assert (
            "stay on the disk, because the memory does not hold them (very slow: a token reads 0 MiB)" in plan.given_way
        )
        assert plan.memory().weight_bytes < weights // 4

        with monkeypatch.context() as patch:
            patch.setattr(fitted_plan, "MAX_MAPPED_SHARE", 0.8 * weights / free)
            assert planned_on_cpu(profile, free).target.options.maps_weights is fits_by_experts


def planned_on_cpu(profile: Profile, free_bytes: int) -> LoadPlan:
    return plan_for_machine(profile, Machine((Device(CPU, "a CPU", free_bytes, 16 * GIB),), ("AVX2", "BF16")))


def test_a_drafting_layer_in_the_files_of_its_target_is_counted_once(tmp_path):
    folder = tmp_path / "own head"
    save_headers(folder, TARGET)
    header = {"mtp.fc.weight": {"dtype": "BF16", "shape": [4096, 8192], "data_offsets": [0, 0]}}
    content = json.dumps(header).encode()
    (folder / "mtp.safetensors").write_bytes(len(content).to_bytes(8, "little") + content)
    alone, with_head = (planned({"models.target": str(folder), "models.heads": heads}, 24)
                        for heads in ([], [str(folder)]))  # fmt: skip

    assert with_head.memory().drafter_bytes == alone.memory().drafter_bytes + 2 * 4096 * 8192


def test_a_draft_model_on_the_cpu_takes_no_memory_of_the_gpu(models):
    plan = planned(models, 24, draft_device="cpu")

    assert (plan.memory().drafter_bytes, plan.given_way) == (0, "")


def test_a_known_model_that_does_not_fit_is_refused_before_it_is_downloaded(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    profile = Profile().override({"models.target": "meta-llama/Llama-3.3-70B-Instruct", "models.heads": []})
    machine = Machine((simulated_gpu(8), CPU_MEMORY))

    with pytest.raises(ModelError, match="does not fit: it takes"):
        plan_that_fits(profile, GPU, machine.devices_of, lambda *_: pytest.fail("it was downloaded"))


@pytest.fixture
def small_machine(monkeypatch):
    monkeypatch.setattr(machine_module, "main_memory", lambda: Device(CPU, "a CPU", 3 * GIB, 4 * GIB))
    monkeypatch.setattr(machine_module, "detect_gpus", lambda: ())


def test_a_dry_run_ends_as_the_load_would(monkeypatch, models, small_machine):
    ran = command(monkeypatch, "ask", "--dry-run", "--target", str(models["models.target"]))

    assert ran.code not in (0, 2)
    assert "does not fit" in ran.err
    assert ran.out.decode().splitlines()[-1].startswith("refused ")
