"""Writes GGUF files as llama.cpp's converter does: its tensor names, Q and K permuted, norms plus one.

A file is written from a transformers network, so that what we read can be compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
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
FAMILIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("Llama", {}),
    "granite": ("Granite", GRANITE),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"rms_norm_eps": 1e-5}),
    "gemma2": ("Gemma2", GEMMA),
    "gemma3": ("Gemma3Text", {**GEMMA, "num_hidden_layers": 7}),
    "phi3": ("Phi3", {"bos_token_id": 0}),
}


def network(family: str, tied: bool = True, **extra: Any) -> PreTrainedModel:
    """A random network whose weights are bf16 numbers, so that a file in any float format holds them exactly."""
    import transformers

    name, special = FAMILIES[family]
    torch.manual_seed(3)
    sizes = {**SIZES, **WIDTHS, "num_hidden_layers": 2, **special, **extra, "tie_word_embeddings": tied}
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "norm" in parameter_name:  # ones and zeros would hide a norm in the wrong place
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
            parameter.copy_(parameter.bfloat16())
    return model.eval()


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
    writer = GGUFWriter(path, entries.pop("general.architecture", family), split_max_tensors=shard_tensors)
    for key, value in entries.items():
        if value is not None:
            _add(writer, key, value)
    kind = GGMLQuantizationType[storage]
    for name, values in (stored_tensors(family, model) | dict(tensors)).items():
        if name in raw_types:
            writer.add_tensor(
                name, numpy.zeros(values.shape, {"I8": numpy.int8, "F64": numpy.float64}[raw_types[name]])
            )
        elif values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored_tensors(family: str, model: PreTrainedModel) -> dict[str, numpy.ndarray]:
    """The tensors of a network as llama.cpp stores them, in float32."""
    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == family)
    names = get_tensor_name_map(architecture, model.config.num_hidden_layers)
    stored = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = tensor.float()
        if family in ("llama", "granite") and (".q_proj." in name or ".k_proj." in name):
            config = model.config
            heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
            values = values.reshape(heads, 2, -1, *values.shape[1:]).transpose(1, 2).reshape(values.shape)
        if family.startswith("gemma") and name.endswith("norm.weight"):
            values = values + 1
        stored[names.get_name(name, (".weight", ".bias"))] = values.numpy()
    return stored


def _metadata(family: str, model: PreTrainedModel) -> dict[str, Any]:
    config = model.config
    sizes: dict[str, Any] = {
        "context_length": 512, "embedding_length": config.hidden_size, "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size, "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads, "attention.key_length": 16,
        "attention.value_length": 16, "rope.dimension_count": 16,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
    }  # fmt: skip
    if family.startswith("gemma"):
        sizes["attention.sliding_window"] = config.sliding_window
    if family == "gemma2":
        sizes |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    if family == "granite":
        scales = {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier"}
        scales |= {"residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"}
        sizes |= {key: float(getattr(config, name)) for key, name in scales.items()}
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    sizes["rope.freq_base"] = float(rope["rope_theta"])
    return {f"{family}.{key}": value for key, value in sizes.items()} | byte_tokenizer()


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


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
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
