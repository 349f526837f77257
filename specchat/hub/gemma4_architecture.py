"""The layers of Gemma 4 as matrices, from its published config.

Its full attention has heads of another size than the sliding one, its last layers can use the keys and values of
earlier ones, its small models look up a vector per layer, and experts stand beside a dense MLP. Knows no other family.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specchat.hub.architecture import EXPERT, IDLE, LINEAR, OTHER, KVLayers, Matrix

GEMMA4_FAMILIES = ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text")
FULL = "full_attention"

Config = Mapping[str, Any]


def gemma4_layers(text: Config, kinds: Sequence[str]) -> Iterator[Matrix]:
    """All matrices of the layers, and what feeds a vector of its own into each; those of one shape are one Matrix."""
    counts = Counter[Matrix]()
    for matrix in _matrices(text, kinds):
        counts[replace(matrix, count=1)] += matrix.count
    yield from (replace(matrix, count=count) for matrix, count in counts.items())


def _matrices(text: Config, kinds: Sequence[str]) -> Iterator[Matrix]:
    width = int(text["hidden_size"])
    shares = _shared_from(text, kinds)
    for layer, kind in enumerate(kinds):
        yield from _attention(text, kind, has_own_keys=layer < shares)
        is_wide = bool(text.get("use_double_wide_mlp")) and layer >= shares
        hidden = int(text["intermediate_size"]) * (2 if is_wide else 1)
        yield Matrix(LINEAR, hidden, width, 2)
        yield Matrix(LINEAR, width, hidden)
    if per_layer := int(text.get("hidden_size_per_layer_input") or 0):
        count = len(kinds)
        yield Matrix(IDLE, int(text.get("vocab_size_per_layer_input") or text["vocab_size"]), per_layer * count)
        yield Matrix(LINEAR, per_layer * count, width)
        yield Matrix(OTHER, per_layer)
        yield Matrix(LINEAR, per_layer, width, 2 * count)
        yield Matrix(OTHER, width, 1, count)
    if text.get("enable_moe_block"):
        yield from _experts(text, len(kinds))


def gemma4_kv_layers(text: Config, kinds: Sequence[str]) -> tuple[KVLayers, ...]:
    own = kinds[: _shared_from(text, kinds)]
    groups = [
        KVLayers(
            own.count(kind), 2 * _kv_heads(text, kind) * _head_size(text, kind), None if kind == FULL else _window(text)
        )
        for kind in dict.fromkeys(own)
    ]
    return tuple(groups)


def _attention(text: Config, kind: str, *, has_own_keys: bool) -> Iterator[Matrix]:
    width, size = int(text["hidden_size"]), _head_size(text, kind)
    queries = int(text["num_attention_heads"]) * size
    yield Matrix(LINEAR, queries, width)
    yield Matrix(LINEAR, width, queries)
    yield Matrix(OTHER, size)
    if has_own_keys:
        are_values_keys = bool(text.get("attention_k_eq_v")) and kind == FULL
        yield Matrix(LINEAR, _kv_heads(text, kind) * size, width, 1 if are_values_keys else 2)
        yield Matrix(OTHER, size)


def _experts(text: Config, layers: int) -> Iterator[Matrix]:
    width, experts, hidden = (int(text[key]) for key in ("hidden_size", "num_experts", "moe_intermediate_size"))
    yield Matrix(EXPERT, hidden, width, 2 * experts * layers)
    yield Matrix(EXPERT, width, hidden, experts * layers)
    yield Matrix(OTHER, experts, width, layers)  # the router, its scales, and three norms
    yield Matrix(OTHER, 4 * width + experts, 1, layers)


def _head_size(text: Config, kind: str) -> int:
    return int(text.get("global_head_dim") or 512) if kind == FULL else int(text["head_dim"])


def _kv_heads(text: Config, kind: str) -> int:
    heads = text.get("num_global_key_value_heads") if kind == FULL and text.get("attention_k_eq_v") else None
    return int(heads or text["num_key_value_heads"])


def _window(text: Config) -> int:
    return int(text["sliding_window"])


def _shared_from(text: Config, kinds: Sequence[str]) -> int:
    """The first layer that uses the keys and values of an earlier one."""
    return len(kinds) - int(text.get("num_kv_shared_layers") or 0)
