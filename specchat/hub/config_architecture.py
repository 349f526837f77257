"""Computes the Architecture of a model or head from its config.json, so that it need not be downloaded.

Exact for the families in the tests; other families may have a few more norms or biases. Reads no file and imports no
torch.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specchat.errors import ModelError
from specchat.hub.architecture import EMBEDDING, EXPERT, IDLE, LINEAR, OTHER, OUTPUT, Architecture, KVLayers, Matrix
from specchat.hub.gemma4_architecture import GEMMA4_FAMILIES, gemma4_kv_layers, gemma4_layers
from specchat.plugins.discovery import find_extensions

Config = Mapping[str, Any]
TIED_EMBEDDING_FAMILIES = (
    "gemma", "gemma2", "gemma3", "gemma3_text", *GEMMA4_FAMILIES, "gpt2", "gpt_neo", "opt", "falcon"
)  # fmt: skip
TWO_MATRIX_MLP_FAMILIES = ("gpt2", "gpt_neo", "gpt_neox", "opt", "falcon", "phi", "starcoder2", "nemotron")
FOUR_NORM_FAMILIES = ("gemma2", "gemma3", "gemma3_text", *GEMMA4_FAMILIES)
QK_NORM_FAMILIES = (
    "qwen3",
    "qwen3_moe",
    "gemma3",
    "gemma3_text",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "lfm2",
)
QKV_BIAS_FAMILIES = ("qwen2", "qwen2_moe")
GATED_ATTENTION_FAMILIES = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")
BIASED_EXPERT_FAMILIES = ("gpt_oss",)
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
    text: Config = config.get("text_config") or config
    family = str(text.get("model_type") or config.get("model_type") or "")
    kinds = _layer_kinds(text, family)
    width, vocabulary = required_int(text, "hidden_size"), required_int(text, "vocab_size")
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", family in TIED_EMBEDDING_FAMILIES))
    matrices = [Matrix(EMBEDDING, vocabulary, width), Matrix(OTHER, width)]
    if not tied:
        matrices.append(Matrix(OUTPUT, vocabulary, width))
    is_gemma4 = family in GEMMA4_FAMILIES
    matrices += gemma4_layers(text, kinds) if is_gemma4 else layer_matrices(text, family, kinds)
    if encoders := int(text.get("encoder_parameters") or 0):  # a key of the catalog
        matrices.append(Matrix(IDLE, encoders))
    matrices.append(Matrix(OTHER, width, 1, len(kinds) * (4 if family in FOUR_NORM_FAMILIES else 2)))
    notes = ("its vision encoder is not counted",) if config.get("vision_config") else ()
    kv_layers = gemma4_kv_layers(text, kinds) if is_gemma4 else kv_layers_from_config(text, kinds)
    return Architecture(
        family, tuple(matrices), kv_layers, _recurrent_elements(text, kinds), vocabulary,
        width, len(kinds), int(text.get("max_position_embeddings", 0)), None, _quantization(config) or "bf16", notes,
        *_query_heads(text),
    )  # fmt: skip


def layer_matrices(text: Config, family: str, kinds: Sequence[str]) -> Iterator[Matrix]:
    for kind in dict.fromkeys(kinds):
        count = kinds.count(kind)
        match kind:
            case "linear_attention":
                yield from _gated_delta_net(text, count)
            case "conv":
                yield from _short_convolution(text, count)
            case _:
                yield from _attention(text, family, count)
    yield from _mlp(text, family, len(kinds))


def _layer_kinds(text: Config, family: str) -> list[str]:
    """The kind of each layer: `full_attention`, `sliding_attention` or `linear_attention`."""
    layers = required_int(text, "num_hidden_layers")
    if layers > MAX_LAYERS:
        raise ValueError(f"num_hidden_layers cannot be {layers}")
    if listed := text.get("layer_types"):
        return [str(kind) for kind in listed][:layers]
    if interval := text.get("full_attention_interval"):
        return ["full_attention" if (layer + 1) % interval == 0 else "linear_attention" for layer in range(layers)]
    if not text.get("sliding_window") or text.get("use_sliding_window") is False:
        return ["full_attention"] * layers
    default = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma3_text": 6}.get(family)
    if pattern := text.get("sliding_window_pattern") or default:
        return ["sliding_attention" if (layer + 1) % pattern else "full_attention" for layer in range(layers)]
    return ["sliding_attention" if family == "mistral" else "full_attention"] * layers


def _head_size(text: Config) -> int:
    return int(text.get("head_dim") or required_int(text, "hidden_size") // required_int(text, "num_attention_heads"))


def _query_heads(text: Config) -> tuple[int, int]:
    """Their number and size; zeros where a latent takes the place of keys and values."""
    heads = 0 if text.get("kv_lora_rank") else int(text.get("num_attention_heads") or 0)
    return heads, _head_size(text) if heads else 0


def _attention(text: Config, family: str, count: int) -> Iterator[Matrix]:
    width, heads = required_int(text, "hidden_size"), required_int(text, "num_attention_heads")
    if text.get("kv_lora_rank"):
        yield from _mla(text, count)
        return
    size, kv_heads = _head_size(text), int(text.get("num_key_value_heads") or heads)
    queries = heads * size * (2 if family in GATED_ATTENTION_FAMILIES else 1)
    yield Matrix(LINEAR, queries, width, count)
    yield Matrix(LINEAR, kv_heads * size, width, 2 * count)
    yield Matrix(LINEAR, width, heads * size, count)
    if text.get("attention_bias") or family in QKV_BIAS_FAMILIES:
        yield Matrix(OTHER, queries + 2 * kv_heads * size, 1, count)
    if text.get("attention_bias") and family not in QKV_BIAS_FAMILIES:
        yield Matrix(OTHER, width, 1, count)
    if family in QK_NORM_FAMILIES:
        yield Matrix(OTHER, 2 * size, 1, count)
    if family == "gpt_oss":
        yield Matrix(OTHER, heads, 1, count)


def _mla(text: Config, count: int) -> Iterator[Matrix]:
    """Multi-head latent attention: one latent per token (DeepSeek-V2, arXiv 2405.04434)."""
    width, heads = required_int(text, "hidden_size"), required_int(text, "num_attention_heads")
    rank = int(text["kv_lora_rank"])
    nope, rope, value = (int(text[key]) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    if query_rank := text.get("q_lora_rank"):
        yield Matrix(LINEAR, query_rank, width, count)
        yield Matrix(LINEAR, heads * (nope + rope), query_rank, count)
        yield Matrix(OTHER, query_rank, 1, count)
    else:
        yield Matrix(LINEAR, heads * (nope + rope), width, count)
    yield Matrix(LINEAR, rank + rope, width, count)
    yield Matrix(LINEAR, heads * (nope + value), rank, count)
    yield Matrix(LINEAR, width, heads * value, count)
    yield Matrix(OTHER, rank, 1, count)


def _gated_delta_net(text: Config, count: int) -> Iterator[Matrix]:
    """Gated DeltaNet, as in Qwen3-Next and Qwen3.5."""
    width, heads = required_int(text, "hidden_size"), int(text["linear_num_value_heads"])
    keys, values = _gated_delta_net_sizes(text)
    yield Matrix(LINEAR, 2 * keys + 2 * values + 2 * heads, width, count)
    yield Matrix(LINEAR, width, values, count)
    yield Matrix(OTHER, 2 * keys + values, int(text.get("linear_conv_kernel_dim", 4)), count)
    yield Matrix(OTHER, 2 * heads + int(text["linear_value_head_dim"]), 1, count)


def _short_convolution(text: Config, count: int) -> Iterator[Matrix]:
    """A gated convolution over a few tokens, as in LFM2."""
    width = required_int(text, "hidden_size")
    yield Matrix(LINEAR, 3 * width, width, count)
    yield Matrix(LINEAR, width, width, count)
    yield Matrix(OTHER, width, int(text["conv_L_cache"]), count)


def _gated_delta_net_sizes(text: Config) -> tuple[int, int]:
    keys = int(text["linear_num_key_heads"]) * int(text["linear_key_head_dim"])
    return keys, int(text["linear_num_value_heads"]) * int(text["linear_value_head_dim"])


def _mlp(text: Config, family: str, layers: int) -> Iterator[Matrix]:
    width, hidden = required_int(text, "hidden_size"), int(text.get("intermediate_size") or 0)
    experts = next((int(text[key]) for key in EXPERT_COUNT_KEYS if text.get(key)), 0)
    moe_layers = len(_moe_layers(text, layers)) if experts else 0
    dense_layers = layers - moe_layers
    matrices = 2 if family in TWO_MATRIX_MLP_FAMILIES else 3
    if dense_layers:
        if hidden < 1:
            raise ValueError(f"intermediate_size cannot be {hidden}")
        yield Matrix(LINEAR, hidden, width, (matrices - 1) * dense_layers)
        yield Matrix(LINEAR, width, hidden, dense_layers)
    if not moe_layers:
        return
    expert_size = int(text.get("moe_intermediate_size") or hidden)
    yield Matrix(EXPERT, expert_size, width, 2 * experts * moe_layers)
    yield Matrix(EXPERT, width, expert_size, experts * moe_layers)
    yield Matrix(OTHER, experts, width, moe_layers)
    if family in BIASED_EXPERT_FAMILIES:
        yield Matrix(OTHER, experts * (2 * expert_size + width) + experts, 1, moe_layers)
    shared = int(text.get("shared_expert_intermediate_size") or expert_size * int(text.get("n_shared_experts") or 0))
    if shared:
        yield Matrix(LINEAR, shared, width, 2 * moe_layers)
        yield Matrix(LINEAR, width, shared, moe_layers)
    if text.get("shared_expert_intermediate_size"):
        yield Matrix(LINEAR, 1, width, moe_layers)
    if text.get("topk_method") == "noaux_tc" or text.get("scoring_func") == "sigmoid":
        yield Matrix(OTHER, experts, 1, moe_layers)


def _moe_layers(text: Config, layers: int) -> list[int]:
    first, interval = int(text.get("first_k_dense_replace") or 0), int(text.get("decoder_sparse_step") or 1)
    dense = text.get("mlp_only_layers") or ()
    return [layer for layer in range(first, layers) if layer not in dense and (layer + 1) % interval == 0]


def kv_layers_from_config(text: Config, kinds: Sequence[str]) -> tuple[KVLayers, ...]:
    heads = required_int(text, "num_attention_heads")
    if rank := text.get("kv_lora_rank"):
        elements = int(rank) + int(text["qk_rope_head_dim"])
    else:
        elements = 2 * int(text.get("num_key_value_heads") or heads) * _head_size(text)
    full, sliding = kinds.count("full_attention"), kinds.count("sliding_attention")
    window = int(text["sliding_window"]) if sliding else None
    return tuple(group for group in (KVLayers(full, elements), KVLayers(sliding, elements, window)) if group.layers)


def _recurrent_elements(text: Config, kinds: Sequence[str]) -> int:
    if convolutions := kinds.count("conv"):
        return convolutions * required_int(text, "hidden_size") * int(text["conv_L_cache"])
    recurrent = kinds.count("linear_attention")
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
    text: Config = {**(config.get("text_config") or config), "first_k_dense_replace": 0}
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
    matrices += _attention(config, family, layers)
    matrices += _mlp({"hidden_size": width, "intermediate_size": config["intermediate_size"]}, family, layers)
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
