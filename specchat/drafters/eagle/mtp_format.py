"""Multi-token prediction (MTP): the extra layer that a target was trained with and that its checkpoint contains.

Its name is `model.layers.{n}` in DeepSeek-V3 and GLM, `mtp` in Qwen3-Next and Qwen3.5, `model.mtp_layers.0` in MiMo,
and `mtp_layers.0` in vLLM's speculators. The last two have the same tensor names and opposite orders of pairs. Only
such a layer has MLA (DeepSeek), whose sizes are those of its tensors, and a mixture of experts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.head_checkpoint import (
    ATTENTION_PROJECTIONS,
    HeadCheckpoint,
    config_mismatches,
    dimensions_from_tensors,
    layer_tensor_names,
    require_tensors,
    unsupported_layer_reason,
)
from specchat.drafters.heads.spec import MTP, HeadDimensions, HeadSpec, MlaDimensions, Wiring
from specchat.engine.model import FINAL_NORM
from specchat.errors import ModelError
from specchat.forward.llama.moe import SIGMOID, SOFTMAX, Routing
from specchat.forward.llama.rope import Rope
from specchat.weights.fp8_checkpoints import SCALE_INV_SUFFIX, Fp8TensorFiles, block_shape_from_config
from specchat.weights.tensor_files import TensorFiles

ATTENTION_PREFIX = "layers.0.self_attn"
INTERLEAVED_FAMILIES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2")  # few configs have the key
MLP_PREFIX = "layers.0.mlp"
STACKED_EXPERTS = (f"{MLP_PREFIX}.experts.gate_up_proj", f"{MLP_PREFIX}.experts.down_proj")
MLP_TENSORS = tuple(f"{part}_proj.weight" for part in ("gate", "up", "down"))
LAYER_NAMES = {
    part: f"layers.0.{part}" for part in ("self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm.")
}

MIMO_NAMES = LAYER_NAMES | {
    "token_layernorm.": "embedding_norm.", "hidden_layernorm.": "feature_norm.",
    "input_proj.": "join.", "final_layernorm.": "norm.",
}  # fmt: skip


@dataclass(frozen=True)
class _NamingScheme:
    format: str
    key_pattern: str  # of the tensor that identifies the family; the first group is the prefix of all its tensors
    names: dict[str, str]
    wiring: Wiring
    reason: str
    is_numbered: bool = False  # the layer has the number after the target's last layer


NAMING_SCHEMES = (
    _NamingScheme(
        "DeepSeek-V3 MTP",
        r"((?:model\.)?layers\.(\d+)\.)eh_proj\.weight",
        LAYER_NAMES
        | {"enorm.": "embedding_norm.", "hnorm.": "feature_norm.", "eh_proj.": "join."}
        | {"shared_head.norm.": "norm.", "shared_head.head.": "lm_head.", "embed_tokens.": "embed_tokens."},
        Wiring(feeds_back_normed=True),
        "the embedding is first in a pair",
        is_numbered=True,
    ),
    _NamingScheme(
        "Qwen3-Next MTP",
        r"((?:model\.)?mtp\.)fc\.weight",
        {"fc.": "join.", "pre_fc_norm_embedding.": "embedding_norm.", "pre_fc_norm_hidden.": "feature_norm."}
        | {"layers.": "layers.", "norm.": "norm."},
        Wiring(feeds_back_normed=True, norms_add_one=True),
        "the embedding is first in a pair; norms are stored as weight - 1",
    ),
    _NamingScheme(
        "MiMo MTP",
        r"(model\.mtp_layers\.(?:0)\.)input_proj\.weight",
        MIMO_NAMES,
        Wiring(is_feature_first=True, feeds_back_normed=True),
        "the hidden state is first in a pair",
    ),
    _NamingScheme(
        "speculators MTP",
        r"(mtp_layers\.(?:0)\.)input_proj\.weight",
        MIMO_NAMES,
        Wiring(feeds_back_normed=True),
        "the embedding is first in a pair, although the names are MiMo's",
    ),
)
OTHER_QUANT_SUFFIXES = (".weight_scale", ".weight_packed", ".qweight", ".absmax")
ZERO_CENTERED_NORM_FAMILIES = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")


def detect_mtp(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """The MTP layer of any family, alone in its folder or in the target's checkpoint."""
    for scheme in NAMING_SCHEMES:
        if match := checkpoint.first_match(scheme.key_pattern):
            number = match[2] if scheme.is_numbered else None
            return _spec(checkpoint, scheme, match[1], int(number) if number else None)
    return None


def _spec(checkpoint: HeadCheckpoint, scheme: _NamingScheme, prefix: str, number: int | None) -> HeadSpec:
    config = checkpoint.text_config
    names = {prefix + old: new for old, new in scheme.names.items()}
    tensors = _dequantized(checkpoint, checkpoint.with_canonical_names(names))
    join, vocab_size = tensors.shape("join.weight"), int(config.get("vocab_size") or 0)
    hidden_size = join[0]
    spec = HeadSpec(
        kind=MTP,
        network=EagleHead,
        format=scheme.format,
        tensors=tensors,
        evidence=(f"{prefix}*: an MTP layer; {scheme.reason}", f"pairs are projected by {list(join)}"),
        wiring=_wiring(checkpoint, scheme),
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=hidden_size,
        target_vocab_size=vocab_size,
        draft_vocab_size=vocab_size,
        context_window=int(config.get("max_position_embeddings") or 4096),
        target_layers=number or None,  # a layer saved without its target has number 0
    )
    if reason := _unsupported_reason(checkpoint, spec):
        return replace(spec, unsupported_reason=reason)
    require_tensors(
        tensors, ("embedding_norm.weight", "feature_norm.weight", "norm.weight", "layers.0.input_layernorm.weight")
    )
    rope = Rope.from_config(config)
    read_dimensions = mla_dimensions_from_tensors if is_mla(tensors) else dimensions_from_tensors
    dimensions, warnings = read_dimensions(tensors, config, hidden_size)
    attention = mla_projections(tensors) if is_mla(tensors) else ATTENTION_PROJECTIONS
    require_tensors(tensors, layer_tensor_names(dimensions.layers, is_moe(tensors), attention))
    scoring_func = scoring_func_of(checkpoint, tensors) if is_moe(tensors) else None
    spec = replace(
        spec,
        evidence=(*spec.evidence, *_layer_evidence(tensors, dimensions)),
        dimensions=dimensions,
        rope=rope,
        warnings=tuple(warnings),
        unsupported_reason=unsupported_layer_reason(config, rope),
        routing=routing_from_config(checkpoint, tensors, scoring_func) if scoring_func else None,
    )
    return _with_variants(spec, checkpoint, scheme)


def _layer_evidence(tensors: TensorFiles, dimensions: HeadDimensions) -> list[str]:
    """In what the layer differs from Llama's."""
    evidence, mla = list[str](), dimensions.mla
    if mla:
        sizes = (
            f"{mla.heads} heads over latents of size {mla.kv_lora_rank} and a rotary key of size {mla.qk_rope_head_dim}"
        )
        evidence.append(f"self_attn.kv_a_proj_with_mqa: {sizes}")
    if scales := sum(name.endswith(SCALE_INV_SUFFIX) for name in tensors.locations):
        evidence.append(f"{scales} of its matrices are stored in 8 bits with scales; they are dequantized when loaded")
    return evidence


def _with_variants(spec: HeadSpec, checkpoint: HeadCheckpoint, scheme: _NamingScheme) -> HeadSpec:
    """The head with the variants that only a self-test can tell apart."""
    variants, warnings, mla = [spec], list[str](), spec.dimensions.mla
    if mla and not is_rope_layout_known(checkpoint.text_config):
        warnings.append("the config does not say whether RoPE is interleaved or half-split")
        other = replace(spec.dimensions, mla=replace(mla, is_rope_interleaved=not mla.is_rope_interleaved))
        variants += [replace(variant, dimensions=other) for variant in variants]
    if scheme.is_numbered and checkpoint.text_config.get("mtp_hidden_states") != "post_norm":
        warnings.append("engines differ in whether the next draft step gets the output of the final norm")
        variants += [replace(variant, wiring=replace(variant.wiring, feeds_back_normed=False)) for variant in variants]
    return replace(spec, warnings=(*spec.warnings, *warnings)).with_variants(*variants[1:])


def _dequantized(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> TensorFiles:
    """The tensors, multiplied with their scales when blocks of their matrices have scales."""
    if not any(name.endswith(SCALE_INV_SUFFIX) for name in tensors.locations):
        return tensors
    config = checkpoint.config.get("quantization_config") or {}
    return Fp8TensorFiles(tensors.source, tensors.locations, block_shape_from_config(config))


def _wiring(checkpoint: HeadCheckpoint, scheme: _NamingScheme) -> Wiring:
    """Speculators stores norms as the family of the target does."""
    adds_one = checkpoint.text_config.get("model_type") in ZERO_CENTERED_NORM_FAMILIES
    return replace(scheme.wiring, norms_add_one=True) if adds_one else scheme.wiring


def _unsupported_reason(checkpoint: HeadCheckpoint, spec: HeadSpec) -> str | None:
    names = spec.tensors.locations
    if any(".self_attn.indexer." in name for name in names):
        return "sparse attention with an indexer"
    if any(name.endswith(OTHER_QUANT_SUFFIXES) for name in names):
        return "quantized weights that are not blocks of 8 bits"
    if any(name.startswith("layers.1.") for name in names):
        return "more than one MTP layer"
    if is_moe(spec.tensors) and scoring_func_of(checkpoint, spec.tensors) is None:
        return "a mixture of experts with a routing that is not verified against its family"
    return None


def is_mla(tensors: TensorFiles) -> bool:
    return any(name.startswith(f"{ATTENTION_PREFIX}.kv_a_proj") for name in tensors.locations)


def mla_projections(tensors: TensorFiles) -> list[str]:
    has_q_lora = any(name.startswith(f"{ATTENTION_PREFIX}.q_a_") for name in tensors.locations)
    queries = ["q_a_proj", "q_a_layernorm", "q_b_proj"] if has_q_lora else ["q_proj"]
    return [*queries, "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"]


def mla_dimensions_from_tensors(
    tensors: TensorFiles, config: Mapping[str, Any], hidden_size: int
) -> tuple[HeadDimensions, list[str]]:
    """The sizes of the layer, and a warning for every difference to the config."""
    require_tensors(tensors, [f"{ATTENTION_PREFIX}.{part}.weight" for part in mla_projections(tensors)])
    mla = _mla_dimensions(tensors, is_rope_interleaved=config.get("rope_interleave") is not False)
    measured = {
        "num_attention_heads": mla.heads, "q_lora_rank": mla.q_lora_rank, "kv_lora_rank": mla.kv_lora_rank,
        "qk_nope_head_dim": mla.qk_nope_head_dim, "qk_rope_head_dim": mla.qk_rope_head_dim,
        "v_head_dim": mla.v_head_dim, "hidden_size": hidden_size,
    }  # fmt: skip
    head_size, epsilon = mla.qk_nope_head_dim + mla.qk_rope_head_dim, float(config.get("rms_norm_eps", 1e-6))
    dimensions = HeadDimensions(hidden_size, mla.heads, mla.heads, head_size, 1, epsilon, mla=mla)
    return dimensions, config_mismatches(config, measured)


def is_rope_layout_known(config: Mapping[str, Any]) -> bool:
    """Whether the config or its family determines the layout of RoPE, interleaved or half-split."""
    return isinstance(config.get("rope_interleave"), bool) or config.get("model_type") in INTERLEAVED_FAMILIES


def _mla_dimensions(tensors: TensorFiles, is_rope_interleaved: bool) -> MlaDimensions:
    shapes = {part: tensors.shape(f"{ATTENTION_PREFIX}.{part}.weight") for part in mla_projections(tensors)}
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


def is_moe(tensors: TensorFiles) -> bool:
    return any(name.startswith((f"{MLP_PREFIX}.experts.", f"{MLP_PREFIX}.gate.")) for name in tensors.locations)


def scoring_func_of(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> str | None:
    """The scoring function, from the tensors that only one family has; None for a routing that is not verified."""
    if f"{MLP_PREFIX}.shared_expert_gate.weight" in tensors:
        return SOFTMAX  # Qwen
    config = checkpoint.text_config
    configured = (config.get("scoring_func", SIGMOID), config.get("topk_method", "noaux_tc"))
    has_correction = f"{MLP_PREFIX}.gate.e_score_correction_bias" in tensors
    return SIGMOID if has_correction and configured == (SIGMOID, "noaux_tc") else None  # DeepSeek-V3 and GLM


def routing_from_config(checkpoint: HeadCheckpoint, tensors: TensorFiles, scoring_func: str) -> Routing:
    """The routing of the config; ModelError when experts are missing, or when it selects more than there are."""
    config = checkpoint.text_config
    experts, is_normalized = int(config["num_experts_per_tok"]), bool(config.get("norm_topk_prob", True))
    routing = Routing(scoring_func, experts, is_topk_normalized=is_normalized)
    if scoring_func == SIGMOID:
        groups, topk, scale = (config.get(key) or 1 for key in ("n_group", "topk_group", "routed_scaling_factor"))
        routing = Routing(scoring_func, experts, int(groups), int(topk), is_normalized, float(scale))
    _check_experts(tensors, routing)
    return routing


def _check_experts(tensors: TensorFiles, routing: Routing) -> None:
    require_tensors(tensors, (f"{MLP_PREFIX}.gate.weight",))
    count = tensors.shape(f"{MLP_PREFIX}.gate.weight")[0]
    shared = "shared_expert" if routing.scoring_func == SOFTMAX else "shared_experts"
    parts = (
        f"{MLP_PREFIX}.{shared}",
        *(() if STACKED_EXPERTS[0] in tensors else (f"{MLP_PREFIX}.experts.{expert}" for expert in range(count))),
    )
    require_tensors(tensors, [f"{part}.{name}" for part in parts for name in MLP_TENSORS])
    stacks = [tensors.shape(name) for name in STACKED_EXPERTS if name in tensors]
    if len(stacks) == 1:
        require_tensors(tensors, STACKED_EXPERTS)
    found = stacks[0][0] if stacks else _count_named_experts(tensors)
    if found != count:
        raise ModelError(f"{tensors.source}: the router is for {count} experts, but there are {found}")
    selectable = count // routing.expert_groups * routing.topk_groups
    has_valid_groups = count % routing.expert_groups == 0 and 0 < routing.topk_groups <= routing.expert_groups
    if not has_valid_groups or not 0 < routing.experts_per_token <= selectable:
        selection = f"{routing.experts_per_token} of {count} experts"
        groups = f"{routing.topk_groups} of {routing.expert_groups} groups"
        raise ModelError(f"{tensors.source}: {selection} cannot be selected from {groups}")


def _count_named_experts(tensors: TensorFiles) -> int:
    pattern = re.compile(rf"{re.escape(MLP_PREFIX)}\.experts\.(\d+)\.")
    return len({match[1] for name in tensors.locations if (match := pattern.match(name))})
