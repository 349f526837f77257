"""What lies in a folder before anybody has said what it is, and the questions that every family asks of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from specchat.errors import ModelError
from specchat.forward.rope import Rope
from specchat.heads.spec import HeadDimensions
from specchat.models.tensor_files import TensorFiles

ATTENTION_PROJECTIONS = tuple(f"{part}_proj" for part in "qkvo")


@dataclass(frozen=True)
class HeadCheckpoint:
    """Tensors and config of a checkpoint that may be a head."""

    tensors: TensorFiles
    config: Mapping[str, Any]

    @cached_property
    def text_config(self) -> Mapping[str, Any]:
        """The part of the config that speaks of layers: models with eyes and speculators nest it."""
        for key in ("transformer_layer_config", "text_config"):
            if isinstance(self.config.get(key), Mapping):
                return self.config[key]
        return self.config

    @property
    def architecture(self) -> str:
        """The first architecture that the config names."""
        return str((self.config.get("architectures") or ["?"])[0])

    @property
    def speculators_type(self) -> str | None:
        """Which of its kinds vLLM's speculators library says this is."""
        nested = self.config.get("speculators_config") or {}
        return self.config.get("speculators_model_type") or nested.get("algorithm")

    def first_match(self, pattern: str) -> re.Match[str] | None:
        """The first tensor whose name begins so."""
        return next((match for name in self.tensors.locations if (match := re.match(pattern, name))), None)

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """Rows and columns of a matrix; ModelError for a tensor of another shape."""
        match self.tensors.shape(name):
            case (rows, columns):
                return rows, columns
            case other:
                raise ModelError(f"{self.tensors.source}: {name} {list(other)} is no matrix")

    def describe_shape(self, name: str) -> str:
        """A tensor with its shape, for people."""
        return f"{name} {list(self.tensors.shape(name))}"

    def with_canonical_names(self, prefixes: Mapping[str, str]) -> TensorFiles:
        """The tensors whose names begin with one of the prefixes, beginning with its canonical name instead."""
        names: dict[str, str] = {}
        for name in self.tensors.locations:
            for old, new in prefixes.items():
                if name.startswith(old):
                    names.setdefault(new + name.removeprefix(old), name)
                    break
        return self.tensors.renamed(names)


def dimensions_from_tensors(
    tensors: TensorFiles, config: Mapping[str, Any], width: int
) -> tuple[HeadDimensions, list[str]]:
    """The numbers of the layers, from the shapes of their tensors; what the config says otherwise becomes a warning."""
    at = "layers.0.self_attn"
    rows = {part: tensors.shape(f"{at}.{part}_proj.weight")[0] for part in "qkv"}
    seen = tensors.shape(f"{at}.o_proj.weight")[1]  # heads * head_size, with or without gates
    said_heads = int(config.get("num_attention_heads") or 0)
    said_kv = int(config.get("num_key_value_heads") or 0)
    head_size = _head_size(tensors, seen, rows["k"], said_heads, said_kv, config.get("head_dim"))
    if not head_size or seen % head_size or rows["k"] % head_size or rows["k"] != rows["v"]:
        shapes = f"q {rows['q']}, k {rows['k']}, v {rows['v']}, o {seen}"
        raise ModelError(f"{tensors.source}: no size of a head fits its projections ({shapes} rows)")
    heads, kv_heads = seen // head_size, rows["k"] // head_size
    layers = len({name.split(".")[1] for name in tensors.locations if name.startswith("layers.")})
    said = {"head_dim": head_size, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "hidden_size": width}
    gated, windows, epsilon = (
        rows["q"] == 2 * seen,
        _sliding_windows(config, layers),
        float(config.get("rms_norm_eps", 1e-6)),
    )
    block = HeadDimensions(width, heads, kv_heads, head_size, layers, epsilon, gated, windows)
    return block, config_mismatches(config, said)


def config_mismatches(config: Mapping[str, Any], tensors: Mapping[str, int | None]) -> list[str]:
    """Warnings of numbers in which a config and the shapes of the tensors differ."""
    return [
        f"config.json says {key} = {config[key]}, the tensors say {value}; the tensors are right"
        for key, value in tensors.items()
        if config.get(key) not in (None, value)
    ]


def unsupported_layer_reason(config: Mapping[str, Any], rope: Rope) -> str | None:
    """What in these layers we do not compute, or None."""
    activation = config.get("hidden_act") or config.get("hidden_activation") or "silu"
    if activation not in ("silu", "swish"):
        return f"layers with the activation {activation}"
    return None if rope.is_supported else f"rotary embeddings of kind {rope.rope_type}"


def require_tensors(tensors: TensorFiles, names: Iterable[str]) -> None:
    """ModelError when a part of the head is not there: a shard that was left behind."""
    lost = [name for name in names if name not in tensors]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise ModelError(f"{tensors.source}: a part of the head is missing: {lost[0]}{more}")


def layer_tensor_names(
    layers: int, has_experts: bool = False, attention: Iterable[str] = ATTENTION_PROJECTIONS
) -> list[str]:
    """The tensors that every layer must have, but for those of its experts."""
    network = [] if has_experts else [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
    parts = [*(f"self_attn.{part}" for part in attention), *network]
    return [f"layers.{index}.{part}.weight" for index in range(layers) for part in [*parts, "post_attention_layernorm"]]


def _head_size(
    tensors: TensorFiles, seen: int, keys: int, said_heads: int, said_kv: int, said_size: int | None
) -> int | None:
    if "layers.0.self_attn.q_norm.weight" in tensors:
        return tensors.shape("layers.0.self_attn.q_norm.weight")[0]
    if not said_heads or seen % said_heads:
        return said_size
    size = seen // said_heads
    return size if keys == size * said_kv or (not said_kv and keys % size == 0) else said_size


def _sliding_windows(config: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    kinds, window = config.get("layer_types") or (), config.get("sliding_window")
    if not window or "sliding_attention" not in kinds:
        return ()
    return tuple(int(window) if kind == "sliding_attention" else None for kind in kinds[:layers])
