"""Safetensors of the dense Llama family become the weights of our own passes; anything else is left to transformers.

Knows names of tensors and keys of config.json. Imports no transformers: that alone saves seconds at every start.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from specchat.engine.model import longest_text
from specchat.errors import ModelError
from specchat.forward.batch import PassShape
from specchat.forward.cuda_graphs import Record, cuda_recorder
from specchat.forward.llama import DenseModel, Dimensions, Layer, Weights
from specchat.forward.rope import Rope, turns
from specchat.models.fp8_checkpoints import ScaledFiles, block_of, reads_scales
from specchat.models.tensor_files import Loader

ROPES = ("default", "linear", "llama3")
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def is_dense(config: dict[str, Any]) -> bool:
    """Whether our own passes compute this network: its family, activation, rope and storage are known."""
    return (
        config.get("model_type") in FAMILIES
        and config.get("hidden_act", "silu") == "silu"
        and Rope.of(config).kind in ROPES
        and Rope.of(config).share == 1.0
        and (not config.get("quantization_config") or reads_scales(config["quantization_config"]))
        and not config.get("mlp_bias")
    )


def load_dense(
    folder: Path,
    dtype: torch.dtype | None,
    device: torch.device,
    window: int | None,
    shape: PassShape,
    record: Record | None = None,
    weights: str = "float",
    embedding: torch.device | None = None,
) -> DenseModel:
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
        vocabulary=config["vocab_size"],
        epsilon=config.get("rms_norm_eps", 1e-6),
        longest=config.get("max_position_embeddings", 4096),
    )
    files = files_of(folder, config)
    if files.has_scales:
        dtype = dtype or meant_dtype(config)
        files = replace(files, dtype=dtype)
    loader = Loader(files, dtype, device, weights=weights)
    if device.type == "cuda" and embedding in (None, device):
        record = record or cuda_recorder(device)
    loaded = _weights(loader, config, sizes, embedding or device)
    return DenseModel(sizes, loaded, longest_text(window, sizes.longest), shape, record)


def files_of(folder: Path, config: dict[str, Any]) -> ScaledFiles:
    """The tensors of a folder; those in eight bits are read as the numbers that they stand for."""
    files = ScaledFiles.of(folder, sorted(folder.glob("*.safetensors")))
    return replace(files, block=block_of(config.get("quantization_config") or {}))


def meant_dtype(config: dict[str, Any]) -> torch.dtype:
    """What the config says that its network computes with: bfloat16 when it does not say, or names eight bits."""
    named = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    return DTYPES.get(named, torch.bfloat16)


def _weights(loader: Loader, config: dict[str, Any], sizes: Dimensions, embedding_on: torch.device) -> Weights:
    """The largest first: what is needed beside a weight while it is packed then finds the most room."""
    embedding = loader.tensor("model.embed_tokens.weight", embedding_on)
    queries = loader.files.shape("model.layers.0.self_attn.q_proj.weight")
    found = {"vocab_size": embedding.shape[0], "hidden_size": embedding.shape[1]}
    found["num_attention_heads"] = queries[0] // sizes.head_size
    for key, value in found.items():
        if config[key] != value:
            raise ModelError(
                f"{loader.files.source}: config.json says {key} = {config[key]}, but the weights say {value}"
            )
    is_tied = config.get("tie_word_embeddings", False) or "lm_head.weight" not in loader.files
    head = loader.scoring(embedding) if is_tied else loader.product("lm_head")
    numbers = range(config["num_hidden_layers"])
    layers = [_layer(loader, f"model.layers.{number}", _window(config, number)) for number in numbers]
    norm, rope = loader.tensor("model.norm.weight"), Rope.of(config)
    cosine, sine = turns(torch.arange(sizes.longest), rope.speeds(sizes.head_size), rope.size)
    return Weights(embedding, layers, norm, head, (cosine.to(norm), sine.to(norm)), loader.bytes)


def _layer(loader: Loader, at: str, window: int | None) -> Layer:
    return Layer(
        before_attention=loader.tensor(f"{at}.input_layernorm.weight"),
        qkv=loader.product(*(f"{at}.self_attn.{part}_proj" for part in "qkv")),
        query_norm=loader.optional(f"{at}.self_attn.q_norm.weight"),
        key_norm=loader.optional(f"{at}.self_attn.k_norm.weight"),
        attention_out=loader.product(f"{at}.self_attn.o_proj"),
        before_mlp=loader.tensor(f"{at}.post_attention_layernorm.weight"),
        gate_up=loader.product(f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"),
        down=loader.product(f"{at}.mlp.down_proj"),
        window=window,
    )


def _window(config: dict[str, Any], index: int) -> int | None:
    """How far a layer looks back, by the rules of each family."""
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return None
    if kinds := config.get("layer_types"):
        return config["sliding_window"] if kinds[index] == "sliding_attention" else None
    if config["model_type"].startswith("qwen"):
        is_sliding = config.get("use_sliding_window") and index >= config.get("max_window_layers", 28)
        return config["sliding_window"] if is_sliding else None
    return config["sliding_window"]
