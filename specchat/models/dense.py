"""Safetensors of the dense Llama family become the weights of our own passes; anything else is left to transformers.

Knows names of tensors and keys of config.json. Imports no transformers: that alone saves seconds at every start.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from specchat.engine.dense import DenseModel, Dimensions, Layer, Product, Weights, product
from specchat.engine.model import longest_text
from specchat.engine.passes import PassShape
from specchat.errors import ModelError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ROPES = ("default", "linear", "llama3")


def is_dense(config: dict[str, Any]) -> bool:
    """Whether our own passes compute this network: its family, activation, rope and storage are known."""
    return (
        config.get("model_type") in FAMILIES
        and config.get("hidden_act", "silu") == "silu"
        and _rope(config).get("rope_type", "default") in ROPES
        and not config.get("quantization_config")
        and not config.get("mlp_bias")
    )


def load_dense(
    folder: Path, dtype: torch.dtype | None, device: torch.device, window: int | None, shape: PassShape
) -> DenseModel:
    """The network of a folder. `dtype` None keeps what the weights were saved in."""
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
    files = _Files(folder, dtype, device)
    return DenseModel(sizes, _weights(files, config, sizes), longest_text(window, sizes.longest), shape)


@dataclass
class _Files:
    """The tensors of a folder, read one at a time so that no second copy of the weights ever stands in memory."""

    folder: Path
    dtype: torch.dtype | None
    device: torch.device
    bytes: int = 0
    _homes: dict[str, Path] = field(default_factory=dict[str, Path])

    def __post_init__(self) -> None:
        for path in sorted(self.folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                self._homes |= dict.fromkeys(file.keys(), path)

    def has(self, name: str) -> bool:
        """Whether a file holds this tensor."""
        return name in self._homes

    def tensor(self, name: str) -> Tensor:
        """One tensor, on the device; ModelError when no file holds it."""
        with safe_open(self._home(name), framework="pt") as file:
            tensor = file.get_tensor(name).to(self.device, self.dtype)
        self.bytes += tensor.numel() * tensor.element_size()
        return tensor

    def shape(self, name: str) -> list[int]:
        """The shape of a tensor, without reading it."""
        with safe_open(self._home(name), framework="pt") as file:
            return file.get_slice(name).get_shape()

    def product(self, *names: str) -> Product:
        """The named linear maps, on top of each other, as one product."""
        weights = [self.tensor(f"{name}.weight") for name in names]
        biases = [self.tensor(f"{name}.bias") for name in names if self.has(f"{name}.bias")]
        return product(torch.cat(weights), torch.cat(biases) if biases else None)

    def _home(self, name: str) -> Path:
        if name not in self._homes:
            raise ModelError(f"{self.folder}: cannot be loaded: no file holds the tensor {name}")
        return self._homes[name]

    def optional(self, name: str) -> Tensor | None:
        """A tensor that some families lack."""
        return self.tensor(name) if self.has(name) else None


def _weights(files: _Files, config: dict[str, Any], sizes: Dimensions) -> Weights:
    embedding = files.tensor("model.embed_tokens.weight")
    queries = files.shape("model.layers.0.self_attn.q_proj.weight")
    found = {"vocab_size": embedding.shape[0], "hidden_size": embedding.shape[1]}
    found["num_attention_heads"] = queries[0] // sizes.head_size
    for key, value in found.items():
        if config[key] != value:
            raise ModelError(f"{files.folder}: config.json says {key} = {config[key]}, but the weights say {value}")
    numbers = range(config["num_hidden_layers"])
    layers = [_layer(files, f"model.layers.{number}", _window(config, number)) for number in numbers]
    is_tied = config.get("tie_word_embeddings", False) or not files.has("lm_head.weight")
    head = product(embedding) if is_tied else files.product("lm_head")
    rope = _rope_table(config, sizes, embedding)
    return Weights(embedding, layers, files.tensor("model.norm.weight"), head, rope, files.bytes)


def _layer(files: _Files, at: str, window: int | None) -> Layer:
    return Layer(
        before_attention=files.tensor(f"{at}.input_layernorm.weight"),
        qkv=files.product(*(f"{at}.self_attn.{part}_proj" for part in "qkv")),
        query_norm=files.optional(f"{at}.self_attn.q_norm.weight"),
        key_norm=files.optional(f"{at}.self_attn.k_norm.weight"),
        attention_out=files.product(f"{at}.self_attn.o_proj"),
        before_mlp=files.tensor(f"{at}.post_attention_layernorm.weight"),
        gate_up=files.product(f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"),
        down=files.product(f"{at}.mlp.down_proj"),
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


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """The rope settings of old and new configs: base, type and scaling."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    rope.setdefault("rope_type", rope.pop("type", "default"))
    return rope


def _rope_table(config: dict[str, Any], sizes: Dimensions, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine of every position, in the dtype of the weights. [longest, head_size]"""
    rope = _rope(config)
    halves = torch.arange(0, sizes.head_size, 2, dtype=torch.int64).float() / sizes.head_size
    speeds = 1.0 / rope["rope_theta"] ** halves
    if rope["rope_type"] == "linear":
        speeds = speeds / rope["factor"]
    elif rope["rope_type"] == "llama3":
        speeds = _llama3(speeds, rope)
    angles = torch.arange(sizes.longest).float()[:, None] * speeds[None, :]
    cosine, sine = torch.cat((angles.cos(), angles.cos()), dim=-1), torch.cat((-angles.sin(), angles.sin()), dim=-1)
    return cosine.to(like), sine.to(like)


def _llama3(speeds: Tensor, rope: dict[str, Any]) -> Tensor:
    """Llama 3.1's scaling: slow waves are stretched, fast ones kept, those between blended."""
    old, low, high = rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"]
    waves = 2 * math.pi / speeds
    blend = (old / waves - low) / (high - low)
    stretched = torch.where(waves > old / low, speeds / rope["factor"], speeds)
    between = (1 - blend) * stretched / rope["factor"] + blend * stretched
    return torch.where((waves <= old / low) & (waves >= old / high), between, stretched)
