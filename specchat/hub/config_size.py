"""A config.json becomes an `Anatomy`: parameters and what is kept of a text, computed for models that are not here yet.

Exact for the families that the tests name; where a rare family adds a few norms or biases, the error is theirs. Heads
are recognised by their configs too. Reads no file and imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specchat.errors import ModelError
from specchat.hub.architecture import EMBEDDING, EXPERT, LINEAR, OUTPUT, SMALL, Anatomy, Kept, Matrix

Config = Mapping[str, Any]
TIED = ("gemma", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "gpt2", "gpt_neo", "opt", "falcon")
WITH_TWO_MATRICES = ("gpt2", "gpt_neo", "gpt_neox", "opt", "falcon", "phi", "starcoder2", "nemotron")
FOUR_NORMS = ("gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text")
NORMS_OF_QUERIES = ("qwen3", "qwen3_moe", "gemma3", "gemma3_text", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
QUERY_BIASES = ("qwen2", "qwen2_moe")
GATED_ATTENTION = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")
BIASED_EXPERTS = ("gpt_oss",)
MOST_LAYERS = 10_000
EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")


def anatomy_of(config: Config, source: str = "config.json") -> Anatomy:
    """What a config says, of a model or of a head; ModelError when it lacks what no model is without."""
    try:
        return head_of(config) or _model(config)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise ModelError(f"{source}: what it needs cannot be computed from its config: {error}") from error


def _size(table: Config, key: str) -> int:
    """A number that no network is without."""
    if (size := int(table[key])) < 1:
        raise ValueError(f"{key} cannot be {size}")
    return size


def _quantisation(config: Config) -> str:
    """How the numbers of a checkpoint are stored when they are no floats: "fp8", "mxfp4", "gptq", ..."""
    said = config.get("quantization_config") or {}
    return "fp8" if said.get("format") == "float-quantized" else str(said.get("quant_method", ""))


def _model(config: Config) -> Anatomy:
    text: Config = config.get("text_config") or config
    family = str(text.get("model_type") or config.get("model_type") or "")
    kinds = _layer_kinds(text, family)
    width, vocabulary = _size(text, "hidden_size"), _size(text, "vocab_size")
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", family in TIED))
    matrices = [Matrix(EMBEDDING, vocabulary, width), Matrix(SMALL, width)]
    if not tied:
        matrices.append(Matrix(OUTPUT, vocabulary, width))
    for kind in dict.fromkeys(kinds):
        count = kinds.count(kind)
        matrices += _recurrent(text, count) if kind == "linear_attention" else _attention(text, family, count)
    matrices += _feeding(text, family, len(kinds))
    matrices.append(Matrix(SMALL, width, 1, len(kinds) * (4 if family in FOUR_NORMS else 2)))
    notes = ("its part that sees pictures is not counted",) if config.get("vision_config") else ()
    return Anatomy(
        family, tuple(matrices), kept_of(text, kinds), _state(text, kinds), vocabulary, width, len(kinds),
        int(text.get("max_position_embeddings", 0)), None, _quantisation(config) or "bf16", notes,
    )  # fmt: skip


def _layer_kinds(text: Config, family: str) -> list[str]:
    """What each layer looks at: `full_attention`, `sliding_attention` or `linear_attention`."""
    layers = _size(text, "num_hidden_layers")
    if layers > MOST_LAYERS:
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
    return int(text.get("head_dim") or _size(text, "hidden_size") // _size(text, "num_attention_heads"))


def _attention(text: Config, family: str, count: int) -> Iterator[Matrix]:
    width, heads = _size(text, "hidden_size"), _size(text, "num_attention_heads")
    if text.get("kv_lora_rank"):
        yield from _latent_attention(text, count)
        return
    size, kv_heads = _head_size(text), int(text.get("num_key_value_heads") or heads)
    queries = heads * size * (2 if family in GATED_ATTENTION else 1)
    yield Matrix(LINEAR, queries, width, count)
    yield Matrix(LINEAR, kv_heads * size, width, 2 * count)
    yield Matrix(LINEAR, width, heads * size, count)
    if text.get("attention_bias") or family in QUERY_BIASES:
        yield Matrix(SMALL, queries + 2 * kv_heads * size, 1, count)
    if text.get("attention_bias") and family not in QUERY_BIASES:
        yield Matrix(SMALL, width, 1, count)
    if family in NORMS_OF_QUERIES:
        yield Matrix(SMALL, 2 * size, 1, count)
    if family == "gpt_oss":
        yield Matrix(SMALL, heads, 1, count)


def _latent_attention(text: Config, count: int) -> Iterator[Matrix]:
    """Keys and values are made of one latent a token (DeepSeek-V2, arXiv 2405.04434)."""
    width, heads, rank = _size(text, "hidden_size"), _size(text, "num_attention_heads"), int(text["kv_lora_rank"])
    still, turned, value = (int(text[key]) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    if query_rank := text.get("q_lora_rank"):
        yield Matrix(LINEAR, query_rank, width, count)
        yield Matrix(LINEAR, heads * (still + turned), query_rank, count)
        yield Matrix(SMALL, query_rank, 1, count)
    else:
        yield Matrix(LINEAR, heads * (still + turned), width, count)
    yield Matrix(LINEAR, rank + turned, width, count)
    yield Matrix(LINEAR, heads * (still + value), rank, count)
    yield Matrix(LINEAR, width, heads * value, count)
    yield Matrix(SMALL, rank, 1, count)


def _recurrent(text: Config, count: int) -> Iterator[Matrix]:
    """A gated delta net, as Qwen3-Next and Qwen3.5 have it."""
    width, heads = _size(text, "hidden_size"), int(text["linear_num_value_heads"])
    keys, values = _recurrent_widths(text)
    yield Matrix(LINEAR, 2 * keys + 2 * values + 2 * heads, width, count)
    yield Matrix(LINEAR, width, values, count)
    yield Matrix(SMALL, 2 * keys + values, int(text.get("linear_conv_kernel_dim", 4)), count)
    yield Matrix(SMALL, 2 * heads + int(text["linear_value_head_dim"]), 1, count)


def _recurrent_widths(text: Config) -> tuple[int, int]:
    """All heads' keys, and all heads' values."""
    keys = int(text["linear_num_key_heads"]) * int(text["linear_key_head_dim"])
    return keys, int(text["linear_num_value_heads"]) * int(text["linear_value_head_dim"])


def _feeding(text: Config, family: str, layers: int) -> Iterator[Matrix]:
    """The layers between attentions: dense ones, and mixtures of experts."""
    width, hidden = _size(text, "hidden_size"), int(text.get("intermediate_size") or 0)
    experts = next((int(text[key]) for key in EXPERT_COUNTS if text.get(key)), 0)
    mixed = len(_mixed_layers(text, layers)) if experts else 0
    matrices = 2 if family in WITH_TWO_MATRICES else 3
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
    yield Matrix(SMALL, experts, width, mixed)
    if family in BIASED_EXPERTS:
        yield Matrix(SMALL, experts * (2 * each + width) + experts, 1, mixed)
    shared = int(text.get("shared_expert_intermediate_size") or each * int(text.get("n_shared_experts") or 0))
    if shared:
        yield Matrix(LINEAR, shared, width, 2 * mixed)
        yield Matrix(LINEAR, width, shared, mixed)
    if text.get("shared_expert_intermediate_size"):
        yield Matrix(LINEAR, 1, width, mixed)
    if text.get("topk_method") == "noaux_tc" or text.get("scoring_func") == "sigmoid":
        yield Matrix(SMALL, experts, 1, mixed)


def _mixed_layers(text: Config, layers: int) -> list[int]:
    """The layers that are mixtures of experts."""
    first, every = int(text.get("first_k_dense_replace") or 0), int(text.get("decoder_sparse_step") or 1)
    dense = text.get("mlp_only_layers") or ()
    return [place for place in range(first, layers) if place not in dense and (place + 1) % every == 0]


def kept_of(text: Config, kinds: Sequence[str]) -> tuple[Kept, ...]:
    heads = _size(text, "num_attention_heads")
    if rank := text.get("kv_lora_rank"):
        numbers = int(rank) + int(text["qk_rope_head_dim"])
    else:
        numbers = 2 * int(text.get("num_key_value_heads") or heads) * _head_size(text)
    whole, sliding = kinds.count("full_attention"), kinds.count("sliding_attention")
    window = int(text["sliding_window"]) if sliding else None
    return tuple(each for each in (Kept(whole, numbers), Kept(sliding, numbers, window)) if each.layers)


def _state(text: Config, kinds: Sequence[str]) -> int:
    recurrent = kinds.count("linear_attention")
    if not recurrent:
        return 0
    keys, values = _recurrent_widths(text)
    convolved = (2 * keys + values) * int(text.get("linear_conv_kernel_dim", 4))
    return recurrent * (convolved + values * int(text["linear_key_head_dim"]))


def head_of(config: Config) -> Anatomy | None:
    """What a head's config says; None when it is the config of a whole model."""
    if "medusa_num_heads" in config:
        return _medusa(config)
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
    return _feature_head(inner, taps, is_block="dflash" in named or "dflash_config" in config)


def _feature_head(config: Config, taps: int, *, is_block: bool) -> Anatomy:
    """Layers over what the target leaves behind. `taps`: hidden states that it reads; 0: one, beside an embedding."""
    width, layers = int(config["hidden_size"]), int(config.get("num_hidden_layers") or 1)
    reads = int(config.get("target_hidden_size") or width)
    family = str(config.get("model_type") or "")
    matrices = [Matrix(LINEAR, width, taps * reads if taps else 2 * width), Matrix(SMALL, width, 1, 2 + 2 * layers)]
    matrices += _attention(config, family, layers)
    matrices += _feeding({"hidden_size": width, "intermediate_size": config["intermediate_size"]}, family, layers)
    vocabulary = int(config.get("draft_vocab_size") or 0)
    if taps and not is_block:
        heads, size = int(config["num_attention_heads"]), _head_size(config)
        pairs = heads + 2 * int(config.get("num_key_value_heads") or heads)
        matrices.append(Matrix(LINEAR, pairs * size, width))  # the first layer reads a feature and an embedding
        matrices.append(Matrix(OUTPUT, vocabulary or int(config["vocab_size"]), width))
    kept = Kept(
        layers, 2 * int(config.get("num_key_value_heads") or config["num_attention_heads"]) * _head_size(config)
    )
    return Anatomy(
        "dflash" if is_block else "eagle3" if taps else "eagle", tuple(matrices), (kept,), 0,
        int(config.get("vocab_size") or 0), width, layers, int(config.get("max_position_embeddings") or 0),
    )  # fmt: skip


def _medusa(config: Config) -> Anatomy:
    width, vocabulary = int(config["hidden_size"]), int(config["vocab_size"])
    heads, layers = int(config["medusa_num_heads"]), int(config.get("medusa_num_layers", 1))
    matrices = (
        Matrix(LINEAR, width, width, heads * layers), Matrix(SMALL, width, 1, heads * layers),
        Matrix(OUTPUT, vocabulary, width, heads),
    )  # fmt: skip
    return Anatomy("medusa", matrices, (), 0, vocabulary, width, layers)
