"""A config.json becomes an `Anatomy`: parameters and what is kept of a text, computed for models that are not here yet.

Exact for the families that the tests name; where a rare family adds a few norms or biases, the error is theirs. Heads
are recognised by their configs too. Reads no file and imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specchat.errors import ModelError
from specchat.hub.architecture import EMBEDDING, EXPERT, LINEAR, OTHER, OUTPUT, Architecture, KVLayers, Matrix

Config = Mapping[str, Any]
TIED_EMBEDDING_FAMILIES = (
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gemma4",
    "gemma4_text",
    "gpt2",
    "gpt_neo",
    "opt",
    "falcon",
)
TWO_MATRIX_MLP_FAMILIES = ("gpt2", "gpt_neo", "gpt_neox", "opt", "falcon", "phi", "starcoder2", "nemotron")
FOUR_NORM_FAMILIES = ("gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text")
QK_NORM_FAMILIES = ("qwen3", "qwen3_moe", "gemma3", "gemma3_text", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
QKV_BIAS_FAMILIES = ("qwen2", "qwen2_moe")
GATED_ATTENTION_FAMILIES = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")
BIASED_EXPERT_FAMILIES = ("gpt_oss",)
MAX_LAYERS = 10_000
EXPERT_COUNT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")


def architecture_from_config(config: Config, source: str = "config.json") -> Architecture:
    """What a config says, of a model or of a head; ModelError when it lacks what no model is without."""
    try:
        return head_architecture_from_config(config) or _model_architecture(config)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise ModelError(f"{source}: what it needs cannot be computed from its config: {error}") from error


def _required_int(table: Config, key: str) -> int:
    """A number that no network is without."""
    if (size := int(table[key])) < 1:
        raise ValueError(f"{key} cannot be {size}")
    return size


def _quantization(config: Config) -> str:
    """How the numbers of a checkpoint are stored when they are no floats: "fp8", "mxfp4", "gptq", ..."""
    said = config.get("quantization_config") or {}
    return "fp8" if said.get("format") == "float-quantized" else str(said.get("quant_method", ""))


def _model_architecture(config: Config) -> Architecture:
    text: Config = config.get("text_config") or config
    family = str(text.get("model_type") or config.get("model_type") or "")
    kinds = _layer_kinds(text, family)
    width, vocabulary = _required_int(text, "hidden_size"), _required_int(text, "vocab_size")
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", family in TIED_EMBEDDING_FAMILIES))
    matrices = [Matrix(EMBEDDING, vocabulary, width), Matrix(OTHER, width)]
    if not tied:
        matrices.append(Matrix(OUTPUT, vocabulary, width))
    for kind in dict.fromkeys(kinds):
        count = kinds.count(kind)
        matrices += _gated_delta_net(text, count) if kind == "linear_attention" else _attention(text, family, count)
    matrices += _mlp(text, family, len(kinds))
    matrices.append(Matrix(OTHER, width, 1, len(kinds) * (4 if family in FOUR_NORM_FAMILIES else 2)))
    notes = ("its part that sees pictures is not counted",) if config.get("vision_config") else ()
    return Architecture(
        family, tuple(matrices), kv_layers_from_config(text, kinds), _recurrent_elements(text, kinds), vocabulary, width, len(kinds),
        int(text.get("max_position_embeddings", 0)), None, _quantization(config) or "bf16", notes,
    )  # fmt: skip


def _layer_kinds(text: Config, family: str) -> list[str]:
    """What each layer looks at: `full_attention`, `sliding_attention` or `linear_attention`."""
    layers = _required_int(text, "num_hidden_layers")
    if layers > MAX_LAYERS:
        raise ValueError(f"num_hidden_layers cannot be {layers}")
    if listed := text.get("layer_types"):
        return [str(kind) for kind in listed][:layers]
    if every := text.get("full_attention_interval"):
        return ["full_attention" if (place + 1) % every == 0 else "linear_attention" for place in range(layers)]
    if not text.get("sliding_window") or text.get("use_sliding_window") is False:
        return ["full_attention"] * layers
    usual = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma3_text": 6}.get(family)
    pattern = text.get("sliding_window_pattern") or usual
    if pattern:
        return ["sliding_attention" if (place + 1) % pattern else "full_attention" for place in range(layers)]
    return ["sliding_attention" if family == "mistral" else "full_attention"] * layers


def _head_size(text: Config) -> int:
    return int(text.get("head_dim") or _required_int(text, "hidden_size") // _required_int(text, "num_attention_heads"))


def _attention(text: Config, family: str, count: int) -> Iterator[Matrix]:
    width, heads = _required_int(text, "hidden_size"), _required_int(text, "num_attention_heads")
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
    """Keys and values are made of one latent a token (DeepSeek-V2, arXiv 2405.04434)."""
    width, heads, rank = (
        _required_int(text, "hidden_size"),
        _required_int(text, "num_attention_heads"),
        int(text["kv_lora_rank"]),
    )
    still, turned, value = (int(text[key]) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    if query_rank := text.get("q_lora_rank"):
        yield Matrix(LINEAR, query_rank, width, count)
        yield Matrix(LINEAR, heads * (still + turned), query_rank, count)
        yield Matrix(OTHER, query_rank, 1, count)
    else:
        yield Matrix(LINEAR, heads * (still + turned), width, count)
    yield Matrix(LINEAR, rank + turned, width, count)
    yield Matrix(LINEAR, heads * (still + value), rank, count)
    yield Matrix(LINEAR, width, heads * value, count)
    yield Matrix(OTHER, rank, 1, count)


def _gated_delta_net(text: Config, count: int) -> Iterator[Matrix]:
    """A gated delta net, as Qwen3-Next and Qwen3.5 have it."""
    width, heads = _required_int(text, "hidden_size"), int(text["linear_num_value_heads"])
    keys, values = _gated_delta_net_sizes(text)
    yield Matrix(LINEAR, 2 * keys + 2 * values + 2 * heads, width, count)
    yield Matrix(LINEAR, width, values, count)
    yield Matrix(OTHER, 2 * keys + values, int(text.get("linear_conv_kernel_dim", 4)), count)
    yield Matrix(OTHER, 2 * heads + int(text["linear_value_head_dim"]), 1, count)


def _gated_delta_net_sizes(text: Config) -> tuple[int, int]:
    """All heads' keys, and all heads' values."""
    keys = int(text["linear_num_key_heads"]) * int(text["linear_key_head_dim"])
    return keys, int(text["linear_num_value_heads"]) * int(text["linear_value_head_dim"])


def _mlp(text: Config, family: str, layers: int) -> Iterator[Matrix]:
    """The layers between attentions: dense ones, and mixtures of experts."""
    width, hidden = _required_int(text, "hidden_size"), int(text.get("intermediate_size") or 0)
    experts = next((int(text[key]) for key in EXPERT_COUNT_KEYS if text.get(key)), 0)
    mixed = len(_moe_layers(text, layers)) if experts else 0
    matrices = 2 if family in TWO_MATRIX_MLP_FAMILIES else 3
    if layers - mixed:
        if hidden < 1:
            raise ValueError(f"intermediate_size cannot be {hidden}")
        yield Matrix(LINEAR, hidden, width, (matrices - 1) * (layers - mixed))
        yield Matrix(LINEAR, width, hidden, layers - mixed)
    if not mixed:
        return
    each = int(text.get("moe_intermediate_size") or hidden)
    yield Matrix(EXPERT, each, width, 2 * experts * mixed)
    yield Matrix(EXPERT, width, each, experts * mixed)
    yield Matrix(OTHER, experts, width, mixed)
    if family in BIASED_EXPERT_FAMILIES:
        yield Matrix(OTHER, experts * (2 * each + width) + experts, 1, mixed)
    shared = int(text.get("shared_expert_intermediate_size") or each * int(text.get("n_shared_experts") or 0))
    if shared:
        yield Matrix(LINEAR, shared, width, 2 * mixed)
        yield Matrix(LINEAR, width, shared, mixed)
    if text.get("shared_expert_intermediate_size"):
        yield Matrix(LINEAR, 1, width, mixed)
    if text.get("topk_method") == "noaux_tc" or text.get("scoring_func") == "sigmoid":
        yield Matrix(OTHER, experts, 1, mixed)


def _moe_layers(text: Config, layers: int) -> list[int]:
    """The layers that are mixtures of experts."""
    first, every = int(text.get("first_k_dense_replace") or 0), int(text.get("decoder_sparse_step") or 1)
    dense = text.get("mlp_only_layers") or ()
    return [place for place in range(first, layers) if place not in dense and (place + 1) % every == 0]


def kv_layers_from_config(text: Config, kinds: Sequence[str]) -> tuple[KVLayers, ...]:
    heads = _required_int(text, "num_attention_heads")
    if rank := text.get("kv_lora_rank"):
        numbers = int(rank) + int(text["qk_rope_head_dim"])
    else:
        numbers = 2 * int(text.get("num_key_value_heads") or heads) * _head_size(text)
    whole, sliding = kinds.count("full_attention"), kinds.count("sliding_attention")
    window = int(text["sliding_window"]) if sliding else None
    return tuple(each for each in (KVLayers(whole, numbers), KVLayers(sliding, numbers, window)) if each.layers)


def _recurrent_elements(text: Config, kinds: Sequence[str]) -> int:
    recurrent = kinds.count("linear_attention")
    if not recurrent:
        return 0
    keys, values = _gated_delta_net_sizes(text)
    convolved = (2 * keys + values) * int(text.get("linear_conv_kernel_dim", 4))
    return recurrent * (convolved + values * int(text["linear_key_head_dim"]))


def head_architecture_from_config(config: Config) -> Architecture | None:
    """What a head's config says; None when it is the config of a whole model."""
    if "medusa_num_heads" in config:
        return _medusa_architecture(config)
    inner: Config = {**config, **(config.get("transformer_layer_config") or {})}
    named = f"{config.get('architectures')} {config.get('speculators_model_type')}".lower()
    if "eagle3" in named or ("draft_vocab_size" in config and "dflash" not in named):
        taps = 3
    elif "dflash" in named or "dflash_config" in config:
        taps = len((config.get("dflash_config") or config).get("target_layer_ids") or (0,) * 5)
    elif "eagle" in named or config.get("fc") is True:
        taps = 0
    else:
        return None
    return _feature_head_architecture(inner, taps, is_dflash="dflash" in named or "dflash_config" in config)


def _feature_head_architecture(config: Config, hidden_state_count: int, *, is_dflash: bool) -> Architecture:
    """Layers over what the target leaves behind. `taps`: hidden states that it reads; 0: one, beside an embedding."""
    width, layers = int(config["hidden_size"]), int(config.get("num_hidden_layers") or 1)
    reads = int(config.get("target_hidden_size") or width)
    family = str(config.get("model_type") or "")
    matrices = [
        Matrix(LINEAR, width, hidden_state_count * reads if hidden_state_count else 2 * width),
        Matrix(OTHER, width, 1, 2 + 2 * layers),
    ]
    matrices += _attention(config, family, layers)
    matrices += _mlp({"hidden_size": width, "intermediate_size": config["intermediate_size"]}, family, layers)
    vocabulary = int(config.get("draft_vocab_size") or 0)
    if hidden_state_count and not is_dflash:
        heads, size = int(config["num_attention_heads"]), _head_size(config)
        pairs = heads + 2 * int(config.get("num_key_value_heads") or heads)
        matrices.append(Matrix(LINEAR, pairs * size, width))  # the first layer reads a feature and an embedding
        matrices.append(Matrix(OUTPUT, vocabulary or int(config["vocab_size"]), width))
    kept = KVLayers(
        layers, 2 * int(config.get("num_key_value_heads") or config["num_attention_heads"]) * _head_size(config)
    )
    return Architecture(
        "dflash" if is_dflash else "eagle3" if hidden_state_count else "eagle", tuple(matrices), (kept,), 0,
        int(config.get("vocab_size") or 0), width, layers, int(config.get("max_position_embeddings") or 0),
    )  # fmt: skip


def _medusa_architecture(config: Config) -> Architecture:
    width, vocabulary = int(config["hidden_size"]), int(config["vocab_size"])
    heads, layers = int(config["medusa_num_heads"]), int(config.get("medusa_num_layers", 1))
    matrices = (
        Matrix(LINEAR, width, width, heads * layers), Matrix(OTHER, width, 1, heads * layers),
        Matrix(OUTPUT, vocabulary, width, heads),
    )  # fmt: skip
    return Architecture("medusa", matrices, (), 0, vocabulary, width, layers)
