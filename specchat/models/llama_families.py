"""The families that `forward.llama` computes, as data: how the config and the tensors of each mean its network.

A family that differs from Llama says here in what. Plans of memory and the catalog ask which families there are, so
that nothing here imports torch. Knows names and numbers; reads no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]
WindowRule = Callable[[Config, int], bool]  # whether a layer has the sliding window of a config without `layer_types`


def _has_window(_config: Config, _layer: int) -> bool:
    return True


def _has_window_in_qwen(config: Config, layer: int) -> bool:
    return bool(config.get("use_sliding_window")) and layer >= config.get("max_window_layers", 28)


@dataclass(frozen=True)
class Family:
    """What is peculiar to the models of a `model_type`."""

    has_window: WindowRule = _has_window


FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(has_window=_has_window_in_qwen),
    "qwen3": Family(has_window=_has_window_in_qwen),
}
LLAMA_LIKE_FAMILIES = tuple(FAMILIES)


def sliding_window(config: Config, layer: int) -> int | None:
    """The sliding window of a layer; None for full attention."""
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return None
    if kinds := config.get("layer_types"):
        return config["sliding_window"] if kinds[layer] == "sliding_attention" else None
    return config["sliding_window"] if FAMILIES[config["model_type"]].has_window(config, layer) else None
