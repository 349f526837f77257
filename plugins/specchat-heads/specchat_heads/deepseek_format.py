"""MTP layers with the attention and the routing of DeepSeek-V3, which GLM-4.5 and GLM-4.7-Flash share in part.

The names, the order of a pair and everything else are those of other MTP layers (`drafters/eagle/mtp_format.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specchat.drafters.eagle.mtp_format import MLP_PREFIX, LayerFormat, detect_mtp, is_of_plugin
from specchat.drafters.heads.head_checkpoint import (
    ATTENTION_PROJECTIONS,
    HeadCheckpoint,
    config_mismatches,
    dimensions_from_tensors,
    require_tensors,
)
from specchat.drafters.heads.spec import HeadDimensions, HeadSpec
from specchat.errors import ModelError
from specchat.weights.tensor_files import TensorFiles
from specchat_heads.deepseek_layers import DeepSeekHead, GroupRouting, LatentDimensions
from specchat_heads.mla import MlaDimensions

ATTENTION_PREFIX = "layers.0.self_attn"
INTERLEAVED_FAMILIES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2")  # few configs have the key


def detect_deepseek(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """An MTP layer with latent attention, with this routing, or with both."""
    if not is_of_plugin(checkpoint.tensors.locations):
        return None
    layer = LayerFormat(DeepSeekHead, _read_dimensions, _attention, _read_routing)
    spec = detect_mtp(checkpoint, layer)
    if spec is None or spec.unsupported_reason or not isinstance(spec.dimensions, LatentDimensions):
        return spec
    return _with_rope_layouts(_with_evidence(spec, spec.dimensions.mla), spec.dimensions, checkpoint.text_config)


def _with_evidence(spec: HeadSpec, mla: MlaDimensions) -> HeadSpec:
    sizes = f"{mla.heads} heads over latents of size {mla.kv_lora_rank} and a rotary key of size {mla.qk_rope_head_dim}"
    return replace(spec, evidence=(*spec.evidence, f"self_attn.kv_a_proj_with_mqa: {sizes}"))


def _with_rope_layouts(spec: HeadSpec, sizes: LatentDimensions, config: Mapping[str, Any]) -> HeadSpec:
    """Where the config leaves the layout of RoPE open, the head and its variants in both."""
    if isinstance(config.get("rope_interleave"), bool) or config.get("model_type") in INTERLEAVED_FAMILIES:
        return spec
    warning = "the config does not say whether RoPE is interleaved or half-split"
    other = replace(sizes, mla=replace(sizes.mla, is_rope_interleaved=not sizes.mla.is_rope_interleaved))
    same = [replace(each, evidence=spec.evidence, variants=()) for each in spec.variants]
    swapped = [replace(each, dimensions=other, variants=()) for each in (spec, *same)]
    return replace(spec, warnings=(warning, *spec.warnings)).with_variants(*same, *swapped)


def _is_mla(tensors: TensorFiles) -> bool:
    return any(name.startswith(f"{ATTENTION_PREFIX}.kv_a_proj") for name in tensors.locations)


def _attention(tensors: TensorFiles) -> list[str]:
    if not _is_mla(tensors):
        return list(ATTENTION_PROJECTIONS)
    has_q_lora = any(name.startswith(f"{ATTENTION_PREFIX}.q_a_") for name in tensors.locations)
    queries = ["q_a_proj", "q_a_layernorm", "q_b_proj"] if has_q_lora else ["q_proj"]
    return [*queries, "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"]


def _read_dimensions(
    tensors: TensorFiles, config: Mapping[str, Any], hidden_size: int
) -> tuple[HeadDimensions, list[str]]:
    """The sizes of the layer, and a warning for every difference to the config."""
    if not _is_mla(tensors):
        return dimensions_from_tensors(tensors, config, hidden_size)
    require_tensors(tensors, [f"{ATTENTION_PREFIX}.{part}.weight" for part in _attention(tensors)])
    mla = _mla_dimensions(tensors, is_rope_interleaved=config.get("rope_interleave") is not False)
    measured = {
        "num_attention_heads": mla.heads, "q_lora_rank": mla.q_lora_rank, "kv_lora_rank": mla.kv_lora_rank,
        "qk_nope_head_dim": mla.qk_nope_head_dim, "qk_rope_head_dim": mla.qk_rope_head_dim,
        "v_head_dim": mla.v_head_dim, "hidden_size": hidden_size,
    }  # fmt: skip
    head_size, epsilon = mla.qk_nope_head_dim + mla.qk_rope_head_dim, float(config.get("rms_norm_eps", 1e-6))
    dimensions = LatentDimensions(hidden_size, mla.heads, mla.heads, head_size, 1, epsilon, mla=mla)
    return dimensions, config_mismatches(config, measured)


def _mla_dimensions(tensors: TensorFiles, is_rope_interleaved: bool) -> MlaDimensions:
    shapes = {part: tensors.shape(f"{ATTENTION_PREFIX}.{part}.weight") for part in _attention(tensors)}
    q_lora_rank = shapes["q_a_proj"][0] if "q_a_proj" in shapes else None
    query_rows, value_columns = shapes["q_b_proj" if q_lora_rank else "q_proj"][0], shapes["o_proj"][1]
    kv_rows, (rank,) = shapes["kv_b_proj"][0], shapes["kv_a_layernorm"]
    rope_size = shapes["kv_a_proj_with_mqa"][0] - rank
    # query_rows = heads * (nope + rope), kv_rows = heads * (nope + value), value_columns = heads * value
    heads, rest = divmod(query_rows + value_columns - kv_rows, rope_size) if rope_size > 0 else (0, 1)
    is_invalid = rest or heads <= 0 or query_rows % heads or value_columns % heads
    if is_invalid or query_rows < heads * rope_size or rope_size % 2:
        rows = f"q {query_rows}, kv_a {rank + rope_size}, kv_b {kv_rows} rows, o {value_columns} columns"
        raise ModelError(f"{tensors.source}: no head size fits the projections ({rows}, and latents of {rank})")
    nope_size = query_rows // heads - rope_size
    return MlaDimensions(heads, rank, nope_size, rope_size, value_columns // heads, q_lora_rank, is_rope_interleaved)


def _read_routing(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> GroupRouting | None:
    """The routing of the config; None for one that is not verified, ModelError for groups that cannot be."""
    config = checkpoint.text_config
    configured = (config.get("scoring_func", "sigmoid"), config.get("topk_method", "noaux_tc"))
    has_correction = f"{MLP_PREFIX}.gate.e_score_correction_bias" in tensors
    if not has_correction or configured != ("sigmoid", "noaux_tc"):
        return None
    groups, topk, scale = (config.get(key) or 1 for key in ("n_group", "topk_group", "routed_scaling_factor"))
    is_normalized = bool(config.get("norm_topk_prob", True))
    routing = GroupRouting(
        int(config.get("num_experts_per_tok") or 0), is_normalized, int(groups), int(topk), float(scale)
    )
    require_tensors(tensors, (f"{MLP_PREFIX}.gate.weight",))
    count = tensors.shape(f"{MLP_PREFIX}.gate.weight")[0]
    if not routing.is_possible(count):
        selection = f"{routing.experts_per_token} of {count} experts"
        raise ModelError(f"{tensors.source}: {selection} cannot be selected from {topk} of {groups} groups")
    return routing
