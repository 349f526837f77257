"""The memory of models, compared with known totals, networks of transformers and files on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specchat.devices import CPU, CUDA, XPU, DeviceKind
from specchat.engine.cache_sizes import MAX_CHECKPOINT_BYTES, SCRATCH_ROWS, SPARE_ROWS, arena_rows, slot_rows
from specchat.errors import ModelError
from specchat.hub import memory_plan
from specchat.hub.architecture import EMBEDDING, EXPERT, IDLE, LINEAR, OUTPUT
from specchat.hub.config_architecture import architecture_from_config, dimensions_from_config
from specchat.hub.memory_plan import (
    GIB,
    QuantizedModel,
    can_quantize,
    fitting_format,
    kv_cache_bytes,
    lacks_quantizer,
    lm_head_copy_bytes,
    partial_attention_bytes,
    plan_memory,
    weight_bytes,
    workspace_bytes,
)
from specchat.hub.safetensors_headers import read_architecture, read_config
from specchat.weights.load_options import EMBEDDED
from tests.each_row import each_row
from tests.processes import modules_after

SIZES = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = {
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "n_routed_experts": 8, "n_shared_experts": 1, "moe_intermediate_size": 48, "first_k_dense_replace": 1,
    "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "num_key_value_heads": 4,
}  # fmt: skip
RECURRENT = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
FAMILIES = {
    "llama": {}, "qwen2": {}, "qwen3": {}, "mistral": {}, "gemma2": {}, "gemma3_text": {}, "qwen3_moe": EXPERTS,
    "mixtral": {"num_local_experts": 4}, "gpt_oss": {"num_local_experts": 4}, "deepseek_v3": LATENT,
    "qwen3_next": EXPERTS | RECURRENT | {"shared_expert_intermediate_size": 48}, "qwen3_5_text": RECURRENT,
    "qwen3_5_moe_text": EXPERTS | RECURRENT | {"shared_expert_intermediate_size": 48}, "granite": {},
    "smollm3": {"pad_token_id": 0}, "glm4_moe_lite": LATENT | {"head_dim": 8, "n_group": 1},
    "lfm2": {"layer_types": ["conv", "conv", "full_attention"] * 2, "block_auto_adjust_ff_dim": False},
}  # fmt: skip
GEMMA4 = {
    "global_head_dim": 48, "sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"] * 3
}  # fmt: skip
GEMMA4_SHAPES = {
    "small": ("gemma4_text", {
        "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 512,
    }),
    "experts": ("gemma4_text", {
        "hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
        "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 48,
    }),
    "unified": ("gemma4_unified_text", {"attention_k_eq_v": True, "num_global_key_value_heads": 1}),
}  # fmt: skip


def config_of(family: str, extra: dict) -> dict:
    """The config of transformers for a small network of this family."""
    from transformers import AutoConfig

    return json.loads(AutoConfig.for_model(family, **(SIZES | extra)).to_json_string(use_diff=False))


@pytest.mark.full
@each_row("family, extra", [*FAMILIES.items(), *GEMMA4_SHAPES.values()])
def test_a_config_and_the_headers_of_its_network_give_the_same_matrices(tmp_path, family, extra):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **(SIZES | (GEMMA4 if family.startswith("gemma4") else {}) | extra))
    network = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    network.save_pretrained(folder := tmp_path / f"{family}{len(extra)}")
    by_header, by_config = read_architecture(folder), architecture_from_config(read_config(folder))

    assert sum(parameter.numel() for parameter in network.parameters()) == by_config.parameters
    for kind in (EMBEDDING, OUTPUT, LINEAR, EXPERT, IDLE):
        assert by_header.parameters_of_kind(kind) == by_config.parameters_of_kind(kind), kind
    assert replace(by_header, matrices=(), stored_bytes=None) == replace(by_config, matrices=())


@pytest.mark.full
@each_row("family, extra", GEMMA4_SHAPES.values())
def test_a_published_config_of_gemma_4_gives_the_kv_rows_of_the_network(family, extra):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

    from specchat.forward.transformers.transformers_model import cache_name_of

    published = SIZES | GEMMA4 | extra
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **published))
    past = DynamicCache()
    with torch.inference_mode():
        network(input_ids=torch.ones(1, 1, dtype=torch.long), **{cache_name_of(network): past})
    architecture = dimensions_from_config({**published, "model_type": family})

    assert sum(layer.keys.numel() + layer.values.numel() for layer in past.layers) == sum(
        group.layers * group.elements_per_token for group in architecture.kv_layers
    )


def test_an_assistant_of_gemma_4_has_no_kv_cache():
    layers = SIZES | GEMMA4 | {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 6}

    assert () == dimensions_from_config({"model_type": "gemma4_assistant", "text_config": layers}).kv_layers


@each_row("name", ["target", "draft", "eagle", "eagle3", "mtp", "medusa"])
def test_headers_give_the_exact_bytes_of_the_files(name):
    folder = EMBEDDED / name
    (path,) = folder.glob("*.safetensors")
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")

    assert path.stat().st_size - 8 - header == read_architecture(folder).stored_bytes


@each_row("name", ["target", "draft"])
def test_stored_bytes_equal_those_computed_from_the_config(name):
    by_header, by_config = read_architecture(EMBEDDED / name), architecture_from_config(read_config(EMBEDDED / name))

    assert by_header.stored_bytes == weight_bytes(by_config, "bf16") == weight_bytes(by_header, "bf16")
    assert by_header.kv_layers == by_config.kv_layers
    assert [by_header.parameters_of_kind(kind) for kind in (EMBEDDING, OUTPUT, LINEAR)] == [
        by_config.parameters_of_kind(kind) for kind in (EMBEDDING, OUTPUT, LINEAR)
    ]


def test_a_head_has_the_kv_cache_of_one_layer():
    assert [1] == [group.layers for group in read_architecture(EMBEDDED / "mtp").kv_layers]
    assert [1] == [group.layers for group in read_architecture(EMBEDDED / "eagle3").kv_layers]
    assert () == read_architecture(EMBEDDED / "medusa").kv_layers


def test_layers_with_a_sliding_window_store_all_rows_too_in_what_fits():
    gemma = architecture_from_config(config_of("gemma3_text", {"sliding_window": 100}))
    row = 2 * 2 * 32 * 2  # keys and values of two heads in bf16

    assert row * 6 * 100_000 == kv_cache_bytes(gemma, 100_000)
    needed = plan_memory(QuantizedModel(gemma, "bf16"), None, 100_000, kind=CPU).total_bytes
    assert "bf16" == fitting_format(gemma, needed, 100_000, kind=CPU)
    assert "bf16" != fitting_format(gemma, needed - row * 100_000, 100_000, kind=CPU)


def test_mla_stores_latents():
    assert 6 * (16 + 8) * 2 * 1000 == kv_cache_bytes(architecture_from_config(config_of("deepseek_v3", LATENT)), 1000)


def test_recurrent_states_do_not_grow_with_the_text():
    hybrid = architecture_from_config(config_of("qwen3_5_text", RECURRENT))
    row = 2 * 2 * 32 * 2

    assert row * 1000 == kv_cache_bytes(hybrid, 2000) - kv_cache_bytes(hybrid, 1000)
    assert 8 * 5 * ((2 * 32 + 64) * 4 + 64 * 16) == kv_cache_bytes(hybrid, 0)


def test_a_plan_counts_the_checkpoints_of_recurrent_states_up_to_a_limit():
    hybrid = QuantizedModel(architecture_from_config(config_of("qwen3_5_text", RECURRENT)), "bf16")
    state = 4 * hybrid.architecture.recurrent_elements

    def checkpoints(tokens, kind):
        return plan_memory(hybrid, None, tokens, kind=kind).kv_cache_bytes - kv_cache_bytes(hybrid.architecture, tokens)

    assert 8 * state == checkpoints(2048 + 200, CPU)
    assert MAX_CHECKPOINT_BYTES == checkpoints(2**30, CPU)
    assert 0 == checkpoints(2048, XPU)  # they are in main memory


def test_a_plan_for_graphs_counts_the_rows_that_recurrent_layers_record():
    hybrid = architecture_from_config(config_of("qwen3_5_text", RECURRENT))
    recorded = 64 * 2 * 5 * 2 * (2 * 32 + 64 + RECURRENT["linear_num_value_heads"])

    planned = plan_memory(QuantizedModel(hybrid, "bf16"), None, 2048, kind=CUDA).kv_cache_bytes

    assert recorded == planned - kv_cache_bytes(hybrid, arena_rows(2048) + SPARE_ROWS)


def test_a_recurrent_state_has_the_size_of_that_in_transformers():
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

    from specchat.forward.transformers.transformers_model import cache_name_of

    network = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3_5_text", **(SIZES | RECURRENT))).eval()
    past = DynamicCache(config=network.config)
    with torch.inference_mode():
        network(input_ids=torch.ones(1, 8, dtype=torch.long), **{cache_name_of(network): past})
    states = [
        state
        for layer in past.layers
        for name in ("conv_states", "recurrent_states")
        for state in _tensors(getattr(layer, name, None))
    ]

    assert (
        sum(state.numel() for state in states)
        == architecture_from_config(config_of("qwen3_5_text", RECURRENT)).recurrent_elements
    )


def _tensors(value) -> list:
    if value is None:
        return []
    return [each for each in (value.values() if isinstance(value, dict) else [value]) if each is not None]


def test_experts_are_quantized_and_embeddings_are_not():
    mixture = architecture_from_config(config_of("qwen3_moe", EXPERTS))
    experts, embeddings = (mixture.parameters_of_kind(kind) for kind in (EXPERT, EMBEDDING))
    less = {each: weight_bytes(mixture, "bf16") - weight_bytes(mixture, each) for each in ("int8", "nf4")}

    assert 0.9 * experts < less["int8"] < less["nf4"]
    assert 2 * embeddings < weight_bytes(mixture, "nf4")


def test_a_network_that_transformers_computes_is_quantized_by_a_plugin_and_a_published_one_never(monkeypatch):
    mixture = replace(architecture_from_config(config_of("qwen3_moe", EXPERTS)), family="glm4_moe")
    published = replace(mixture, stored_format="mxfp4")

    assert can_quantize(mixture)
    assert lacks_quantizer(mixture)
    assert "bf16" == fitting_format(mixture, 2**40, 128, kind=CPU)
    assert fitting_format(mixture, 2**20, 128, kind=CPU) is None
    monkeypatch.setattr(memory_plan, "find_extensions", lambda _kind: {"network-weights": None})
    assert not lacks_quantizer(mixture)
    assert not can_quantize(published)
    assert fitting_format(published, 2**40, 128, kind=CPU) == "bf16"


def test_vectors_of_layers_and_encoders_in_files_stay_float(tmp_path):
    names = ("model.embed_tokens_per_layer", "model.visual.blocks.0.mlp.fc1", "model.layers.0.mlp.up_proj")
    save_file(
        {f"{name}.weight": torch.zeros(64, 64) for name in (*names, "model.embed_tokens")},
        tmp_path / "model.safetensors",
    )
    (tmp_path / "config.json").write_text(json.dumps(config_of("qwen3", {})))

    architecture = read_architecture(tmp_path)

    assert 2 * 64 * 64 == architecture.parameters_of_kind(IDLE)
    assert 64 * 64 == architecture.parameters_of_kind(LINEAR)


def test_fp8_experts_have_a_scale_per_block_and_linear_layers_one_per_output():
    mixture, dense = (
        architecture_from_config(config_of("qwen3_moe", EXPERTS)),
        architecture_from_config(config_of("qwen3", {})),
    )
    expert = next(matrix for matrix in mixture.matrices if matrix.kind == EXPERT)
    blocks = -(-expert.rows // 128) * -(-expert.columns // 128) * expert.count

    assert expert.parameters + 4 * blocks == weight_bytes(type(dense)("", (expert,), ()), "fp8")
    assert weight_bytes(dense, "int8") == weight_bytes(dense, "fp8")


@pytest.mark.full
def test_nf4_has_the_bytes_of_bitsandbytes_and_in_double_those_of_our_blocks():
    import torch
    from bitsandbytes.functional import quantize_4bit

    from specchat.forward.linear.block_linear import NF4, BlockWeight
    from specchat.forward.linear.linear import bytes_of

    weight = torch.ones(64, 256)
    packed, state = quantize_4bit(weight, quant_type="nf4")
    (linear,) = architecture_from_config(config_of("llama", {"num_hidden_layers": 1})).matrices[:1]
    matrix = type(linear)(LINEAR, 64, 256)
    one = architecture_from_config(config_of("llama", {}))

    def nf4_bytes(quant_format: str) -> int:
        return weight_bytes(type(one)("", (matrix,), ()), quant_format)

    assert packed.nbytes + state.absmax.nbytes == nf4_bytes("nf4")
    assert bytes_of(BlockWeight.zeros(NF4, 64, 256, torch.device("cpu"))) == nf4_bytes("nf4-double")


def test_embeddings_stay_in_a_gguf_file_whose_blocks_are_multiplied():
    untied = architecture_from_config(config_of("llama", {}))
    others = replace(untied, matrices=tuple(each for each in untied.matrices if each.kind != EMBEDDING))

    assert 2 * 512 * 64 == weight_bytes(untied, "int8") - weight_bytes(others, "int8")
    assert weight_bytes(untied, "gguf4") == weight_bytes(others, "gguf4")


def test_embeddings_on_the_cpu_are_not_counted_unless_they_are_tied():
    untied = architecture_from_config(config_of("llama", {}))
    tied = architecture_from_config(config_of("llama", {"tie_word_embeddings": True}))

    assert 2 * 512 * 64 == weight_bytes(untied, "nf4") - weight_bytes(untied, "nf4", embeddings_on_cpu=True)
    assert weight_bytes(tied, "nf4") == weight_bytes(tied, "nf4", embeddings_on_cpu=True)


def test_partial_results_of_attention_have_the_widest_heads_of_all_layers():
    narrow, wide = (
        architecture_from_config(config_of("gemma4_text", GEMMA4 | {"head_dim": 16, "global_head_dim": size}))
        for size in (16, 512)
    )

    assert partial_attention_bytes(wide, 1000) / partial_attention_bytes(narrow, 1000) == (512 + 2) / (16 + 2)


def test_a_large_vocabulary_needs_more_workspace():
    small, large = (
        QuantizedModel(architecture_from_config(config_of("llama", {"vocab_size": size})), "bf16")
        for size in (32_000, 262_144)
    )

    assert 0.7 < (workspace_bytes(large, 8192) - workspace_bytes(small, 8192)) / GIB < 0.75


def test_a_gpu_needs_a_mask_and_with_4_bits_a_dequantized_layer_besides():
    architecture = architecture_from_config(config_of("llama", {}))

    def needed(quant_format: str, tokens: int, *, kind: DeviceKind) -> int:
        return workspace_bytes(QuantizedModel(architecture, quant_format), tokens, kind=kind)

    assert needed("bf16", 8192, kind=CPU) == needed("nf4", 32768, kind=CPU)
    partial_results = 4 * 64 * architecture.heads * (1024 // 256) * (architecture.head_size + 2)
    assert needed("bf16", 3072, kind=CUDA) - needed("bf16", 2048, kind=CUDA) == 512 * 1024 * 16 + partial_results
    largest = 128 * 64  # queries; keys and values are as many together, and one layer with them
    assert needed("nf4", 2048, kind=CUDA) - needed("bf16", 2048, kind=CUDA) == 2 * 2 * largest


@each_row("name", ["target", "draft"])
def test_the_engine_takes_the_planned_bytes(name):
    from specchat.weights.load import load_model
    from specchat.weights.load_options import LoadOptions

    architecture = read_architecture(EMBEDDED / name)
    model = load_model(EMBEDDED / name, LoadOptions(dtype="bfloat16"))

    assert model.pool.layout.bytes_per_row == kv_cache_bytes(architecture, 1)
    assert QuantizedModel(architecture, "bf16").weight_bytes(kind=CPU) == model.bytes


@pytest.mark.full
@each_row("quant_format", ["int8", "fp8"])
def test_the_engine_takes_the_planned_bytes_in_8_bits(quant_format):
    from specchat.weights.load import load_model
    from specchat.weights.load_options import LoadOptions

    model = load_model(EMBEDDED / "target", LoadOptions(dtype="bfloat16", quant_format=quant_format))
    planned = QuantizedModel(read_architecture(EMBEDDED / "target"), quant_format).weight_bytes(kind=CPU)

    assert planned == pytest.approx(model.bytes, rel=0.02)


def test_a_gpu_shares_tied_embeddings_with_the_output_matrix_unless_it_is_quantized():
    tied = architecture_from_config(config_of("llama", {"tie_word_embeddings": True}))
    copies = {quant_format: lm_head_copy_bytes(tied, quant_format) for quant_format in ("bf16", "int8", "fp8", "nf4")}

    assert {"bf16": 0, "int8": 512 * 64 + 4 * 512, "fp8": 512 * 64 + 4 * 512, "nf4": 512 * 32 + 4 * 512} == copies
    assert 2 * 512 * 64 == lm_head_copy_bytes(tied, "bf16", kind=CPU)
    assert 0 == lm_head_copy_bytes(replace(tied, family="starcoder2"), "bf16", kind=CPU)


def test_draft_tokens_take_no_second_bucket():
    assert 8192 + 256 == slot_rows(8192 + SCRATCH_ROWS)


@each_row(
    "content",
    [
        {}, {"hidden_size": 64}, SIZES | {"hidden_size": "wide"}, SIZES | {"layer_types": 5},
        SIZES | {"text_config": 5},
        SIZES | {"num_hidden_layers": 10**12}, SIZES | {"quantization_config": "mxfp4"}, {"medusa_num_heads": 3},
        SIZES | {"architectures": ["Eagle3"], "intermediate_size": None}, SIZES | {"num_attention_heads": 0},
    ],
)  # fmt: skip
def test_an_incomplete_config_is_a_one_line_error(tmp_path, content):
    (tmp_path / "config.json").write_text(json.dumps(content))

    with pytest.raises(ModelError, match=r"\A[^\n]+\Z"):
        read_architecture(tmp_path)


@each_row("header", [b"[]", b"{", b'{"a": 5}', b'{"a": {"dtype": "F32", "shape": ["x"]}}'])
def test_an_invalid_header_is_a_one_line_error(tmp_path, header):
    (tmp_path / "config.json").write_text((EMBEDDED / "draft" / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)

    with pytest.raises(ModelError, match="not safetensors"):
        read_architecture(tmp_path)


def test_a_truncated_file_is_refused(tmp_path):
    (tmp_path / "config.json").write_text((EMBEDDED / "draft" / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((EMBEDDED / "draft" / "model.safetensors").read_bytes()[:100])

    with pytest.raises(ModelError, match="truncated"):
        read_architecture(tmp_path)


def test_with_missing_shards_the_config_is_used(tmp_path):
    (tmp_path / "config.json").write_text((EMBEDDED / "draft" / "config.json").read_text())
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").write_bytes((EMBEDDED / "draft" / "model.safetensors").read_bytes())
    partly = read_architecture(tmp_path)

    assert partly.stored_bytes is None
    assert read_architecture(EMBEDDED / "draft").parameters == partly.parameters


def test_torch_is_not_imported():
    assert "torch" not in modules_after("import specchat.hub.memory_plan")


def test_the_memory_of_a_pair_is_the_sum_of_its_parts():
    target, draft = (QuantizedModel(read_architecture(Path(EMBEDDED / name)), "bf16") for name in ("target", "draft"))
    both = plan_memory(target, draft, 1000)

    assert (
        plan_memory(target, None, 1000).total_bytes
        + draft.weight_bytes()
        + kv_cache_bytes(draft.architecture, arena_rows(1000) + SPARE_ROWS)
        + partial_attention_bytes(draft.architecture, 1000)
        == both.total_bytes
    )
