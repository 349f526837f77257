"""The shapes of the layers of Gemma 4, from its published config or from one that transformers wrote.

Full attention has heads of another size than attention with a sliding window, and the last layers read the keys and
values of an earlier layer of their kind. Knows keys of config.json; checks no size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specchat.forward.llama.variations import OTHER_NETWORK, LayerShape

Config = Mapping[str, Any]
FULL = "full_attention"
GLOBAL_HEAD_SIZE = 512  # of a config that leaves it out


def gemma4_layer_shapes(config: Config, kinds: Sequence[str]) -> tuple[LayerShape, ...]:
    """The shape of each layer; `kinds` as `layer_types`."""
    own = len(kinds) - int(config.get("num_kv_shared_layers") or 0)
    return tuple(_layer_shape(config, kinds, layer, own) for layer in range(len(kinds)))


def _layer_shape(config: Config, kinds: Sequence[str], layer: int, own: int) -> LayerShape:
    kind, is_shared = kinds[layer], layer >= own
    sources = [index for index in range(max(own, 0)) if kinds[index] == kind]
    given = _attention_sizes(config, kind, layer)
    return LayerShape(
        kv_heads=given.get("num_key_value_heads") or config["num_key_value_heads"],
        head_size=given.get("head_dim") or config["head_dim"],
        intermediate_size=config["intermediate_size"] * (2 if is_shared and config.get("use_double_wide_mlp") else 1),
        kv_source=(sources or [OTHER_NETWORK])[-1] if is_shared else None,
        has_values=not config.get("attention_k_eq_v") or kind != FULL,
        normalizes_values=True,
    )


def _attention_sizes(config: Config, kind: str, layer: int) -> Config:
    """The sizes in which a layer differs from those of the whole network."""
    if (by_layer := config.get("per_layer_config")) is not None:
        return by_layer.get(str(layer)) or {}
    if kind != FULL:
        return {}
    kv_heads = config.get("num_global_key_value_heads") if config.get("attention_k_eq_v") else None
    return {"head_dim": config.get("global_head_dim") or GLOBAL_HEAD_SIZE, "num_key_value_heads": kv_heads}
