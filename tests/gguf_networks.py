"""Writes GGUF files of architectures that transformers computes, as llama.cpp's converter does.

A file is written from the checkpoint of a network, so that what we read can be compared with it. Knows nothing of how
specchat reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy
import torch
from gguf import GGUFWriter, get_tensor_name_map
from gguf.constants import MODEL_ARCH_NAMES
from safetensors.torch import load_file

from tests.gguf_models import EXPERTS, GEMMA4, WIDTHS, add_entry, byte_tokenizer, finished
from tests.tiny import SIZES

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KINDS = ["conv", "full_attention"]
RECURRENT = ("conv", "mamba", "linear_attention")
SOFTMAX, SIGMOID = 1, 2
OLDER_MLA = {
    "attention.head_count_kv": 4, "attention.key_length": 24, "attention.value_length": 24,
    "attention.key_length_mla": None, "attention.value_length_mla": None, "expert_gating_func": None,
    "expert_group_count": None, "expert_group_used_count": None,
}  # fmt: skip
ROUTED = {
    "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "n_group": 2,
    "topk_group": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5, "norm_topk_prob": True,
}  # fmt: skip
GRANITE = {
    "embedding_multiplier": 6.0, "attention_multiplier": 0.25, "residual_multiplier": 0.22, "logits_scaling": 3.0,
    "num_local_experts": 6, "num_experts_per_tok": 2,
}  # fmt: skip
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1}
MLA = {
    "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24,
    "num_key_value_heads": 4, "head_dim": 8,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.707,
}  # fmt: skip
V2 = {"topk_method": "group_limited_greedy", "norm_topk_prob": False, "q_lora_rank": None}
NETWORKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # an architecture, and what makes it another one
    "lfm2": ("Lfm2", {"layer_types": KINDS, "block_auto_adjust_ff_dim": False, "conv_L_cache": 3}),
    "lfm2moe": ("Lfm2Moe", {**EXPERTS, "layer_types": KINDS, "num_dense_layers": 1, "conv_L_cache": 3}),
    "glm4": ("Glm4", {"attention_bias": True}),
    "glm4moe": ("Glm4Moe", {**ROUTED, "use_qk_norm": True, "attention_bias": False}),
    "granitemoe": ("GraniteMoe", GRANITE),
    "granitehybrid": (
        "GraniteMoeHybrid",
        {**GRANITE, **MAMBA, "shared_intermediate_size": 40, "layer_types": ["mamba", "attention"]},
    ),
    "deepseek2": ("DeepseekV3", {**ROUTED, **MLA}),
    "deepseek2 with YaRN": ("DeepseekV3", {**ROUTED, **MLA, "rope_parameters": YARN}),
    "deepseek2 of V2": ("DeepseekV2", {**ROUTED, **MLA, **V2, "rope_parameters": YARN | {"factor": 40.0}}),
    "deepseek2 of V2, older": ("DeepseekV2", {**ROUTED, **MLA, **V2, "n_group": 1}),
    "gemma4": (
        "Gemma4Text",
        {**GEMMA4, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
        | {"hidden_size_per_layer_input": 0},
    ),
}


def network(family: str) -> PreTrainedModel:
    """A random network whose weights are bf16 numbers."""
    import transformers

    name, special = NETWORKS[family]
    torch.manual_seed(3)
    sizes = {**SIZES, **WIDTHS, "num_hidden_layers": 2, "rms_norm_eps": 1e-5, **special}
    sizes["tie_word_embeddings"] = family == "lfm2moe"  # whose files have no output matrix
    model = getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(
        getattr(transformers, f"{name}Config")(**sizes)
    )
    with torch.no_grad():
        for tensor_name, tensor in model.state_dict().items():
            if "norm" in tensor_name or "bias" in tensor_name:
                tensor.add_(torch.randn_like(tensor), alpha=0.1)
            if not tensor_name.endswith(("score_correction_bias", "expert_bias")):  # float32 as published
                tensor.copy_(tensor.bfloat16())
    return model.eval()


def write_network(path: Path, family: str, model: PreTrainedModel, metadata: Mapping[str, Any] = {}) -> Path:
    """`metadata` replaces or adds entries, and None removes one."""
    architecture, is_older = family.partition(" ")[0], family.endswith("older")
    metadata = {**(OLDER_MLA if is_older else {}), **metadata}
    writer = GGUFWriter(path, architecture)
    entries = _metadata(architecture, model.config.to_dict())
    entries |= {f"{architecture}.{key}": value for key, value in metadata.items()}
    for key, value in (entries | byte_tokenizer()).items():
        if value is not None:
            add_entry(writer, key, value)
    for name, values in stored_tensors(architecture, model, is_older=is_older):
        writer.add_tensor(name, numpy.ascontiguousarray(values.float().numpy()))
    return finished(writer, path)


def stored_tensors(
    family: str, model: PreTrainedModel, *, is_older: bool = False
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a network as llama.cpp stores them; before 2025-04, keys and values of MLA were one matrix."""
    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == family)
    names = get_tensor_name_map(architecture, model.config.num_hidden_layers)
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        published = load_file(Path(folder, "model.safetensors"))
    if family == "gemma4":
        yield "rope_freqs.weight", torch.tensor([1.0] * 4 + [1e30] * 12)
    for name, tensor in _converted(family, _stacked(published), model.config, is_older=is_older):
        stored = name if name.startswith("blk.") else names.get_name(name, (".weight", ".bias"))
        assert stored, name
        yield stored, tensor


def _stacked(published: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The experts of a layer in one tensor."""
    stacks, others = dict[str, list[torch.Tensor]](), dict[str, torch.Tensor]()
    for name in sorted(published, key=lambda name: [int(part) if part.isdigit() else 0 for part in name.split(".")]):
        before, experts, after = name.partition(".experts.")
        number, _, part = after.partition(".")
        if experts and number.isdigit():
            stacks.setdefault(f"{before}.experts.{part}", []).append(published[name])
        else:
            others[name] = published[name]
    return others | {name: torch.stack(each) for name, each in stacks.items()}


def _converted(
    family: str, tensors: Mapping[str, torch.Tensor], config: Any, *, is_older: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors.items():
        layer, _, part = name.removeprefix("model.layers.").partition(".")
        if "input_linear" in part:  # gate and up in one
            kind = "_exps" if "block_sparse" in part else "_shexp" if config.num_local_experts else ""
            gate, up = tensor.split(tensor.shape[-2] // 2, dim=-2)
            yield f"blk.{layer}.ffn_gate{kind}.weight", gate
            yield f"blk.{layer}.ffn_up{kind}.weight", up
        elif part == "self_attn.kv_b_proj.weight" and not is_older:
            heads = tensor.view(config.num_attention_heads, -1, tensor.shape[-1])
            keys, values = heads.split((config.qk_nope_head_dim, config.v_head_dim), dim=1)
            yield f"blk.{layer}.attn_k_b.weight", keys.transpose(1, 2)
            yield f"blk.{layer}.attn_v_b.weight", values
        elif part in NAMES:
            yield f"blk.{layer}.{NAMES[part]}", tensor
        else:
            yield name.replace(".dt_bias", ".dt_proj.bias"), _reshaped(family, part, tensor, config)


def _reshaped(family: str, part: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    if family.startswith("granite") and part in ("self_attn.q_proj.weight", "self_attn.k_proj.weight"):
        heads = config.num_attention_heads if ".q_" in part else config.num_key_value_heads
        return tensor.reshape(heads, 2, -1, tensor.shape[-1]).transpose(1, 2).reshape(tensor.shape)
    if "conv1d.weight" in part or "conv.conv" in part:
        return tensor.squeeze(1)
    if part == "mamba.A_log":
        return -tensor.float().exp()[:, None]
    if part == "mamba.D":
        return tensor[:, None]
    return tensor.view(config.mamba_n_groups, -1) if part == "mamba.norm.weight" else tensor


NAMES = {  # that the package `gguf` does not know, by those of a layer
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias", "feed_forward.expert_bias": "exp_probs_b.bias",
    "feed_forward.experts.w1.weight": "ffn_gate_exps.weight", "feed_forward.experts.w3.weight": "ffn_up_exps.weight",
    "feed_forward.experts.w2.weight": "ffn_down_exps.weight",
    "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
    "router.proj.weight": "ffn_gate_inp.weight", "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight", "layer_scalar": "layer_output_scale.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
}  # fmt: skip


def _metadata(family: str, config: Mapping[str, Any]) -> dict[str, Any]:
    kinds = config.get("layer_types")
    kv_heads = config["num_key_value_heads"]
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    entries: dict[str, Any] = {
        "context_length": 512, "embedding_length": 64, "block_count": config["num_hidden_layers"],
        "feed_forward_length": 96, "attention.head_count": 4, "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": float(config.get("norm_eps") or config["rms_norm_eps"]),
        "attention.key_length": 16, "attention.value_length": 16, "rope.dimension_count": 16,
        "rope.freq_base": float(rope.get("rope_theta", 10000.0)),
    }  # fmt: skip
    if family in ("lfm2", "lfm2moe", "granitehybrid"):
        entries["attention.head_count_kv"] = [0 if kind in RECURRENT else kv_heads for kind in kinds]
        entries["shortconv.l_cache"] = config.get("conv_L_cache")
    if family.startswith("glm4"):
        entries["rope.dimension_count"] = 8
    if experts := config.get("n_routed_experts") or config.get("num_local_experts") or config.get("num_experts"):
        used = config.get("num_experts_per_tok") or config["top_k_experts"]
        inner = config.get("moe_intermediate_size") or config["intermediate_size"]
        entries |= {"expert_count": experts, "expert_used_count": used, "expert_feed_forward_length": inner}
    if family in ("glm4moe", "deepseek2", "lfm2moe"):
        entries |= {"expert_gating_func": SIGMOID, "leading_dense_block_count": 1}
    if family in ("glm4moe", "deepseek2"):
        entries |= {
            "expert_shared_count": 1, "expert_weights_scale": 1.5, "expert_weights_norm": True,
            "expert_group_count": 2, "expert_group_used_count": 1,
        }  # fmt: skip
    if family == "deepseek2":
        entries |= _latent_metadata(config, rope)
    if family.startswith("granite"):
        scales = {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier"}
        scales |= {"residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"}
        entries |= {key: float(config[name]) for key, name in scales.items()}
    if family == "granitehybrid":
        entries |= {
            "ssm.inner_size": 128, "ssm.time_step_rank": 8, "ssm.state_size": 16, "ssm.conv_kernel": 4,
            "ssm.group_count": 1, "expert_shared_feed_forward_length": 40, "rope.scaling.finetuned": False,
        }  # fmt: skip
    if family == "gemma4":
        entries |= {
            "attention.key_length": 32, "attention.value_length": 32, "rope.dimension_count": 32,
            "attention.key_length_swa": 16, "attention.value_length_swa": 16, "rope.dimension_count_swa": 16,
            "attention.sliding_window": 24, "rope.freq_base_swa": 10000.0,
            "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in kinds],
        }  # fmt: skip
    return {f"{family}.{key}": value for key, value in entries.items()}


def _latent_metadata(config: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any]:
    """Every head reads one latent."""
    entries: dict[str, Any] = {
        "attention.head_count_kv": 1, "attention.key_length": 40, "attention.value_length": 32,
        "attention.key_length_mla": 24, "attention.value_length_mla": 24, "attention.kv_lora_rank": 32,
        "attention.q_lora_rank": config["q_lora_rank"], "rope.dimension_count": 8,
        "expert_group_count": config["n_group"],
    }  # fmt: skip
    if config["model_type"] == "deepseek_v2":
        entries |= {"expert_gating_func": SOFTMAX, "expert_weights_norm": None}
    if rope.get("rope_type") == "yarn":
        entries |= {
            "rope.scaling.type": "yarn", "rope.scaling.factor": rope["factor"],
            "rope.scaling.original_context_length": 16, "rope.scaling.yarn_beta_fast": 32.0,
            "rope.scaling.yarn_beta_slow": 1.0, "rope.scaling.yarn_log_multiplier": 0.1 * rope["mscale_all_dim"],
        }  # fmt: skip
    return entries
