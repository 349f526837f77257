"""Writes GGUF files as llama.cpp's converter does: its tensor names, Q and K permuted, norms plus one.

A file is written from a transformers network, so that what we read can be compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from gguf import GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.constants import MODEL_ARCH_NAMES
from gguf.quants import quantize

from tests.tiny import SIZES

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONTROL, NORMAL = 3, 1
CONTROL_TOKENS = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
VOCABULARY = 288  # 256 bytes, control tokens, merges and padding rows
WIDTHS = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
GEMMA = {"sliding_window": 24, "query_pre_attn_scalar": 16}
GRANITE = {
    "embedding_multiplier": 6.0, "attention_multiplier": 0.25, "residual_multiplier": 0.22, "logits_scaling": 3.0,
}  # fmt: skip
LAYER_TYPES = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]
GEMMA4 = {"num_hidden_layers": 5, "layer_types": LAYER_TYPES, "sliding_window": 24, "global_head_dim": 32}
MINISTRAL_ROPE = {
    "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 256,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
OLMO3 = {"num_hidden_layers": 4, "sliding_window": 24}
FAMILIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("Llama", {}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 4, "bos_token_id": 0}),
    "seed_oss": ("SeedOss", {"attention_bias": True, "attention_out_bias": False}),
    "olmo2": ("Olmo2", {"rms_norm_eps": 1e-5}),
    "olmo3": ("Olmo3", {**OLMO3, "rms_norm_eps": 1e-5}),
    "exaone4": ("Exaone4", {**OLMO3, "rms_norm_eps": 1e-5}),
    "gemma": ("Gemma", {}),
    "granite": ("Granite", GRANITE),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"rms_norm_eps": 1e-5}),
    "gemma2": ("Gemma2", GEMMA),
    "gemma3": ("Gemma3Text", {**GEMMA, "num_hidden_layers": 7}),
    "gemma4": (  # as the small ones
        "Gemma4Text",
        GEMMA4
        | {"num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 32}
        | {"vocab_size_per_layer_input": VOCABULARY, "final_logit_softcapping": 5.0},
    ),
    "gemma4-31b": (
        "Gemma4Text",
        GEMMA4 | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0},
    ),
    "mistral3": ("Ministral3", {"rope_parameters": MINISTRAL_ROPE, "rms_norm_eps": 1e-5, "sliding_window": None}),
    "phi3": ("Phi3", {"bos_token_id": 0}),
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
EXPERT_FAMILIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mixtral": ("Mixtral", {"num_local_experts": 6, "num_experts_per_tok": 2}),
    "qwen2moe": ("Qwen2Moe", {**EXPERTS, "shared_expert_intermediate_size": 32, "sliding_window": None}),
    "qwen3moe": ("Qwen3Moe", {**EXPERTS, "norm_topk_prob": True}),
    "olmoe": ("Olmoe", {"num_experts": 6, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5}),
    "gpt-oss": (
        "GptOss",
        {"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 24, "intermediate_size": 64},
    ),
}
DELTA = {
    "num_hidden_layers": 2, "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
HYBRID_FAMILIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "qwen35": ("Qwen3_5Text", DELTA),
    "qwen35moe": ("Qwen3_5MoeText", {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 32}),
    "qwen3next": ("Qwen3Next", {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 32}),
}
CONVERTIBLE = tuple(family for family in (*EXPERT_FAMILIES, *HYBRID_FAMILIES) if family != "gpt-oss")
ARCHITECTURES = {"olmo3": "olmo2", "mixtral": "llama", "gemma4-31b": "gemma4"}  # where llama.cpp's name is another
PAIRED = ("llama", "granite", "smollm3", "mixtral", "mistral3")  # rows of queries and keys are stored in pairs


def network(family: str, tied: bool = True, **extra: Any) -> PreTrainedModel:
    """A random network whose weights are bf16 numbers, so that a file in any float format holds them exactly."""
    import transformers

    name, special = (FAMILIES | EXPERT_FAMILIES | HYBRID_FAMILIES)[family]
    torch.manual_seed(3)
    sizes = {**SIZES, **WIDTHS, "num_hidden_layers": 2, **special, **extra, "tie_word_embeddings": tied}
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "norm" in parameter_name:  # ones and zeros would hide a norm in the wrong place
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
            parameter.copy_(parameter.bfloat16())
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.fill_(0.75)
    return model.eval()


def finished(writer: GGUFWriter, path: Path) -> Path:
    """The file with all that the writer was given."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_gguf(
    path: Path,
    family: str = "llama",
    *,
    storage: str = "F32",
    metadata: Mapping[str, Any] = {},
    tensors: Mapping[str, numpy.ndarray] = {},
    raw_types: Mapping[str, str] = {},
    shard_tensors: int = 0,
    model: PreTrainedModel | None = None,
) -> Path:
    """Write a network and a byte tokenizer. `metadata` replaces or adds entries, and None removes one.

    `tensors` are added, and `raw_types` are the types of tensors whose values are zero.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    model = model or network(family)
    entries = _metadata(family, model) | dict(metadata)
    architecture = entries.pop("general.architecture", ARCHITECTURES.get(family, family))
    writer = GGUFWriter(path, architecture, split_max_tensors=shard_tensors)
    for key, value in entries.items():
        if value is not None:
            add_entry(writer, key, value)
    kind = GGMLQuantizationType[storage]
    for name, values in (stored_tensors(family, model) | dict(tensors)).items():
        if name in raw_types:
            writer.add_tensor(
                name, numpy.zeros(values.shape, {"I8": numpy.int8, "F64": numpy.float64}[raw_types[name]])
            )
        elif values.ndim == 1 or "conv1d" in name:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    return finished(writer, path)


def stored_tensors(family: str, model: PreTrainedModel) -> dict[str, numpy.ndarray]:
    """The tensors of a network as llama.cpp stores them, in float32."""
    stored_name = ARCHITECTURES.get(family, family)
    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == stored_name)
    names = get_tensor_name_map(architecture, model.config.num_hidden_layers)
    stored = {}
    if stored_name == "gemma4":  # a quarter of the frequencies of full attention is rotated
        stored["rope_freqs.weight"] = numpy.array([1.0] * 4 + [1e30] * 12, dtype=numpy.float32)
    for name, tensor in _single_tensors(family, model):
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = tensor.float()
        if family in PAIRED and (".q_proj." in name or ".k_proj." in name):
            config = model.config
            heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
            values = values.reshape(heads, 2, -1, *values.shape[1:]).transpose(1, 2).reshape(values.shape)
        if family in ("gemma", "gemma2", "gemma3") and name.endswith("norm.weight"):
            values = values + 1
        if family in HYBRID_FAMILIES:
            values = _hybrid_values(family, name, values, model.config)
        stored_name = names.get_name(name.replace(".dt_bias", ".dt_proj.bias"), (".weight", ".bias"))
        stored[stored_name] = values.numpy()
    return stored


def _hybrid_values(family: str, name: str, values: torch.Tensor, config: Any) -> torch.Tensor:
    """A tensor of a network with recurrent layers; in Qwen3.5 the first head of values of each key head comes first."""
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        return values + 1
    if ".linear_attn." not in name:
        return values
    groups, heads, size = config.linear_num_key_heads, config.linear_num_value_heads, config.linear_value_head_dim
    first = 2 * groups * config.linear_key_head_dim if "qkv." in name or "conv1d" in name else 0
    height = 1 if name.endswith(("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight")) else size
    order = torch.arange(heads * height).view(groups, -1, height).transpose(0, 1).reshape(-1)
    order = torch.cat((torch.arange(first), order + first))
    if family != "qwen3next" and "out_proj" in name:
        values = values[:, order]
    elif family != "qwen3next" and not name.endswith("norm.weight"):
        values = values[order]
    if name.endswith("A_log"):
        values = -values.exp()
    return values.squeeze(1) if "conv1d" in name else values


def _parts_of_key_heads(name: str, tensor: torch.Tensor, config: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Queries, keys and values of all key heads, and the output gates, of a tensor that has them by key head."""
    keys, values = config.linear_key_head_dim, config.linear_value_head_dim
    values *= config.linear_num_value_heads // config.linear_num_key_heads
    heads = tensor.view(config.linear_num_key_heads, -1, tensor.shape[-1])
    parts = [part.flatten(0, 1) for part in heads.split((keys, keys, values, values), dim=1)]
    yield name.replace("qkvz", "qkv"), torch.cat(parts[:3])
    yield name.replace("qkvz", "z"), parts[3]


def _single_tensors(family: str, model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a network, with those of gate and up apart; the stacks of gpt-oss as those of the others."""
    for name, tensor in model.state_dict().items():
        if name.endswith(("self_attn.sinks", "layer_scalar")):
            yield f"{name}.weight", tensor
        elif "in_proj_qkvz" in name:
            yield from _parts_of_key_heads(name, tensor, model.config)
        elif ".experts." not in name:
            yield name.replace(".mlp.router.", ".mlp.gate."), tensor
        else:
            stack, _, part = name.rpartition(".")
            is_bias, values = part.endswith("_bias"), tensor
            if family == "gpt-oss" and not is_bias:
                values = tensor.transpose(1, 2)
            ending = "bias" if is_bias else "weight"
            if part.startswith("down"):
                yield f"{stack}.down_proj.{ending}", values
            else:
                half = values.shape[1] // 2
                gate_up = (
                    (values[:, 0::2], values[:, 1::2]) if family == "gpt-oss" else (values[:, :half], values[:, half:])
                )
                for projection, each in zip(("gate_proj", "up_proj"), gate_up, strict=True):
                    yield f"{stack}.{projection}.{ending}", each.contiguous()


def _gemma4_metadata(config: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """A number for each layer where they differ, and the sizes of heads with a window by names of their own."""
    is_sliding = [kind == "sliding_attention" for kind in LAYER_TYPES]
    inner, kv_heads = sizes["feed_forward_length"], sizes["attention.head_count_kv"]
    shared = config.get("num_kv_shared_layers", 0)
    wide = [layer >= len(LAYER_TYPES) - shared for layer in range(len(LAYER_TYPES))]
    kv_heads_of_full = config.get("num_global_key_value_heads", kv_heads)
    return {
        "attention.key_length": 32, "attention.value_length": 32, "rope.dimension_count": 32,
        "attention.key_length_swa": 16, "attention.value_length_swa": 16, "rope.dimension_count_swa": 16,
        "attention.sliding_window": 24, "attention.sliding_window_pattern": is_sliding,
        "attention.head_count_kv": [kv_heads if each else kv_heads_of_full for each in is_sliding],
        "feed_forward_length": [2 * inner if each else inner for each in wide], "rope.freq_base_swa": 10000.0,
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        **({"final_logit_softcapping": 5.0} if "final_logit_softcapping" in config else {}),
    }  # fmt: skip


def _yarn_metadata(rope: Mapping[str, Any]) -> dict[str, Any]:
    if rope.get("rope_type") != "yarn":
        return {}
    optional = {
        "rope.scaling.yarn_log_multiplier": "mscale_all_dim",
        "attention.temperature_scale": "llama_4_scaling_beta",
    }
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": float(rope["factor"]),
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        **{key: float(rope[name]) for key, name in optional.items() if name in rope},
    }


def _metadata(family: str, model: PreTrainedModel) -> dict[str, Any]:
    config, architecture = model.config, ARCHITECTURES.get(family, family)
    sizes: dict[str, Any] = {
        "context_length": 512, "embedding_length": config.hidden_size, "block_count": config.num_hidden_layers,
        "feed_forward_length": getattr(config, "intermediate_size", 96),
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.to_dict()["num_key_value_heads"], "attention.key_length": 16,
        "attention.value_length": 16, "rope.dimension_count": 16,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
    }  # fmt: skip
    if getattr(config, "sliding_window", None) and getattr(config, "layer_types", None):
        sizes["attention.sliding_window"] = config.sliding_window
        if family in ("olmo3", "exaone4"):
            sizes["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in config.layer_types]
    if family in HYBRID_FAMILIES:
        sizes |= {"rope.dimension_count": 4, "full_attention_interval": 2, "ssm.conv_kernel": 4}
        sizes |= {"ssm.state_size": 16, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 64}
    if family in EXPERT_FAMILIES or family in ("qwen35moe", "qwen3next"):
        experts = getattr(config, "num_experts", None) or config.num_local_experts
        sizes |= {"expert_count": experts, "expert_used_count": config.num_experts_per_tok}
        if family != "mixtral" and family != "olmoe":
            sizes["expert_feed_forward_length"] = getattr(config, "moe_intermediate_size", config.intermediate_size)
        if family in ("qwen2moe", "qwen35moe", "qwen3next"):
            sizes["expert_shared_feed_forward_length"] = config.shared_expert_intermediate_size
    sizes |= _yarn_metadata(config.rope_parameters)
    if architecture == "gemma4":
        sizes |= _gemma4_metadata(FAMILIES[family][1], sizes)
    if family == "gemma2":
        sizes |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    if family == "granite":
        scales = {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier"}
        scales |= {"residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"}
        sizes |= {key: float(getattr(config, name)) for key, name in scales.items()}
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    sizes["rope.freq_base"] = float(rope["rope_theta"])
    return {f"{architecture}.{key}": value for key, value in sizes.items()} | byte_tokenizer()


def byte_tokenizer() -> dict[str, Any]:
    """Control tokens, all bytes, and a few merges."""
    from tokenizers import pre_tokenizers

    merges = ["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2", "12 3", "Ġ Ġ", "ĠĠ ĠĠ"]
    tokens = [
        *CONTROL_TOKENS,
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        *(each.replace(" ", "") for each in merges),
    ]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL] * len(CONTROL_TOKENS) + [NORMAL] * (len(tokens) - len(CONTROL_TOKENS)),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def add_entry(writer: GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


def long_rope_gguf(path):
    """A file that our own passes do not compute."""
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    model = network("phi3", rope_parameters=rope, original_max_position_embeddings=64)
    factors = {f"rope_factors_{name}.weight": numpy.float32(rope[f"{name}_factor"]) for name in ("short", "long")}
    return write_gguf(path, "phi3", model=model, tensors=factors)
