"""The layers of Gemma 4 as matrices, from its published config.

Its full attention has heads of another size than the sliding one, its last layers can use the keys and values of
earlier ones, its small models look up a vector per layer, and experts stand beside a dense MLP. Knows no other family.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specchat.forward.llama.layer_shape import LayerShape
from specchat.hub.architecture import EXPERT, IDLE, LINEAR, OTHER, KVLayers, Matrix
from specchat.weights.gemma4_layers import FULL, gemma4_layer_shapes

GEMMA4_FAMILIES = ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text")

Config = Mapping[str, Any]


def gemma4_layers(text: Config, kinds: Sequence[str]) -> Iterator[Matrix]:
    """All matrices of the layers, and what feeds a vector of its own into each; those of one shape are one Matrix."""
    counts = Counter[Matrix]()
    for matrix in _matrices(text, kinds):
        counts[replace(matrix, count=1)] += matrix.count
    yield from (replace(matrix, count=count) for matrix, count in counts.items())


def _matrices(text: Config, kinds: Sequence[str]) -> Iterator[Matrix]:
    width = int(text["hidden_size"])
    for shape in gemma4_layer_shapes(text, kinds):
        yield from _attention(text, shape)
        yield Matrix(LINEAR, shape.intermediate_size, width, 2)
        yield Matrix(LINEAR, width, shape.intermediate_size)
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
    shapes = zip(gemma4_layer_shapes(text, kinds), kinds, strict=True)
    counts = Counter((kind, 2 * shape.kv_heads * shape.head_size) for shape, kind in shapes if shape.kv_source is None)
    return tuple(
        KVLayers(count, elements, None if kind == FULL else int(text["sliding_window"]))
        for (kind, elements), count in counts.items()
    )


def _attention(text: Config, shape: LayerShape) -> Iterator[Matrix]:
    width, queries = int(text["hidden_size"]), int(text["num_attention_heads"]) * shape.head_size
    yield Matrix(LINEAR, queries, width)
    yield Matrix(LINEAR, width, queries)
    yield Matrix(OTHER, shape.head_size)
    if shape.kv_source is None:
        yield Matrix(LINEAR, shape.kv_heads * shape.head_size, width, 2 if shape.has_values else 1)
        yield Matrix(OTHER, shape.head_size)


def _experts(text: Config, layers: int) -> Iterator[Matrix]:
    width, experts, hidden = (int(text[key]) for key in ("hidden_size", "num_experts", "moe_intermediate_size"))
    yield Matrix(EXPERT, hidden, width, 2 * experts * layers)
    yield Matrix(EXPERT, width, hidden, experts * layers)
    yield Matrix(OTHER, experts, width, layers)  # the router, its scales, and three norms
    yield Matrix(OTHER, 4 * width + experts, 1, layers)
