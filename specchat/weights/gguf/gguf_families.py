"""The metadata and tensor names of a GGUF file → config.json and the tensor names of the published model.

llama.cpp changes weights where it computes differently; `WeightChange` says how to undo that. A tensor that is missing
or unknown is an error: a model that is loaded in part answers nonsense. Shapes are compared where a model is loaded
(`llama_manifest`). Reads no weights, and imports neither torch nor transformers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_file import GgufFile, GgufTensor, one_line
from specchat.weights.gguf.gguf_manifest import MappedTensor, WeightChange
from specchat.weights.gguf.gguf_rows import read_float32
from specchat.weights.llama_families import FAMILIES as LLAMA_FAMILIES
from specchat.weights.llama_families import Family

MAX_LAYERS = 1024
MAX_SIZE = 2**24  # of any dimension
# Settings that these families do not have; a file that sets one to anything else would compute something else here.
NEUTRAL_VALUES: Mapping[str, tuple[float, ...]] = {
    "attention.scale": (0, 1), "attention.clamp_kqv": (0,), "attention.max_alibi_bias": (0,), "attention.causal": (1,),
    "logit_scale": (0, 1), "embedding_scale": (0, 1), "residual_scale": (0, 1), "rope.scaling.yarn_beta_fast": (32,),
    "rope.scaling.yarn_beta_slow": (1,), "rope.scaling.yarn_log_multiplier": (0,), "expert_weights_scale": (0, 1),
    "expert_gating_func": (0, 1), "expert_group_count": (0, 1), "leading_dense_block_count": (0,),
    "interleave_moe_layer_step": (0, 1), "nextn_predict_layers": (0,), "attention.temperature_scale": (0,),
}  # fmt: skip
LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
GEMMA3_LOCAL_ROPE_BASE = 10000.0
NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")  # before and after attention and MLP
NO_NORM = ""  # that a family does not have
LATE_NORMS = ("attn_norm", NO_NORM, "post_attention_norm", NO_NORM)  # the norm before the MLP by another name
QKV = ("attn_q", "attn_k", "attn_v")
BIASED = (*QKV, "attn_output")
EXPERT = "{}"  # in the name of a tensor that holds all experts: the number of one
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GRANITE_SCALES = {  # GGUF → config
    "attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling",
}  # fmt: skip


@dataclass(frozen=True)
class MappedModel:
    """A model as published: its config.json without token ids, and its tensors."""

    config: dict[str, Any]
    tensors: tuple[MappedTensor, ...]


@dataclass(frozen=True)
class _Family:
    """An architecture of llama.cpp, beyond what `llama_families` says of its `model_type` of transformers."""

    model_type: str
    class_name: str
    special_config: Callable[[_Keys, dict[str, Any]], dict[str, Any]]
    optional_biases: tuple[str, ...] = ()
    norms: tuple[str, str, str, str] = NORMS
    has_qk_norms: bool = False
    pairs_rows: bool = False
    scales: Mapping[str, str] = field(default_factory=dict[str, str])  # keys of NEUTRAL_VALUES that the family has

    @property
    def published(self) -> Family:
        return LLAMA_FAMILIES[self.model_type]

    @property
    def layer_names(self) -> dict[str, str]:
        """The tensors of a layer: GGUF → transformers."""
        names, qk_norms = self.published.names, QK_NORMS if self.has_qk_norms else {}
        norms = (names.input_norm, names.attention_output_norm, names.mlp_norm, names.mlp_output_norm)
        qkv = QKV if len(names.qkv) > 1 else ("attn_qkv",)
        attention = dict(zip((*self.norms, *qkv), (*norms, *names.qkv), strict=True))
        attention |= {"attn_output": "self_attn.o_proj", **qk_norms, **self._mlp_names}
        return {stored: published for stored, published in attention.items() if published is not None}

    @property
    def _mlp_names(self) -> dict[str, str]:
        experts = self.published.experts
        if experts is None:
            gate_up = self.published.names.gate_up
            return dict(zip(("ffn_gate", "ffn_up")[-len(gate_up) :], gate_up, strict=True)) | {
                "ffn_down": "mlp.down_proj"
            }
        names = {"ffn_gate_inp": experts.router}
        for stored, published in zip(("gate", "up", "down"), (*experts.gate_up, experts.down), strict=True):
            names[f"ffn_{stored}_exps"] = f"{experts.experts}.{EXPERT}.{published}"
            if experts.shared:
                names[f"ffn_{stored}_shexp"] = f"{experts.shared}.{stored}_proj"
        return names | ({"ffn_gate_inp_shexp": f"{experts.shared}_gate"} if experts.shared else {})


class _Keys:
    """The metadata of an architecture, with checked values."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file = file
        self.architecture = architecture

    def error(self, problem: str) -> ModelError:
        return ModelError(f"{self.file.path}: {one_line(problem)}")

    def value(self, key: str, default: float | None = None) -> Any:
        value = self.file.metadata.get(f"{self.architecture}.{key}")
        return default if value is None else value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.value(key, default)
        if isinstance(value, list):  # one number for each layer
            if len(set(value)) != 1:
                raise self.error(f"{self.architecture} with another {key} in each layer is not supported")
            value = value[0]
        if not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
            raise self.error(f"{self.architecture}.{key} is {value if value is not None else 'missing'}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.value(key, default)
        if not isinstance(value, int | float) or not 0 < value < 1e12:
            raise self.error(f"{self.architecture}.{key} is {value if value is not None else 'missing'}")
        return float(numpy.format_float_positional(numpy.float32(value)))  # 1e-05, not 9.999999747378752e-06

    def tensor(self, name: str) -> GgufTensor | None:
        return self.file.tensors.get(name)


def map_model(file: GgufFile) -> MappedModel:
    """The model in a GGUF file. ModelError when its architecture is not supported, or tensors do not fit."""
    architecture = str(file.metadata.get("general.architecture"))
    keys = _Keys(file, architecture)
    family = (EXPERT_FAMILIES if keys.value("expert_count") else FAMILIES).get(architecture)
    if family is None and architecture in FAMILIES:
        raise keys.error(f"{architecture} with experts is not supported; choose a dense model, or its *.safetensors")
    if family is None:
        reason = "is not a language model" if architecture in ("clip", "whisper") else "is not supported"
        supported = ", ".join(dict.fromkeys((*FAMILIES, *EXPERT_FAMILIES)))
        raise keys.error(f"the architecture {architecture} {reason}; supported are {supported}")
    for key, neutral in NEUTRAL_VALUES.items():
        if key not in family.scales and (value := keys.value(key)) not in (None, *neutral):
            raise keys.error(f"{architecture} with {key} = {value} is not supported")
    config = _config(keys, family)
    return MappedModel(config, tuple(_mapped_tensors(keys, family, config)))


def _config(keys: _Keys, family: _Family) -> dict[str, Any]:
    embedding = keys.tensor("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise keys.error("token_embd.weight is missing; is this a whole language model?")
    heads, width = keys.size("attention.head_count"), keys.size("embedding_length")
    layers = keys.size("block_count")
    if layers > MAX_LAYERS:
        raise keys.error(f"{keys.architecture}.block_count is {layers}")
    head_size = keys.size("attention.key_length", keys.size("rope.dimension_count", max(width // heads, 1)))
    if keys.size("attention.value_length", head_size) != head_size:
        raise keys.error(f"{keys.architecture} with keys and values of different sizes is not supported")
    config: dict[str, Any] = {
        "architectures": [family.class_name],
        "model_type": family.model_type,
        "vocab_size": embedding.shape[0],
        "hidden_size": width,
        "intermediate_size": keys.size("feed_forward_length", keys.value("expert_feed_forward_length")),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys.size("attention.head_count_kv", heads),
        "head_dim": head_size,
        family.published.activation_key: family.published.activation,
        "max_position_embeddings": keys.size("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": keys.tensor("output.weight") is None,
        "dtype": "bfloat16",
        "use_cache": True,
    }
    return (
        config
        | family.special_config(keys, config)
        | (_expert_config(keys, config) if family.published.experts else {})
    )


def _expert_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "num_experts": keys.size("expert_count"),
        "num_local_experts": keys.size("expert_count"),  # as Mixtral and gpt-oss call it
        "num_experts_per_tok": keys.size("expert_used_count"),
        "moe_intermediate_size": keys.size("expert_feed_forward_length", config["intermediate_size"]),
    }


def _llama_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    _require_full_rotation(keys, config)
    has_bias = keys.tensor("blk.0.attn_q.bias") is not None
    return {"attention_bias": has_bias, "mlp_bias": False, "rope_parameters": _rope(keys, config)}


def _granite_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    return _llama_config(keys, config) | {name: keys.number(key, 1.0) for key, name in GRANITE_SCALES.items()}


def _qwen_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    _require_full_rotation(keys, config)
    return {"use_sliding_window": False, "rope_parameters": _rope(keys, config)}


def _qwen2_moe_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    shared = keys.size("expert_shared_feed_forward_length", keys.size("feed_forward_length"))
    return _qwen_config(keys, config) | {"shared_expert_intermediate_size": shared, "norm_topk_prob": False}


def _qwen3_moe_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    return _qwen_config(keys, config) | {"norm_topk_prob": True}


def _gpt_oss_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    rope = _rope(keys, config)
    return {
        "intermediate_size": keys.size("expert_feed_forward_length"),
        "attention_bias": True,
        "sliding_window": keys.size("attention.sliding_window"),
        "layer_types": _layer_types(keys, config["num_hidden_layers"], every=2),
        "rope_parameters": rope | ({"truncate": False} if rope["rope_type"] == "yarn" else {}),
    }


def _olmo2_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    """Olmo 2, or Olmo 3, which has sliding windows; the scaling of its RoPE is that of the other layers."""
    rope = _rope(keys, config)
    if not keys.value("attention.sliding_window"):
        return {"attention_bias": False, "rope_parameters": rope}
    return {
        "model_type": "olmo3",
        "architectures": ["Olmo3ForCausalLM"],
        "attention_bias": False,
        "sliding_window": keys.size("attention.sliding_window"),
        "layer_types": _layer_types(keys, config["num_hidden_layers"], every=4),
        "rope_parameters": {
            "full_attention": rope,
            "sliding_attention": {"rope_type": "default", "rope_theta": rope["rope_theta"]},
        },
    }


def _exaone4_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    special: dict[str, Any] = {"sliding_window": None, "rope_parameters": _rope(keys, config)}
    if keys.value("attention.sliding_window"):
        special["sliding_window"] = keys.size("attention.sliding_window")
        special["layer_types"] = _layer_types(keys, config["num_hidden_layers"], every=4)
    return special


def _gemma2_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    is_27b = config["num_hidden_layers"] == 46
    return {
        "sliding_window": keys.size("attention.sliding_window", 4096),
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0),
        "query_pre_attn_scalar": _gemma_query_scalar(config, is_27b=is_27b),
        "rope_parameters": _rope(keys, config),
    }


def _gemma3_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    is_27b = config["num_hidden_layers"] == 62
    special: dict[str, Any] = {
        "sliding_window": keys.size("attention.sliding_window"),
        "layer_types": _layer_types(keys, config["num_hidden_layers"], every=6),
        "query_pre_attn_scalar": _gemma_query_scalar(config, is_27b=is_27b),
        "rope_parameters": {
            "full_attention": _rope(keys, config, default_base=1_000_000.0),
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": keys.number("rope.freq_base_swa", GEMMA3_LOCAL_ROPE_BASE),
            },
        },
    }
    if keys.value("final_logit_softcapping"):
        special["final_logit_softcapping"] = keys.number("final_logit_softcapping")
    return special


def _layer_types(keys: _Keys, layers: int, every: int) -> list[str]:
    """Whether each layer has a sliding window: all but every so many, or as the file lists it."""
    listed = keys.value("attention.sliding_window_pattern")
    if isinstance(listed, list) and len(listed) == layers:
        is_sliding = [bool(each) for each in listed]
    else:
        pattern = keys.size("attention.sliding_window_pattern", every)
        is_sliding = [(layer + 1) % pattern != 0 for layer in range(layers)]
    return ["sliding_attention" if each else "full_attention" for each in is_sliding]


def _gemma_query_scalar(config: dict[str, Any], *, is_27b: bool) -> int:
    """The file does not say it: the head size, but in the models with 27B the width of a head's share."""
    return config["hidden_size"] // config["num_attention_heads"] if is_27b else config["head_dim"]


def _phi3_config(keys: _Keys, config: dict[str, Any]) -> dict[str, Any]:
    head_size = config["hidden_size"] // config["num_attention_heads"]
    share = keys.size("rope.dimension_count", head_size) / head_size
    original = keys.size("rope.scaling.original_context_length", config["max_position_embeddings"])
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": keys.number("rope.freq_base", 10000.0),
        "partial_rotary_factor": share,
    }
    if keys.tensor("rope_factors_long.weight") is not None:
        rope["rope_type"] = "longrope"
        for length in ("short", "long"):
            factors = _rope_factors(keys, f"rope_factors_{length}.weight", round(share * head_size) // 2)
            rope[f"{length}_factor"] = factors.tolist()
    special: dict[str, Any] = {"original_max_position_embeddings": original, "rope_parameters": rope}
    if share != 1:
        special["partial_rotary_factor"] = share
    if keys.value("attention.sliding_window"):
        special["sliding_window"] = keys.size("attention.sliding_window")
    return special | {"head_dim": head_size}


def _require_full_rotation(keys: _Keys, config: dict[str, Any]) -> None:
    if keys.size("rope.dimension_count", config["head_dim"]) != config["head_dim"]:
        raise keys.error(f"{keys.architecture} with RoPE on a part of each head is not supported")


def _rope(keys: _Keys, config: dict[str, Any], default_base: float = 10000.0) -> dict[str, Any]:
    """The `rope_parameters` of a config."""
    base = {"rope_theta": keys.number("rope.freq_base", default_base)}
    if keys.tensor("rope_freqs.weight") is not None:
        factors = _rope_factors(keys, "rope_freqs.weight", config["head_dim"] // 2)
        return base | _llama3_rope(keys, factors, base["rope_theta"], config["head_dim"])
    kind = keys.value("rope.scaling.type")
    if kind in (None, "none"):
        legacy = keys.value("rope.scale_linear")
        is_scaled = isinstance(legacy, int | float) and legacy not in (0, 1)
        return base | ({"rope_type": "linear", "factor": float(legacy)} if is_scaled else {"rope_type": "default"})
    factor = keys.number("rope.scaling.factor", 1.0)
    if kind == "linear":
        return base | ({"rope_type": "default"} if factor == 1 else {"rope_type": "linear", "factor": factor})
    if kind == "yarn":
        original = keys.size("rope.scaling.original_context_length")
        rope = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        if (sharpening := keys.number("rope.scaling.attn_factor", 1.0)) != 1:
            rope["attention_factor"] = sharpening * (1 + 0.1 * math.log(factor))
        return base | rope
    raise keys.error(f"the RoPE scaling {kind} is not supported")


def _rope_factors(keys: _Keys, name: str, count: int) -> numpy.ndarray:
    """By how much each frequency is divided."""
    tensor = keys.tensor(name)
    if tensor is None or tensor.shape != (count,):
        raise keys.error(f"{name} is missing, or does not have {count} values")
    factors = read_float32(tensor)
    if not numpy.all(factors > 0):
        raise keys.error(f"{name} has a factor that is not positive")
    return factors


def _llama3_rope(keys: _Keys, factors: numpy.ndarray, base: float, head_size: int) -> dict[str, Any]:
    """Llama 3.1 and later: the file stores a factor for each frequency, the config the rule that they follow."""
    if numpy.all(factors == 1):
        return {"rope_type": "default"}
    rule = {"factor": round(float(factors.max()), 4), **LLAMA3_ROPE}
    if not numpy.allclose(factors, _llama3_factors(rule, base, head_size), rtol=1e-4):
        raise keys.error("its rope_freqs.weight follow no known rule; use the model's *.safetensors")
    return {"rope_type": "llama3", **rule}


def _llama3_factors(rule: Mapping[str, float], base: float, head_size: int) -> numpy.ndarray:
    """By how much each frequency is divided: low ones by `factor`, high ones by 1, and smoothly between."""
    wavelengths = 2 * numpy.pi * base ** (numpy.arange(0, head_size, 2, dtype=numpy.float64) / head_size)
    low, high = rule["low_freq_factor"], rule["high_freq_factor"]
    share = (rule["original_max_position_embeddings"] / wavelengths - low) / (high - low)
    share = numpy.clip(share, 0, 1)
    return 1 / ((1 - share) / rule["factor"] + share)


def _mapped_tensors(keys: _Keys, family: _Family, config: dict[str, Any]) -> Iterator[MappedTensor]:
    """Every tensor of the model, in the order in which it is written."""
    unused, norms_add_one = dict(keys.file.tensors), family.published.scaling(config).norms_add_one
    for gguf_name, name in _expected_tensors(keys, family, config):
        tensor = unused.pop(gguf_name, None)
        if tensor is None:
            raise keys.error(f"the tensor {gguf_name} is missing; download the file again")
        part = gguf_name.rpartition(".")[0].rpartition(".")[2]
        if EXPERT in name:
            yield from _experts(keys, tensor, name, config["num_experts"])
            continue
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(part, 0)
        if family.pairs_rows and heads:
            yield MappedTensor(tensor, name, WeightChange.PAIRED_ROWS, heads)
        elif norms_add_one and part.endswith("norm"):
            yield MappedTensor(tensor, name, WeightChange.PLUS_ONE)
        elif part == "ffn_gate_inp_shexp":  # a vector, or a matrix of one row
            yield MappedTensor(replace(tensor, shape=(1, tensor.shape[-1])), name)
        else:
            yield MappedTensor(tensor, name)
    unknown = [name for name in unused if not name.startswith(("rope_freqs.", "rope_factors_"))]
    if unknown:
        raise keys.error(f"{keys.architecture} with the tensor {min(unknown)} is not supported")


def _experts(keys: _Keys, tensor: GgufTensor, name: str, count: int) -> Iterator[MappedTensor]:
    """Each expert of a tensor that holds all of them, one after the other."""
    if tensor.shape[0] != count or len(tensor.shape) < 2:
        raise keys.error(f"{tensor.name} has the shape {list(tensor.shape)}, and the file says {count} experts")
    size = tensor.bytes // count
    for index in range(count):
        part = replace(tensor, shape=tensor.shape[1:], offset=tensor.offset + index * size, bytes=size)
        yield MappedTensor(part, name.replace(EXPERT, str(index)))


def _expected_tensors(keys: _Keys, family: _Family, config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name in the file, and name in the model, of every tensor."""
    yield "token_embd.weight", "model.embed_tokens.weight"
    for layer in range(config["num_hidden_layers"]):
        for part, name in family.layer_names.items():
            yield f"blk.{layer}.{part}.weight", f"model.layers.{layer}.{name}.weight"
            if part in family.optional_biases and keys.tensor(f"blk.{layer}.{part}.bias") is not None:
                yield f"blk.{layer}.{part}.bias", f"model.layers.{layer}.{name}.bias"
        if family.published.has_sinks:
            yield f"blk.{layer}.attn_sinks.weight", f"model.layers.{layer}.self_attn.sinks"
    yield "output_norm.weight", "model.norm.weight"
    if not config["tie_word_embeddings"]:
        yield "output.weight", "lm_head.weight"


FAMILIES: Mapping[str, _Family] = {
    "llama": _Family("llama", "LlamaForCausalLM", _llama_config, BIASED, pairs_rows=True),
    "granite": _Family(
        "granite", "GraniteForCausalLM", _granite_config, BIASED, pairs_rows=True, scales=GRANITE_SCALES
    ),
    "smollm3": _Family("smollm3", "SmolLM3ForCausalLM", _llama_config, BIASED, pairs_rows=True),
    "seed_oss": _Family("seed_oss", "SeedOssForCausalLM", _llama_config, BIASED, LATE_NORMS),
    "qwen2": _Family("qwen2", "Qwen2ForCausalLM", _qwen_config, QKV),
    "qwen3": _Family("qwen3", "Qwen3ForCausalLM", _qwen_config, has_qk_norms=True),
    "olmo2": _Family("olmo2", "Olmo2ForCausalLM", _olmo2_config, has_qk_norms=True),
    "exaone4": _Family("exaone4", "Exaone4ForCausalLM", _exaone4_config, has_qk_norms=True),
    "gemma": _Family("gemma", "GemmaForCausalLM", lambda keys, config: {"rope_parameters": _rope(keys, config)}),
    "gemma2": _Family("gemma2", "Gemma2ForCausalLM", _gemma2_config),
    "gemma3": _Family("gemma3_text", "Gemma3ForCausalLM", _gemma3_config, has_qk_norms=True),
    "phi3": _Family("phi3", "Phi3ForCausalLM", _phi3_config),
}
EXPERT_FAMILIES: Mapping[str, _Family] = {  # of architectures whose file says how many experts a layer has
    "llama": _Family("mixtral", "MixtralForCausalLM", _llama_config, pairs_rows=True),
    "qwen2moe": _Family("qwen2_moe", "Qwen2MoeForCausalLM", _qwen2_moe_config, QKV),
    "qwen3moe": _Family("qwen3_moe", "Qwen3MoeForCausalLM", _qwen3_moe_config, has_qk_norms=True),
    "olmoe": _Family("olmoe", "OlmoeForCausalLM", _olmo2_config, has_qk_norms=True),
    "gpt-oss": _Family(
        "gpt_oss", "GptOssForCausalLM", _gpt_oss_config,
        (*BIASED, "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"), LATE_NORMS,
    ),
}  # fmt: skip
