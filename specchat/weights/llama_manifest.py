"""What the files of a Llama-like model must hold: the sizes in its config.json, and the shape of every tensor.

Everything is checked before a tensor is read, because compiled kernels trust the sizes and read beyond a tensor that is
too short. Knows names and numbers; reads no file.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.forward.llama.gated_delta_net import DeltaNetSizes
from specchat.forward.llama.llama import Dimensions
from specchat.forward.llama.moe import ExpertSizes
from specchat.forward.llama.variations import OTHER_NETWORK, LayerShape
from specchat.weights.llama_families import (
    FAMILIES,
    LAYER_SCALAR,
    PER_LAYER,
    Family,
    LayerNames,
    expert_count,
    has_experts,
    is_recurrent,
    layer_shapes,
)
from specchat.weights.moe_weights import expert_tensors
from specchat.weights.tensor_files import TensorFiles

# Far above every published model, and small enough that a product of them cannot overflow or fill a memory by itself.
LARGEST_SIZES = {
    "hidden_size": 2**17, "intermediate_size": 2**20, "num_hidden_layers": 2**12, "num_attention_heads": 2**12,
    "num_key_value_heads": 2**12, "head_dim": 2**12, "vocab_size": 2**24, "max_position_embeddings": 2**31,
    "sliding_window": 2**31, "hidden_size_per_layer_input": 2**17, "vocab_size_per_layer_input": 2**24,
}  # fmt: skip
LARGEST_EXPERT_SIZES = {
    "num_experts": 2**16, "num_experts_per_tok": 2**16, "decoder_sparse_step": 2**12, "moe_intermediate_size": 2**20,
    "shared_expert_intermediate_size": 2**20,
}  # fmt: skip
LARGEST_DELTA_SIZES = {
    "linear_num_key_heads": 2**12, "linear_num_value_heads": 2**12, "linear_key_head_dim": 2**12,
    "linear_value_head_dim": 2**12, "linear_conv_kernel_dim": 2**6,
}  # fmt: skip
OPTIONAL_SIZES = (
    "num_key_value_heads", "head_dim", "max_position_embeddings", "sliding_window", "decoder_sparse_step",
    "shared_expert_intermediate_size", "hidden_size_per_layer_input", "vocab_size_per_layer_input",
)  # fmt: skip
# Sizes where 0 means none: a window, as transformers writes it for Qwen2-MoE, and per-layer embeddings.
ZERO_MEANS_NONE = ("sliding_window", "hidden_size_per_layer_input", "vocab_size_per_layer_input")
DEFAULT_POSITIONS = 4096
DEFAULT_EPSILON = 1e-6
Shape = tuple[int, ...]


def read_dimensions(config: Mapping[str, Any], source: Path) -> Dimensions:
    """The sizes in a `network_config`; ModelError for one that no model can have."""
    sizes, family = _sizes(config, source, LARGEST_SIZES), FAMILIES[config["model_type"]]
    heads, layers, vocab_size = sizes["num_attention_heads"], sizes["num_hidden_layers"], sizes["vocab_size"]
    kv_heads, head_size = sizes["num_key_value_heads"] or heads, sizes["head_dim"] or sizes["hidden_size"] // heads
    small, small_vocab_size = sizes["hidden_size_per_layer_input"], sizes["vocab_size_per_layer_input"]
    if (kinds := config.get("layer_types")) is not None and len(kinds) < layers:
        raise _config_error(source, f"layer_types has {len(kinds)} entries for {layers} layers")
    epsilon = config.get("rms_norm_eps", DEFAULT_EPSILON)
    if not isinstance(epsilon, int | float) or not 0 <= epsilon < 1:
        raise _config_error(source, f"rms_norm_eps cannot be {epsilon!r}")
    if small and small_vocab_size < vocab_size:
        reason = f"vocab_size_per_layer_input ({small_vocab_size}) must not be below vocab_size ({vocab_size})"
        raise _config_error(source, reason)
    _check_rope(config, source)
    shapes = _layer_shapes(config, source)
    for each in (*shapes, LayerShape(kv_heads, head_size, 1)):
        _check_heads(heads, each, source)
    recurrent_layers = frozenset(layer for layer in range(layers) if is_recurrent(config, layer))
    return Dimensions(
        sizes["hidden_size"], sizes["intermediate_size"], layers, heads, kv_heads, head_size, vocab_size,
        float(epsilon), sizes["max_position_embeddings"] or DEFAULT_POSITIONS,
        scaling=family.scaling(config),
        experts=_read_expert_sizes(config, source),
        has_sinks=family.has_sinks,
        delta_net=_delta_net_sizes(config, source) if recurrent_layers else None,
        recurrent_layers=recurrent_layers,
        layer_shapes=shapes,
        per_layer_input_size=small,
        per_layer_vocab_size=small_vocab_size,
    )  # fmt: skip


def _read_expert_sizes(config: Mapping[str, Any], source: Path) -> ExpertSizes | None:
    """The sizes of a mixture of experts; None for a family without."""
    family = FAMILIES[config["model_type"]]
    if family.experts is None:
        return None
    given = {**config, "num_experts": expert_count(config), "moe_intermediate_size": config.get(family.expert_size_key)}
    sizes = _sizes(given, source, LARGEST_EXPERT_SIZES)
    experts, chosen = sizes["num_experts"], sizes["num_experts_per_tok"]
    if chosen > experts:
        raise _config_error(source, f"a token cannot choose {chosen} of {experts} experts")
    return ExpertSizes(experts, sizes["moe_intermediate_size"], sizes["shared_expert_intermediate_size"])


def _delta_net_sizes(config: Mapping[str, Any], source: Path) -> DeltaNetSizes:
    sizes = DeltaNetSizes(*_sizes(config, source, LARGEST_DELTA_SIZES).values())
    if sizes.heads % sizes.key_heads:
        reason = f"{sizes.heads} heads of recurrent layers cannot share {sizes.key_heads} key heads"
        raise _config_error(source, reason)
    if sizes.kernel < 2:
        raise _config_error(source, f"linear_conv_kernel_dim cannot be {sizes.kernel}")
    return sizes


def check_tensors(files: TensorFiles, sizes: Dimensions, config: Mapping[str, Any]) -> None:
    """ModelError when a tensor is missing or has another shape than the config means."""
    for name, expected in known_tensors(files, sizes, config):
        if (actual := files.shape(name)) != expected:
            raise ModelError(
                f"{files.source}: {name} has the shape {list(actual)}, and config.json means {list(expected)}: the "
                "file is damaged, or belongs to another model"
            )


def known_tensors(files: TensorFiles, sizes: Dimensions, config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    """The tensors that must be there, and those that may be and are."""
    yield from required_tensors(files, sizes, config)
    yield from (each for each in _optional_tensors(sizes, config) if each[0] in files)


def required_tensors(files: TensorFiles, sizes: Dimensions, config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    family = FAMILIES[config["model_type"]]
    yield "model.embed_tokens.weight", (sizes.vocab_size, sizes.hidden_size)
    yield "model.norm.weight", (sizes.hidden_size,)
    if small := sizes.per_layer_input_size:
        yield f"{PER_LAYER.embedding}.weight", (sizes.per_layer_vocab_size, sizes.layers * small)
        yield f"{PER_LAYER.model_projection}.weight", (sizes.layers * small, sizes.hidden_size)
        yield f"{PER_LAYER.norm}.weight", (small,)
    for index, prefix in enumerate(_layers(sizes)):
        for norm in (*family.names.norms, *((PER_LAYER.output_norm,) if sizes.per_layer_input_size else ())):
            yield f"{prefix}.{norm}.weight", (sizes.hidden_size,)
        if sizes.has_sinks:
            yield f"{prefix}.self_attn.sinks", (sizes.heads,)
        if sizes.experts and family.experts and has_experts(config, index):
            yield from expert_tensors(files, prefix, family.experts, sizes.hidden_size, sizes.experts)
        if sizes.delta_net and index in sizes.recurrent_layers:
            for name, shape in _delta_net_tensors(sizes.hidden_size, sizes.delta_net, family.names).items():
                yield f"{prefix}.{name}", shape
        for name, (outputs, inputs) in _linear_layers(sizes, config, index).items():
            yield f"{prefix}.{name}.weight", (outputs, inputs)


def _optional_tensors(sizes: Dimensions, config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    has_wide_norms = FAMILIES[config["model_type"]].has_wide_qk_norms
    yield "lm_head.weight", (sizes.vocab_size, sizes.hidden_size)
    for index, prefix in enumerate(_layers(sizes)):
        shape = sizes.shape(index)
        for norm, heads in (("q_norm", sizes.heads), ("k_norm", shape.kv_heads)):
            width = heads * shape.head_size if has_wide_norms else shape.head_size
            yield f"{prefix}.self_attn.{norm}.weight", (width,)
        for name, (outputs, _inputs) in _linear_layers(sizes, config, index).items():
            yield f"{prefix}.{name}.bias", (outputs,)
        yield f"{prefix}.{LAYER_SCALAR}", (1,)


def _layers(sizes: Dimensions) -> Iterator[str]:
    return (f"model.layers.{index}" for index in range(sizes.layers))


def _delta_net_tensors(width: int, sizes: DeltaNetSizes, names: LayerNames) -> dict[str, Shape]:
    qkvz = (sizes.channels, sizes.values)
    return {
        **{f"{name}.weight": (outputs, width) for name, outputs in _outputs(names.delta_qkvz, qkvz)},
        **{f"{name}.weight": (outputs, width) for name, outputs in _outputs(names.delta_ba, (sizes.heads,) * 2)},
        "linear_attn.conv1d.weight": (sizes.channels, 1, sizes.kernel),
        "linear_attn.A_log": (sizes.heads,),
        "linear_attn.dt_bias": (sizes.heads,),
        "linear_attn.norm.weight": (sizes.value_size,),
        "linear_attn.out_proj.weight": (width, sizes.values),
    }


def _linear_layers(sizes: Dimensions, config: Mapping[str, Any], index: int) -> Mapping[str, tuple[int, int]]:
    """Outputs and inputs of each linear layer of attention, MLP and per-layer input, where a layer has them."""
    family, small = FAMILIES[config["model_type"]], sizes.per_layer_input_size
    layers = {} if index in sizes.recurrent_layers else _attention_layers(sizes, family, sizes.shape(index))
    if small:
        layers |= {PER_LAYER.gate: (small, sizes.hidden_size), PER_LAYER.projection: (sizes.hidden_size, small)}
    return layers if has_experts(config, index) else layers | _mlp_layers(sizes, family, sizes.shape(index))


def _attention_layers(sizes: Dimensions, family: Family, shape: LayerShape) -> dict[str, tuple[int, int]]:
    names, queries, keys = family.names, sizes.heads * shape.head_size, shape.kv_heads * shape.head_size
    projected = 2 * queries if family.has_output_gate else queries
    parts = (projected, keys, keys) if shape.kv_source is None else (projected,)
    layers = {name: (outputs, sizes.hidden_size) for name, outputs in _outputs(names.qkv_of(shape), parts)}
    return layers | {"self_attn.o_proj": (sizes.hidden_size, queries)}


def _mlp_layers(sizes: Dimensions, family: Family, shape: LayerShape) -> dict[str, tuple[int, int]]:
    width, inner = sizes.hidden_size, shape.intermediate_size
    layers = {name: (outputs, width) for name, outputs in _outputs(family.names.gate_up, (inner, inner))}
    return layers | {"mlp.down_proj": (width, inner)}


def _outputs(names: tuple[str, ...], parts: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """The outputs of layers with one part each, or of one layer with all."""
    return zip(names, parts if len(names) > 1 else (sum(parts),), strict=True)


def _sizes(config: Mapping[str, Any], source: Path, largest: Mapping[str, int]) -> dict[str, int]:
    """The numbers of these keys; 0 for one that is left out and may be."""
    return {key: _size(config, key, source, most) for key, most in largest.items()}


def _size(config: Mapping[str, Any], key: str, source: Path, largest: int) -> int:
    value = config.get(key)
    if (value is None and key in OPTIONAL_SIZES) or (value == 0 and key in ZERO_MEANS_NONE):
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        raise _config_error(source, f"{key} must be a number from 1 to {largest}, not {value!r}")
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
    if shape.kv_source == OTHER_NETWORK:
        raise _config_error(source, "a layer reads the keys of an earlier layer of its kind, and there is none")


def _check_rope(config: Mapping[str, Any], source: Path) -> None:
    """ModelError for numbers of the rotary embeddings that are no positive numbers."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    given = (("rope_theta", config), ("rope_theta", scaling), ("factor", scaling))
    for key, value in ((key, table.get(key)) for key, table in given):
        if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
            raise _config_error(source, f"{key} must be a positive number, not {value!r}")


def _config_error(source: Path, problem: str) -> ModelError:
    return ModelError(f"{source}: config.json: {problem}")
