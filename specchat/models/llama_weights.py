"""Safetensors of the dense Llama family become the weights of our own passes; anything else is left to transformers.

Knows names of tensors and keys of config.json. Imports no transformers: that alone saves seconds at every start.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from specchat.engine.model import limit_context_window
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.forward.cuda_graphs import Capture, cuda_graph_capture
from specchat.forward.llama import Dimensions, Layer, LlamaModel, Weights
from specchat.forward.rope import Rope, cos_sin
from specchat.models.fp8_checkpoints import Fp8TensorFiles, block_shape_from_config, is_supported_fp8
from specchat.models.tensor_files import WeightLoader

SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3")
LLAMA_LIKE_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def is_llama_like(config: dict[str, Any]) -> bool:
    """Whether our own passes compute this network: its family, activation, rope and storage are known."""
    return (
        config.get("model_type") in LLAMA_LIKE_FAMILIES
        and config.get("hidden_act", "silu") == "silu"
        and Rope.from_config(config).rope_type in SUPPORTED_ROPE_TYPES
        and Rope.from_config(config).partial_rotary_factor == 1.0
        and (not config.get("quantization_config") or is_supported_fp8(config["quantization_config"]))
        and not config.get("mlp_bias")
    )


def load_llama(
    folder: Path,
    dtype: torch.dtype | None,
    device: torch.device,
    context_window: int | None,
    limits: BatchLimits,
    capture: Capture | None = None,
    quant_format: str = "float",
    embedding_device: torch.device | None = None,
) -> LlamaModel:
    """The network of a folder. `dtype` None keeps what the weights were saved in; `weights` is one of products.WAYS.

    Weights that were saved in eight bits with scales are made floats of the dtype that the config names, slab by slab.
    A card records passes by itself, unless the embedding is to stay on another device: a recording cannot reach it.
    """
    config = json.loads((folder / "config.json").read_text())
    heads = config["num_attention_heads"]
    sizes = Dimensions(
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or config["hidden_size"] // heads,
        vocab_size=config["vocab_size"],
        epsilon=config.get("rms_norm_eps", 1e-6),
        max_position_embeddings=config.get("max_position_embeddings", 4096),
    )
    files = tensor_files(folder, config)
    if files.has_scaled_weights:
        dtype = dtype or config_dtype(config)
        files = replace(files, dtype=dtype)
    loader = WeightLoader(files, dtype, device, quant_format=quant_format)
    if device.type == "cuda" and embedding_device in (None, device):
        capture = capture or cuda_graph_capture(device)
    loaded = _weights(loader, config, sizes, embedding_device or device)
    return LlamaModel(
        sizes, loaded, limit_context_window(context_window, sizes.max_position_embeddings), limits, capture
    )


def tensor_files(folder: Path, config: dict[str, Any]) -> Fp8TensorFiles:
    """The tensors of a folder; those in eight bits are read as the numbers that they stand for."""
    files = Fp8TensorFiles.from_files(folder, sorted(folder.glob("*.safetensors")))
    return replace(files, block=block_shape_from_config(config.get("quantization_config") or {}))


def config_dtype(config: dict[str, Any]) -> torch.dtype:
    """What the config says that its network computes with: bfloat16 when it does not say, or names eight bits."""
    named = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    return DTYPES.get(named, torch.bfloat16)


def _weights(
    loader: WeightLoader, config: dict[str, Any], dimensions: Dimensions, embedding_device: torch.device
) -> Weights:
    """The largest first: what is needed beside a weight while it is packed then finds the most room."""
    embedding = loader.tensor("model.embed_tokens.weight", embedding_device)
    queries = loader.files.shape("model.layers.0.self_attn.q_proj.weight")
    found = {"vocab_size": embedding.shape[0], "hidden_size": embedding.shape[1]}
    found["num_attention_heads"] = queries[0] // dimensions.head_size
    for key, value in found.items():
        if config[key] != value:
            raise ModelError(
                f"{loader.files.source}: config.json says {key} = {config[key]}, but the weights say {value}"
            )
    is_tied = config.get("tie_word_embeddings", False) or "lm_head.weight" not in loader.files
    head = loader.tied_lm_head(embedding) if is_tied else loader.linear("lm_head")
    numbers = range(config["num_hidden_layers"])
    layers = [_layer(loader, f"model.layers.{number}", _sliding_window(config, number)) for number in numbers]
    norm, rope = loader.tensor("model.norm.weight"), Rope.from_config(config)
    cosine, sine = cos_sin(
        torch.arange(dimensions.max_position_embeddings), rope.inv_freq(dimensions.head_size), rope.attention_factor
    )
    return Weights(embedding, layers, norm, head, (cosine.to(norm), sine.to(norm)), loader.loaded_bytes)


def _layer(loader: WeightLoader, prefix: str, sliding_window: int | None) -> Layer:
    return Layer(
        input_layernorm=loader.tensor(f"{prefix}.input_layernorm.weight"),
        qkv_proj=loader.linear(*(f"{prefix}.self_attn.{part}_proj" for part in "qkv")),
        q_norm=loader.optional(f"{prefix}.self_attn.q_norm.weight"),
        k_norm=loader.optional(f"{prefix}.self_attn.k_norm.weight"),
        o_proj=loader.linear(f"{prefix}.self_attn.o_proj"),
        post_attention_layernorm=loader.tensor(f"{prefix}.post_attention_layernorm.weight"),
        gate_up_proj=loader.linear(f"{prefix}.mlp.gate_proj", f"{prefix}.mlp.up_proj"),
        down_proj=loader.linear(f"{prefix}.mlp.down_proj"),
        sliding_window=sliding_window,
    )


def _sliding_window(config: dict[str, Any], index: int) -> int | None:
    """How far a layer looks back, by the rules of each family."""
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return None
    if kinds := config.get("layer_types"):
        return config["sliding_window"] if kinds[index] == "sliding_attention" else None
    if config["model_type"].startswith("qwen"):
        is_sliding = config.get("use_sliding_window") and index >= config.get("max_window_layers", 28)
        return config["sliding_window"] if is_sliding else None
    return config["sliding_window"]
