"""What the files of a Llama-like model must hold: the sizes in its config.json, and the shape of every tensor.

Everything is checked before a tensor is read, because compiled kernels trust the sizes and read beyond a tensor that is
too short. Knows names and numbers; reads no file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.forward.layer_shape import LayerShape
from specchat.forward.llama import Dimensions
from specchat.models.llama_families import (
    FAMILIES,
    LAYER_SCALAR,
    PER_LAYER_EMBEDDING,
    PER_LAYER_GATE,
    PER_LAYER_MODEL_PROJECTION,
    PER_LAYER_NORM,
    PER_LAYER_OUTPUT_NORM,
    PER_LAYER_PROJECTION,
    Family,
    LayerNames,
    layer_shapes,
)
from specchat.models.tensor_files import TensorFiles

# Far above every published model, and small enough that a product of them cannot overflow or fill a memory by itself.
LARGEST_SIZES = {
    "hidden_size": 2**17,
    "intermediate_size": 2**20,
    "num_hidden_layers": 2**12,
    "num_attention_heads": 2**12,
    "num_key_value_heads": 2**12,
    "head_dim": 2**12,
    "vocab_size": 2**24,
    "max_position_embeddings": 2**31,
    "sliding_window": 2**31,
    "hidden_size_per_layer_input": 2**17,
    "vocab_size_per_layer_input": 2**24,
}
ZERO_MEANS_NONE = ("hidden_size_per_layer_input", "vocab_size_per_layer_input")
OPTIONAL_SIZES = ("num_key_value_heads", "head_dim", "max_position_embeddings", "sliding_window", *ZERO_MEANS_NONE)
DEFAULT_POSITIONS = 4096
DEFAULT_EPSILON = 1e-6
Shape = tuple[int, ...]


def read_dimensions(config: Mapping[str, Any], source: Path) -> Dimensions:
    """The sizes in a `network_config`; ModelError for one that no model can have."""
    sizes = {key: _size(config, key, source) for key in LARGEST_SIZES}
    heads = sizes["num_attention_heads"] or 1
    kv_heads = sizes["num_key_value_heads"] or heads
    head_size = sizes["head_dim"] or (sizes["hidden_size"] or 0) // heads
    layers, kinds = sizes["num_hidden_layers"] or 0, config.get("layer_types")
    if kinds is not None and len(kinds) < layers:
        raise _config_error(source, f"layer_types has {len(kinds)} entries for {layers} layers")
    epsilon = config.get("rms_norm_eps", DEFAULT_EPSILON)
    if not isinstance(epsilon, int | float) or not 0 <= epsilon < 1:
        raise _config_error(source, f"rms_norm_eps cannot be {epsilon!r}")
    _check_rope(config, source)
    shapes = _layer_shapes(config, source)
    for each in (*shapes, LayerShape(kv_heads, head_size, 1)):
        _check_heads(heads, each, source)
    vocab_size, per_layer_vocab_size = sizes["vocab_size"] or 0, sizes["vocab_size_per_layer_input"] or 0
    if sizes["hidden_size_per_layer_input"] and per_layer_vocab_size < vocab_size:
        reason = f"vocab_size_per_layer_input ({per_layer_vocab_size}) must not be below vocab_size ({vocab_size})"
        raise _config_error(source, reason)
    return Dimensions(
        hidden_size=sizes["hidden_size"] or 0,
        intermediate_size=sizes["intermediate_size"] or 0,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        vocab_size=vocab_size,
        epsilon=float(epsilon),
        max_position_embeddings=sizes["max_position_embeddings"] or DEFAULT_POSITIONS,
        scaling=FAMILIES[config["model_type"]].scaling(config),
        layer_shapes=shapes,
        per_layer_input_size=sizes["hidden_size_per_layer_input"] or 0,
        per_layer_vocab_size=per_layer_vocab_size,
    )


def check_tensors(files: TensorFiles, sizes: Dimensions, family: Family) -> None:
    """ModelError when a tensor is missing or has another shape than the config means."""
    is_optional = {name for name, _shape in _optional_tensors(sizes, family)}
    for name, expected in (*_required_tensors(sizes, family), *_optional_tensors(sizes, family)):
        if name in is_optional and name not in files:
            continue
        if (actual := files.shape(name)) != expected:
            raise ModelError(
                f"{files.source}: {name} has the shape {list(actual)}, and config.json means {list(expected)}: the "
                "file is damaged, or belongs to another model"
            )


def _required_tensors(sizes: Dimensions, family: Family) -> Iterator[tuple[str, Shape]]:
    yield "model.embed_tokens.weight", (sizes.vocab_size, sizes.hidden_size)
    yield "model.norm.weight", (sizes.hidden_size,)
    norms = family.names.norms
    if small := sizes.per_layer_input_size:
        norms = (*norms, PER_LAYER_OUTPUT_NORM)
        yield f"{PER_LAYER_EMBEDDING}.weight", (sizes.per_layer_vocab_size, sizes.layers * small)
        yield f"{PER_LAYER_MODEL_PROJECTION}.weight", (sizes.layers * small, sizes.hidden_size)
        yield f"{PER_LAYER_NORM}.weight", (small,)
    for layer, prefix in enumerate(_layers(sizes)):
        for norm in norms:
            yield f"{prefix}.{norm}.weight", (sizes.hidden_size,)
        for name, (outputs, inputs) in _linear_layers(sizes, family.names, layer).items():
            yield f"{prefix}.{name}.weight", (outputs, inputs)


def _optional_tensors(sizes: Dimensions, family: Family) -> Iterator[tuple[str, Shape]]:
    yield "lm_head.weight", (sizes.vocab_size, sizes.hidden_size)
    for layer, prefix in enumerate(_layers(sizes)):
        shape = sizes.shape(layer)
        for norm, heads in (("q_norm", sizes.heads), ("k_norm", shape.kv_heads)):
            width = heads * shape.head_size if family.has_wide_qk_norms else shape.head_size
            yield f"{prefix}.self_attn.{norm}.weight", (width,)
        for name, (outputs, _inputs) in _linear_layers(sizes, family.names, layer).items():
            yield f"{prefix}.{name}.bias", (outputs,)
        yield f"{prefix}.{LAYER_SCALAR}", (1,)


def _layers(sizes: Dimensions) -> Iterator[str]:
    return (f"model.layers.{index}" for index in range(sizes.layers))


def _linear_layers(sizes: Dimensions, names: LayerNames, layer: int) -> Mapping[str, tuple[int, int]]:
    """Outputs and inputs of each linear layer of a decoder layer."""
    shape, width, small = sizes.shape(layer), sizes.hidden_size, sizes.per_layer_input_size
    inner, queries, keys = shape.intermediate_size, sizes.heads * shape.head_size, shape.kv_heads * shape.head_size
    qkv = (queries, keys, keys) if shape.kv_source is None else (queries,)
    per_layer = {PER_LAYER_GATE: (small, width), PER_LAYER_PROJECTION: (width, small)}
    return {
        **{name: (outputs, width) for name, outputs in _outputs(names.qkv_of(shape), qkv)},
        "self_attn.o_proj": (width, queries),
        **{name: (outputs, width) for name, outputs in _outputs(names.gate_up, (inner, inner))},
        "mlp.down_proj": (width, inner),
        **(per_layer if small else {}),
    }


def _outputs(names: tuple[str, ...], parts: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """The outputs of layers with one part each, or of one layer with all."""
    return zip(names, parts if len(names) > 1 else (sum(parts),), strict=True)


def _size(config: Mapping[str, Any], key: str, source: Path) -> int | None:
    value = config.get(key)
    if (value is None and key in OPTIONAL_SIZES) or (value == 0 and key in ZERO_MEANS_NONE):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_SIZES[key]:
        raise _config_error(source, f"{key} must be a number from 1 to {LARGEST_SIZES[key]}, not {value!r}")
    return value


def _layer_shapes(config: Mapping[str, Any], source: Path) -> tuple[LayerShape, ...]:
    try:
        return layer_shapes(config)
    except (ValueError, TypeError, AttributeError) as error:
        raise _config_error(source, f"its layers cannot be read: {error}") from error


def _check_heads(heads: int, shape: LayerShape, source: Path) -> None:
    for key, value in (("num_key_value_heads", shape.kv_heads), ("head_dim", shape.head_size)):
        if not isinstance(value, int) or not 1 <= value <= LARGEST_SIZES[key]:
            raise _config_error(source, f"{key} of a layer must be a number from 1 to {LARGEST_SIZES[key]}")
    if heads % shape.kv_heads:
        raise _config_error(source, f"{heads} attention heads cannot share {shape.kv_heads} key-value heads")
    if shape.head_size < 2 or shape.head_size % 2:
        raise _config_error(source, f"a head cannot have {shape.head_size} numbers")


def _check_rope(config: Mapping[str, Any], source: Path) -> None:
    """ModelError for numbers of the rotary embeddings that are no positive numbers."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    given = (("rope_theta", config), ("rope_theta", scaling), ("factor", scaling))
    for key, value in ((key, table.get(key)) for key, table in given):
        if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
            raise _config_error(source, f"{key} must be a positive number, not {value!r}")


def _config_error(source: Path, problem: str) -> ModelError:
    return ModelError(f"{source}: config.json: {problem}")
