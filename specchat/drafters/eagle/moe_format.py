"""The routing of a head's mixture of experts, and whether all of its experts exist."""

import re

from specchat.drafters.heads.head_checkpoint import HeadCheckpoint, require_tensors
from specchat.errors import ModelError
from specchat.forward.moe import SIGMOID, SOFTMAX, Routing
from specchat.weights.tensor_files import TensorFiles

MLP_PREFIX = "layers.0.mlp"
STACKED_EXPERTS = (f"{MLP_PREFIX}.experts.gate_up_proj", f"{MLP_PREFIX}.experts.down_proj")
MLP_TENSORS = tuple(f"{part}_proj.weight" for part in ("gate", "up", "down"))


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
