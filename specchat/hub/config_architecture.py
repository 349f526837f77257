"""Computes the Architecture of a model or head from its config.json, so that it need not be downloaded.

What is peculiar to the families of our own passes is in `weights/llama_families.py`; families that transformers
computes are known here, exactly as far as the tests go, and others may have a few more norms or biases. Reads no file
and imports no torch.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specchat.errors import ModelError
from specchat.forward.llama.layer_shape import LayerShape
from specchat.hub.architecture import EMBEDDING, EXPERT, IDLE, LINEAR, OTHER, OUTPUT, Architecture, KVLayers, Matrix
from specchat.plugins.discovery import find_extensions
from specchat.weights.llama_families import (
    COMPOSITE_TYPES,
    FAMILIES,
    FULL,
    RECURRENT,
    SLIDING,
    has_experts,
    is_recurrent,
    network_config,
    sliding_window,
)

Config = Mapping[str, Any]
GEMMA4_FAMILIES = ("gemma4_text", "gemma4_unified_text")
TIED_EMBEDDING_FAMILIES = (
    "gemma", "gemma2", "gemma3_text", *GEMMA4_FAMILIES, "gpt2", "gpt_neo", "opt", "falcon"
)  # fmt: skip
TWO_MATRIX_MLP_FAMILIES = ("gpt2", "gpt_neo", "gpt_neox", "opt", "falcon", "phi", "starcoder2", "nemotron")
QK_NORM_FAMILIES = (
    "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "gemma3_text", *GEMMA4_FAMILIES, "lfm2"
)  # fmt: skip
QKV_BIAS_FAMILIES = ("qwen2", "qwen2_moe")
CONVOLUTION = "conv"  # a layer of LFM2
MAX_LAYERS = 10_000
DEEPSPEC_ARCHITECTURE = re.compile("(Qwen3|Gemma4)(DSpark|DFlash|Eagle3)Model")  # heads with embeddings of their own
EXPERT_COUNT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")
SELECTED_EXPERTS_KEYS = ("num_experts_per_tok", "top_k_experts")


def architecture_from_config(config: Config, source: str = "config.json") -> Architecture:
    """The architecture of a model or head. ModelError when the config lacks a required key or has an invalid value."""
    try:
        return head_architecture_from_config(config) or _model_architecture(config)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise ModelError(f"{source}: cannot compute its size from its config: {error}") from error


def active_parameters(config: Config, architecture: Architecture) -> int:
    """Parameters that compute one token: of a mixture of experts, only the selected experts."""
    text: Config = config.get("text_config") or config
    experts = architecture.parameters_of_kind(EXPERT)
    selected, count = (
        next((int(text[key]) for key in keys if text.get(key)), 1)
        for keys in (SELECTED_EXPERTS_KEYS, EXPERT_COUNT_KEYS)
    )
    return architecture.parameters - (experts - experts * selected // count) - architecture.parameters_of_kind(IDLE)


def required_int(table: Config, key: str) -> int:
    if (size := int(table[key])) < 1:
        raise ValueError(f"{key} cannot be {size}")
    return size


def _quantization(config: Config) -> str:
    """The quantization of a checkpoint: "fp8", "mxfp4", "gptq", ...; "" for floats."""
    quantization = config.get("quantization_config") or {}
    return "fp8" if quantization.get("format") == "float-quantized" else str(quantization.get("quant_method", ""))


def _model_architecture(config: Config) -> Architecture:
    text = _text_config(config)
    family = str(text.get("model_type") or "")
    kinds = _layer_kinds(text, family)
    width, vocabulary = required_int(text, "hidden_size"), required_int(text, "vocab_size")
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", family in TIED_EMBEDDING_FAMILIES))
    norms = len(FAMILIES[family].names.norms) if family in FAMILIES else 2
    matrices = [Matrix(EMBEDDING, vocabulary, width), Matrix(OTHER, width), Matrix(OTHER, width, 1, len(kinds) * norms)]
    if not tied:
        matrices.append(Matrix(OUTPUT, vocabulary, width))
    matrices += layer_matrices(text, family, kinds)
    if encoders := int(text.get("encoder_parameters") or 0):  # a key of the catalog
        matrices.append(Matrix(IDLE, encoders))
    notes = ("its vision encoder is not counted",) if config.get("vision_config") else ()
    return Architecture(
        family, tuple(matrices), kv_layers_from_config(text, kinds), _recurrent_elements(text, kinds), vocabulary,
        width, len(kinds), int(text.get("max_position_embeddings", 0)), None, _quantization(config) or "bf16", notes,
        *_query_heads(text),
    )  # fmt: skip


def _text_config(config: Config) -> Config:
    """The part about the language model, with the defaults of its family."""
    nested: Config = config.get("text_config") or {}
    if config.get("model_type") in COMPOSITE_TYPES or not nested:
        return network_config(config)
    return network_config({"model_type": config.get("model_type"), **nested})


def layer_matrices(text: Config, family: str, kinds: Sequence[str]) -> list[Matrix]:
    """The matrices of all layers but their norms; those of one shape are one Matrix."""
    counts = Counter[Matrix]()
    for layer, (kind, shape) in enumerate(zip(kinds, _layer_shapes(text, family, kinds), strict=True)):
        for matrix in (*_token_mixer(text, family, kind, shape), *_mlp(text, family, layer, shape)):
            counts[replace(matrix, count=1)] += matrix.count
    if per_layer := int(text.get("hidden_size_per_layer_input") or 0):
        for matrix in _per_layer_input(text, per_layer, len(kinds)):
            counts[replace(matrix, count=1)] += matrix.count
    return [replace(matrix, count=count) for matrix, count in counts.items()]


def _layer_kinds(text: Config, family: str) -> list[str]:
    layers = required_int(text, "num_hidden_layers")
    if layers > MAX_LAYERS:
        raise ValueError(f"num_hidden_layers cannot be {layers}")
    if listed := text.get("layer_types"):
        return [str(kind) for kind in listed][:layers]
    return [_layer_kind(text, layer) if family in FAMILIES else FULL for layer in range(layers)]


def _layer_kind(text: Config, layer: int) -> str:
    if is_recurrent(text, layer):
        return RECURRENT
    return FULL if sliding_window(text, layer) is None else SLIDING


def _layer_shapes(text: Config, family: str, kinds: Sequence[str]) -> Sequence[LayerShape]:
    shapes = FAMILIES[family].layer_shapes(text, kinds) if family in FAMILIES else ()
    return shapes or (_equal_shape(text),) * len(kinds)


def _equal_shape(text: Config) -> LayerShape:
    """The shape of every layer, where all are equal."""
    heads = required_int(text, "num_attention_heads")
    inner = int(text.get("intermediate_size") or 0)
    return LayerShape(int(text.get("num_key_value_heads") or heads), _head_size(text), inner)


def _token_mixer(text: Config, family: str, kind: str, shape: LayerShape) -> Iterator[Matrix]:
    match kind:
        case "linear_attention":
            return _gated_delta_net(text)
        case "conv":
            return _short_convolution(text)
        case _:
            return _mla(text) if text.get("kv_lora_rank") else _attention(text, family, shape)


def _head_size(text: Config) -> int:
    return int(text.get("head_dim") or required_int(text, "hidden_size") // required_int(text, "num_attention_heads"))


def _query_heads(text: Config) -> tuple[int, int]:
    """Their number and size; zeros where a latent takes the place of keys and values."""
    heads = 0 if text.get("kv_lora_rank") else int(text.get("num_attention_heads") or 0)
    return heads, _head_size(text) if heads else 0


def _attention(text: Config, family: str, shape: LayerShape) -> Iterator[Matrix]:
    width, known = required_int(text, "hidden_size"), FAMILIES.get(family)
    heads = required_int(text, "num_attention_heads")
    keys, attended = shape.kv_heads * shape.head_size, heads * shape.head_size
    queries = attended * (2 if known and known.has_output_gate else 1)
    own_keys = 0 if shape.kv_source is not None else 2 if shape.has_values else 1
    yield Matrix(LINEAR, queries, width)
    yield Matrix(LINEAR, keys, width, own_keys)
    yield Matrix(LINEAR, width, attended)
    if text.get("attention_bias") or family in QKV_BIAS_FAMILIES:
        yield Matrix(OTHER, queries + own_keys * keys)
    if text.get("attention_bias") and family not in QKV_BIAS_FAMILIES:
        yield Matrix(OTHER, width)
    if known and known.has_wide_qk_norms:
        yield Matrix(OTHER, attended + keys)
    if family in QK_NORM_FAMILIES:
        yield Matrix(OTHER, shape.head_size, 1, 2 if own_keys else 1)
    if known and known.has_sinks:
        yield Matrix(OTHER, heads)


def _mla(text: Config) -> Iterator[Matrix]:
    """Multi-head latent attention: one latent per token (DeepSeek-V2, arXiv 2405.04434)."""
    width, heads = required_int(text, "hidden_size"), required_int(text, "num_attention_heads")
    rank = int(text["kv_lora_rank"])
    nope, rope, value = (int(text[key]) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    if query_rank := text.get("q_lora_rank"):
        yield Matrix(LINEAR, query_rank, width)
        yield Matrix(LINEAR, heads * (nope + rope), query_rank)
        yield Matrix(OTHER, query_rank)
    else:
        yield Matrix(LINEAR, heads * (nope + rope), width)
    yield Matrix(LINEAR, rank + rope, width)
    yield Matrix(LINEAR, heads * (nope + value), rank)
    yield Matrix(LINEAR, width, heads * value)
    yield Matrix(OTHER, rank)


def _gated_delta_net(text: Config) -> Iterator[Matrix]:
    """Gated DeltaNet, as in Qwen3-Next and Qwen3.5."""
    width, heads = required_int(text, "hidden_size"), int(text["linear_num_value_heads"])
    keys, values = _gated_delta_net_sizes(text)
    yield Matrix(LINEAR, 2 * keys + 2 * values + 2 * heads, width)
    yield Matrix(LINEAR, width, values)
    yield Matrix(OTHER, 2 * keys + values, int(text.get("linear_conv_kernel_dim", 4)))
    yield Matrix(OTHER, 2 * heads + int(text["linear_value_head_dim"]))


def _short_convolution(text: Config) -> Iterator[Matrix]:
    """A gated convolution over a few tokens, as in LFM2."""
    width = required_int(text, "hidden_size")
    yield Matrix(LINEAR, 3 * width, width)
    yield Matrix(LINEAR, width, width)
    yield Matrix(OTHER, width, int(text["conv_L_cache"]))


def _gated_delta_net_sizes(text: Config) -> tuple[int, int]:
    keys = int(text["linear_num_key_heads"]) * int(text["linear_key_head_dim"])
    return keys, int(text["linear_num_value_heads"]) * int(text["linear_value_head_dim"])


def _mlp(text: Config, family: str, layer: int, shape: LayerShape) -> Iterator[Matrix]:
    if _expert_count(text) and _has_experts(text, family, layer):
        yield from _experts(text, family)
        return
    yield from _dense_mlp(text, family, shape.intermediate_size)
    if text.get("enable_moe_block"):  # Gemma 4: beside the dense MLP, with scales of the router, and three norms
        yield from _experts(text, family)
        yield Matrix(OTHER, 4 * required_int(text, "hidden_size") + _expert_count(text))


def _dense_mlp(text: Config, family: str, inner: int) -> Iterator[Matrix]:
    if inner < 1:
        raise ValueError(f"intermediate_size cannot be {inner}")
    width = required_int(text, "hidden_size")
    yield Matrix(LINEAR, inner, width, 1 if family in TWO_MATRIX_MLP_FAMILIES else 2)
    yield Matrix(LINEAR, width, inner)


def _expert_count(text: Config) -> int:
    return next((int(text[key]) for key in EXPERT_COUNT_KEYS if text.get(key)), 0)


def _has_experts(text: Config, family: str, layer: int) -> bool:
    return has_experts(text, layer) if family in FAMILIES else layer >= int(text.get("first_k_dense_replace") or 0)


def _experts(text: Config, family: str) -> Iterator[Matrix]:
    width, experts = required_int(text, "hidden_size"), _expert_count(text)
    size = int(text.get("moe_intermediate_size") or text["intermediate_size"])
    yield Matrix(EXPERT, size, width, 2 * experts)
    yield Matrix(EXPERT, width, size, experts)
    yield Matrix(OTHER, experts, width)
    known = FAMILIES.get(family)
    if known and known.experts and known.experts.has_gpt_oss_stacks:  # which have biases
        yield Matrix(OTHER, experts * (2 * size + width) + experts)
    gated = int(text.get("shared_expert_intermediate_size") or 0)
    if shared := gated or size * int(text.get("n_shared_experts") or 0):
        yield Matrix(LINEAR, shared, width, 2)
        yield Matrix(LINEAR, width, shared)
    if gated:
        yield Matrix(LINEAR, 1, width)
    if text.get("topk_method") == "noaux_tc" or text.get("scoring_func") == "sigmoid":
        yield Matrix(OTHER, experts)


def _per_layer_input(text: Config, size: int, layers: int) -> Iterator[Matrix]:
    """A vector of each token for every layer, as in the small models of Gemma 4."""
    width = required_int(text, "hidden_size")
    yield Matrix(IDLE, int(text.get("vocab_size_per_layer_input") or text["vocab_size"]), size * layers)
    yield Matrix(LINEAR, size * layers, width)
    yield Matrix(OTHER, size)
    yield Matrix(LINEAR, size, width, 2 * layers)
    yield Matrix(OTHER, width, 1, layers)


def kv_layers_from_config(text: Config, kinds: Sequence[str]) -> tuple[KVLayers, ...]:
    """What layers of these kinds store: nothing where they are recurrent or read the keys of another layer."""
    latent = int(text["kv_lora_rank"]) + int(text["qk_rope_head_dim"]) if text.get("kv_lora_rank") else 0
    shapes = _layer_shapes(text, str(text.get("model_type") or ""), kinds)
    counts = Counter(
        (kind, latent or 2 * shape.kv_heads * shape.head_size)
        for kind, shape in zip(kinds, shapes, strict=True)
        if kind in (FULL, SLIDING) and shape.kv_source is None
    )
    return tuple(
        KVLayers(count, elements, int(text["sliding_window"]) if kind == SLIDING else None)
        for (kind, elements), count in counts.items()
    )


def _recurrent_elements(text: Config, kinds: Sequence[str]) -> int:
    if convolutions := kinds.count(CONVOLUTION):
        return convolutions * required_int(text, "hidden_size") * int(text["conv_L_cache"])
    recurrent = kinds.count(RECURRENT)
    if not recurrent:
        return 0
    keys, values = _gated_delta_net_sizes(text)
    conv_states = (2 * keys + values) * int(text.get("linear_conv_kernel_dim", 4))
    return recurrent * (conv_states + values * int(text["linear_key_head_dim"]))


def head_architecture_from_config(config: Config) -> Architecture | None:
    """The architecture of a head; None when it is the config of a language model."""
    for extension in find_extensions("head_sizes").values():
        if (architecture := extension.load()(config)) is not None:
            return architecture
    if "medusa_num_heads" in config:
        return _medusa_architecture(config)
    names = f"{config.get('architectures')} {config.get('speculators_model_type')}".lower()
    is_dflash = "dflash" in names or "dspark" in names or "dflash_config" in config
    if is_dflash:
        return feature_head_architecture(config, "dflash", hidden_state_count(config, 5))
    if "eagle3" in names or "draft_vocab_size" in config:
        return feature_head_architecture(config, "eagle3", hidden_state_count(config, 3))
    if "eagle" in names or config.get("fc") is True:
        return feature_head_architecture(config, "eagle", 0)
    return None


def hidden_state_count(config: Config, default: int) -> int:
    """How many hidden states of the target a head reads for each token."""
    parts: list[Config] = [config, config.get("dflash_config") or {}, config.get("eagle_config") or {}]
    keys = ("target_layer_ids", "aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids")
    return next((len(part[key]) for part in parts for key in keys if part.get(key)), default)


def mtp_architecture(config: Config) -> Architecture:
    """The layer for multi-token prediction in the checkpoint of a target: a layer as the last of the target."""
    text: Config = {**_text_config(config), "first_k_dense_replace": 0}
    width, family = required_int(text, "hidden_size"), str(text.get("model_type") or "")
    matrices = [Matrix(LINEAR, width, 2 * width), Matrix(OTHER, width, 1, 5)]
    matrices += layer_matrices(text, family, ["full_attention"])
    kv_layers = kv_layers_from_config(text, ["full_attention"])
    return Architecture("mtp", tuple(matrices), kv_layers, 0, int(text.get("vocab_size") or 0), width, 1)


def feature_head_architecture(outer: Config, kind: str, hidden_state_count: int) -> Architecture:
    """A head over hidden states of the target. `hidden_state_count` 0: EAGLE-1, one state beside an embedding."""
    config: Config = {**outer, **(outer.get("transformer_layer_config") or {})}
    width, layers = int(config["hidden_size"]), int(config.get("num_hidden_layers") or 1)
    target_width = int(config.get("target_hidden_size") or width)
    state_norms = hidden_state_count if config.get("fc_norm") or config.get("norm_before_fc") else 0
    family, vocabulary = str(config.get("model_type") or ""), int(config.get("vocab_size") or 0)
    draft_vocabulary = int(config.get("draft_vocab_size") or vocabulary)
    matrices = [
        Matrix(LINEAR, width, hidden_state_count * target_width if hidden_state_count else 2 * width),
        Matrix(OTHER, width, 1, 2 + 2 * layers + state_norms),
    ]
    shape = _equal_shape(config)
    matrices += [*_attention(config, family, shape), *_dense_mlp(config, family, shape.intermediate_size)] * layers
    is_deepspec = bool(DEEPSPEC_ARCHITECTURE.search(str(outer.get("architectures"))))
    is_from_speculators = kind == "eagle3" and outer.get("speculators_model_type")
    if is_deepspec or is_from_speculators or target_width != width:
        matrices.append(Matrix(EMBEDDING, vocabulary, width))
    if reads_pairs := kind == "eagle3":
        heads, size = int(config["num_attention_heads"]), _head_size(config)
        qkv_heads = heads + 2 * int(config.get("num_key_value_heads") or heads)
        matrices.append(Matrix(LINEAR, qkv_heads * size, width))  # its layer reads a feature and an embedding
    if reads_pairs or is_deepspec or draft_vocabulary < vocabulary:
        matrices.append(Matrix(OUTPUT, draft_vocabulary, width))
    kv_heads = int(config.get("num_key_value_heads") or config["num_attention_heads"])
    kv_layers = KVLayers(layers, 2 * kv_heads * _head_size(config))
    return Architecture(
        kind, tuple(matrices), (kv_layers,), 0, vocabulary, width, layers,
        int(config.get("max_position_embeddings") or 0),
    )  # fmt: skip


def _medusa_architecture(config: Config) -> Architecture:
    width, vocabulary = int(config["hidden_size"]), int(config["vocab_size"])
    heads, layers = int(config["medusa_num_heads"]), int(config.get("medusa_num_layers", 1))
    matrices = (
        Matrix(LINEAR, width, width, heads * layers), Matrix(OTHER, width, 1, heads * layers),
        Matrix(OUTPUT, vocabulary, width, heads),
    )  # fmt: skip
    return Architecture("medusa", matrices, (), 0, vocabulary, width, layers)
