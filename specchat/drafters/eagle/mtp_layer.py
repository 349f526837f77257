"""What only layers of MTP heads have: the sizes of MLA (DeepSeek), from its tensors, and the routing of experts."""

import re
from collections.abc import Mapping
from typing import Any

from specchat.drafters.heads.head_checkpoint import HeadCheckpoint, config_mismatches, require_tensors
from specchat.drafters.heads.spec import HeadDimensions, MlaDimensions
from specchat.errors import ModelError
from specchat.forward.llama.moe import SIGMOID, SOFTMAX, Routing
from specchat.weights.tensor_files import TensorFiles

ATTENTION_PREFIX = "layers.0.self_attn"
INTERLEAVED_FAMILIES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2")  # few configs have the key
MLP_PREFIX = "layers.0.mlp"
STACKED_EXPERTS = (f"{MLP_PREFIX}.experts.gate_up_proj", f"{MLP_PREFIX}.experts.down_proj")
MLP_TENSORS = tuple(f"{part}_proj.weight" for part in ("gate", "up", "down"))


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
