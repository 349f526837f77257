"""What a config.json says of a model: what its layers store of a text, and its dimensions.

Which weights it has is in the headers of its files (`safetensors_headers.py`); where only the config is known,
`network_matrices` asks transformers, which imports torch. No formula here adds up the weights of a family.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

from specchat.errors import ModelError, first_line
from specchat.forward.llama.variations import LayerShape
from specchat.hub.architecture import EMBEDDING, EXPERT, IDLE, LINEAR, OTHER, OUTPUT, Architecture, KVLayers, Matrix
from specchat.weights.llama_families import (
    COMPOSITE_TYPES,
    FAMILIES,
    FULL,
    RECURRENT,
    SLIDING,
    is_recurrent,
    network_config,
    sliding_window,
)

Config = Mapping[str, Any]
CONVOLUTION = "conv"  # a layer of LFM2
MAX_LAYERS = 10_000
EXPERT_COUNT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")
SELECTED_EXPERTS_KEYS = ("num_experts_per_tok", "top_k_experts")
ENCODER_KEY = "encoder_parameters"  # of the catalog: encoders of images and sound that are loaded with the model
EMBEDDING_NAMES = ("embed_tokens", "wte", "tok_embeddings", "word_embeddings")
# Vectors that are looked up for every layer, and encoders of images and sound: they stay float.
IDLE_NAMES = ("embed_tokens_per_layer", "visual", "vision_tower", "vision_model", "audio_tower")
LM_HEAD_NAMES = ("lm_head", "output", "embed_out")


def architecture_from_config(config: Config, source: str = "config.json") -> Architecture:
    """The architecture of a model whose files are not here. Imports torch."""
    return replace(dimensions_from_config(config, source), matrices=network_matrices(config, source))


def dimensions_from_config(config: Config, source: str = "config.json") -> Architecture:
    """The architecture of a model without its matrices. ModelError when the config lacks a key or has a wrong value."""
    with _config_errors(source):
        return _architecture(config)


def head_kv_layers(config: Config, layers: int, source: str) -> tuple[KVLayers, ...]:
    """What the layers of a head store; they are as those of its config."""
    with _config_errors(source):
        inner: Config = {**config, **(config.get("text_config") or config.get("transformer_layer_config") or {})}
        return _kv_layers(inner, [FULL] * layers)


@contextmanager
def _config_errors(source: str) -> Generator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ModelError(f"{source}: cannot compute its size from its config: {error}") from error


def network_matrices(config: Config, source: str = "config.json") -> tuple[Matrix, ...]:
    """The matrices of the network that transformers builds from a config, without memory for them."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    left_out = ("quantization_config", ENCODER_KEY)
    text = {key: value for key, value in _text_config(config).items() if key not in left_out}
    try:
        with torch.device("meta"):
            network: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(**text))
    except Exception as error:  # what transformers raises for a config is documented nowhere
        message = f"{source}: transformers cannot build a model from its config: {first_line(error)}"
        raise ModelError(message) from error
    matrices = merged(matrix_of(name, tuple(each.shape)) for name, each in network.named_parameters())
    encoders = int(config.get(ENCODER_KEY) or 0)
    return (*matrices, Matrix(IDLE, encoders)) if encoders else matrices


def matrix_of(name: str, shape: Sequence[int]) -> Matrix:
    """A tensor by its name, as transformers and published files call it."""
    words, elements = name.split("."), prod(shape)
    if len(shape) < 2 or words[-1].endswith("bias"):
        return Matrix(OTHER, elements)
    rows, columns = prod(shape[:-1]), shape[-1]
    if "experts" in words:
        return Matrix(EXPERT, rows, columns)
    if any(word in IDLE_NAMES for word in words):
        return Matrix(IDLE, rows, columns)
    if any(word in EMBEDDING_NAMES for word in words):
        return Matrix(EMBEDDING, rows, columns)
    if any(word in LM_HEAD_NAMES for word in words[:2]):
        return Matrix(OUTPUT, rows, columns)
    if len(shape) > 2 or "router" in words or words[-2:] == ["gate", "weight"]:
        return Matrix(OTHER, rows, columns)
    return Matrix(LINEAR, rows // 2, columns, 2) if "gate_up_proj" in words else Matrix(LINEAR, rows, columns)


def merged(matrices: Iterable[Matrix]) -> tuple[Matrix, ...]:
    """Those of one kind and shape as one."""
    counts = Counter[Matrix]()
    for matrix in matrices:
        counts[replace(matrix, count=1)] += matrix.count
    return tuple(replace(matrix, count=count) for matrix, count in counts.items())


def active_parameters(config: Config, architecture: Architecture) -> int:
    """Parameters that compute one token: of a mixture of experts, only the selected experts."""
    experts, (selected, count) = architecture.parameters_of_kind(EXPERT), expert_counts(config)
    return architecture.parameters - (experts - experts * selected // count) - architecture.parameters_of_kind(IDLE)


def expert_counts(config: Config) -> tuple[int, int]:
    """The experts of a layer that compute one token, and all; 1 and 1 for a dense model."""
    text: Config = config.get("text_config") or config
    keys_of_counts = (SELECTED_EXPERTS_KEYS, EXPERT_COUNT_KEYS)
    selected, count = (next((int(text[key]) for key in keys if text.get(key)), 1) for keys in keys_of_counts)
    return selected, count


def _architecture(config: Config) -> Architecture:
    text = _text_config(config)
    kinds = _layer_kinds(text)
    notes = ("its vision encoder is not counted",) if config.get("vision_config") else ()
    selected, experts = expert_counts(config)
    return Architecture(
        str(text.get("model_type") or ""), (), _kv_layers(text, kinds), _recurrent_elements(text, kinds),
        _required_int(text, "vocab_size"), _required_int(text, "hidden_size"), len(kinds),
        int(text.get("max_position_embeddings", 0)), None, _quantization(config) or "bf16", notes,
        *_query_heads(text), _recurrent_row_elements(text, kinds), expert_share=selected / experts,
        widest_head=max(shape.head_size for shape in _layer_shapes(text, kinds)),
    )  # fmt: skip


def _text_config(config: Config) -> Config:
    """The part about the language model, with the defaults of its family."""
    nested: Config = config.get("text_config") or {}
    if config.get("model_type") in COMPOSITE_TYPES or not nested:
        return network_config(config)
    return network_config({"model_type": config.get("model_type"), **nested})


def _quantization(config: Config) -> str:
    """The quantization of a checkpoint: "fp8", "mxfp4", "gptq", ...; "" for floats."""
    quantization = config.get("quantization_config") or {}
    return "fp8" if quantization.get("format") == "float-quantized" else str(quantization.get("quant_method", ""))


def _required_int(table: Config, key: str) -> int:
    if (size := int(table[key])) < 1:
        raise ValueError(f"{key} cannot be {size}")
    return size


def _layer_kinds(text: Config) -> list[str]:
    layers = _required_int(text, "num_hidden_layers")
    if layers > MAX_LAYERS:
        raise ValueError(f"num_hidden_layers cannot be {layers}")
    if listed := text.get("layer_types"):
        return [str(kind) for kind in listed][:layers]
    return [_layer_kind(text, layer) if text.get("model_type") in FAMILIES else FULL for layer in range(layers)]


def _layer_kind(text: Config, layer: int) -> str:
    if is_recurrent(text, layer):
        return RECURRENT
    return FULL if sliding_window(text, layer) is None else SLIDING


def _kv_layers(text: Config, kinds: Sequence[str]) -> tuple[KVLayers, ...]:
    """What layers of these kinds store: nothing where they are recurrent or read the keys of another layer."""
    latent = int(text["kv_lora_rank"]) + int(text["qk_rope_head_dim"]) if text.get("kv_lora_rank") else 0
    counts = Counter(
        (kind, latent or 2 * shape.kv_heads * shape.head_size)
        for kind, shape in zip(kinds, _layer_shapes(text, kinds), strict=True)
        if kind in (FULL, SLIDING) and shape.kv_source is None
    )
    return tuple(
        KVLayers(count, elements, int(text["sliding_window"]) if kind == SLIDING else None)
        for (kind, elements), count in counts.items()
    )


def _layer_shapes(text: Config, kinds: Sequence[str]) -> Sequence[LayerShape]:
    family = FAMILIES.get(str(text.get("model_type")))
    heads = _required_int(text, "num_attention_heads")
    equal = LayerShape(int(text.get("num_key_value_heads") or heads), _head_size(text), 0)
    return (family.layer_shapes(text, kinds) if family else ()) or (equal,) * len(kinds)


def _head_size(text: Config) -> int:
    return int(text.get("head_dim") or _required_int(text, "hidden_size") // _required_int(text, "num_attention_heads"))


def _query_heads(text: Config) -> tuple[int, int]:
    """Their number and size; zeros where a latent takes the place of keys and values."""
    heads = 0 if text.get("kv_lora_rank") else int(text.get("num_attention_heads") or 0)
    return heads, _head_size(text) if heads else 0


def _recurrent_elements(text: Config, kinds: Sequence[str]) -> int:
    """The states of short convolutions, as in LFM2, or of Gated DeltaNet, as in Qwen3.5."""
    if convolutions := kinds.count(CONVOLUTION):
        return convolutions * _required_int(text, "hidden_size") * int(text["conv_L_cache"])
    if not (recurrent := kinds.count(RECURRENT)):
        return 0
    keys, values = _delta_sizes(text)
    conv_states = (2 * keys + values) * int(text.get("linear_conv_kernel_dim", 4))
    return recurrent * (conv_states + values * int(text["linear_key_head_dim"]))


def _recurrent_row_elements(text: Config, kinds: Sequence[str]) -> int:
    """Of a row, the inputs of the convolution and what it gives, and the gates of the delta rule."""
    if not (recurrent := kinds.count(RECURRENT)):
        return 0
    keys, values = _delta_sizes(text)
    return recurrent * 2 * (2 * keys + values + int(text["linear_num_value_heads"]))


def _delta_sizes(text: Config) -> tuple[int, int]:
    """The numbers of all keys and of all values of a row."""
    keys, values = (
        int(text[f"linear_num_{part}_heads"]) * int(text[f"linear_{part}_head_dim"]) for part in ("key", "value")
    )
    return keys, values
