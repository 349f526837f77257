"""By which rule a head's mixture of experts is asked, and whether all of its experts are there."""

from __future__ import annotations

import re

from specchat.errors import ModelError
from specchat.heads.formats.head_checkpoint import HeadCheckpoint, require_tensors
from specchat.heads.spec import SIGMOID, SOFTMAX, Routing
from specchat.models.tensor_files import TensorFiles

MLP_PREFIX = "layers.0.mlp"
STACKED_EXPERTS = (f"{MLP_PREFIX}.experts.gate_up_proj", f"{MLP_PREFIX}.experts.down_proj")
MLP_TENSORS = tuple(f"{part}_proj.weight" for part in ("gate", "up", "down"))


def is_moe(tensors: TensorFiles) -> bool:
    """Whether the first layer has experts."""
    return any(name.startswith((f"{MLP_PREFIX}.experts.", f"{MLP_PREFIX}.gate.")) for name in tensors.locations)


def scoring_func_of(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> str | None:
    """The family's rule, told by the tensors that only it has; None for one that was compared with nobody's."""
    if f"{MLP_PREFIX}.shared_expert_gate.weight" in tensors:
        return SOFTMAX  # Qwen
    config = checkpoint.text_config
    says = (config.get("scoring_func", SIGMOID), config.get("topk_method", "noaux_tc"))
    has_correction = f"{MLP_PREFIX}.gate.e_score_correction_bias" in tensors
    return SIGMOID if has_correction and says == (SIGMOID, "noaux_tc") else None  # DeepSeek-V3 and GLM


def routing_from_config(checkpoint: HeadCheckpoint, tensors: TensorFiles, scoring_func: str) -> Routing:
    """The rule with its numbers; ModelError when experts are missing, or so many cannot be chosen."""
    config = checkpoint.text_config
    chosen, is_normed = int(config["num_experts_per_tok"]), bool(config.get("norm_topk_prob", True))
    routing = Routing(scoring_func, chosen, is_topk_normalized=is_normed)
    if scoring_func == SIGMOID:
        groups, is_open, scale = (config.get(key) or 1 for key in ("n_group", "topk_group", "routed_scaling_factor"))
        routing = Routing(scoring_func, chosen, int(groups), int(is_open), is_normed, float(scale))
    _check_experts(tensors, routing)
    return routing


def _check_experts(tensors: TensorFiles, routing: Routing) -> None:
    """ModelError when experts are missing, or when so many cannot be chosen among those there are."""
    require_tensors(tensors, (f"{MLP_PREFIX}.gate.weight",))
    count = tensors.shape(f"{MLP_PREFIX}.gate.weight")[0]
    shared = "shared_expert" if routing.scoring_func == SOFTMAX else "shared_experts"
    parts = (
        f"{MLP_PREFIX}.{shared}",
        *(() if STACKED_EXPERTS[0] in tensors else (f"{MLP_PREFIX}.experts.{expert}" for expert in range(count))),
    )
    require_tensors(tensors, [f"{at}.{name}" for at in parts for name in MLP_TENSORS])
    stacks = [tensors.shape(name) for name in STACKED_EXPERTS if name in tensors]
    if len(stacks) == 1:
        require_tensors(tensors, STACKED_EXPERTS)
    there = stacks[0][0] if stacks else _count_named_experts(tensors)
    if there != count:
        raise ModelError(f"{tensors.source}: its router chooses among {count} experts, and there are {there}")
    inside = count // routing.expert_groups * routing.topk_groups
    if (
        count % routing.expert_groups
        or not 0 < routing.topk_groups <= routing.expert_groups
        or not 0 < routing.experts_per_token <= inside
    ):
        groups = f"{routing.topk_groups} of {routing.expert_groups} groups"
        raise ModelError(
            f"{tensors.source}: {routing.experts_per_token} of {count} experts cannot be chosen out of {groups}"
        )


def _count_named_experts(tensors: TensorFiles) -> int:
    """How many experts have tensors of their own."""
    pattern = re.compile(rf"{re.escape(MLP_PREFIX)}\.experts\.(\d+)\.")
    return len({match[1] for name in tensors.locations if (match := pattern.match(name))})
