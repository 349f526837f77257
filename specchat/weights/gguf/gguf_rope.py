"""The rotary embeddings that a GGUF file means, as the `rope_parameters` of a published config. Knows no family."""

import math
from collections.abc import Mapping
from typing import Any

import numpy

from specchat.weights.gguf.gguf_keys import GgufKeys
from specchat.weights.gguf.gguf_rows import read_float32

LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def rope_parameters(
    keys: GgufKeys, yarn: Mapping[str, Any], head_size: int, default_base: float = 10000.0
) -> dict[str, Any]:
    """The `rope_parameters` of a config; `yarn` are those that a family with YaRN has."""
    base = {"rope_theta": keys.number("rope.freq_base", default_base)}
    if keys.tensor("rope_freqs.weight") is not None:
        factors = rope_factors(keys, "rope_freqs.weight", head_size // 2)
        if share := _rotated_share(factors):
            return base | {"rope_type": "proportional", "partial_rotary_factor": share}
        return base | _llama3_rope(keys, factors, base["rope_theta"], head_size)
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
        sharpening = keys.number("rope.scaling.attn_factor", 1.0)
        if keys.value("rope.scaling.yarn_log_multiplier"):
            sharpening /= 1 + 0.1 * keys.number("rope.scaling.yarn_log_multiplier") * math.log(max(factor, 1.0))
        if sharpening != 1:
            rope["attention_factor"] = sharpening * (1 + 0.1 * math.log(factor))
        return {**base, **rope, **yarn}
    raise keys.error(f"the RoPE scaling {kind} is not supported")


def rope_factors(keys: GgufKeys, name: str, count: int) -> numpy.ndarray:
    """By how much each frequency is divided."""
    tensor = keys.tensor(name)
    if tensor is None or tensor.shape != (count,):
        raise keys.error(f"{name} is missing, or does not have {count} values")
    factors = read_float32(tensor)
    if not numpy.all(factors > 0):
        raise keys.error(f"{name} has a factor that is not positive")
    return factors


def _rotated_share(factors: numpy.ndarray) -> float:
    """The share of a head that is rotated where the frequencies behind it are divided by 1e30 (Gemma 4); else 0."""
    rotated = int((factors == 1).sum())
    is_share = rotated < len(factors) and (factors[:rotated] == 1).all() and (factors[rotated:] > 1e29).all()
    return rotated / len(factors) if is_share else 0.0


def _llama3_rope(keys: GgufKeys, factors: numpy.ndarray, base: float, head_size: int) -> dict[str, Any]:
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
