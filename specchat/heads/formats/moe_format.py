"""By which rule a head's mixture of experts is asked, and whether all of its experts are there."""

from __future__ import annotations

import re

from specchat.errors import ModelError
from specchat.heads.formats.checkpoint_files import Found, missing
from specchat.heads.spec import SIGMOID, SOFTMAX, Routing
from specchat.models.tensor_files import TensorFiles

AT = "layers.0.mlp"
STACKS = (f"{AT}.experts.gate_up_proj", f"{AT}.experts.down_proj")
NETWORK = tuple(f"{part}_proj.weight" for part in ("gate", "up", "down"))


def is_mixture(tensors: TensorFiles) -> bool:
    """Whether the first layer has experts."""
    return any(name.startswith((f"{AT}.experts.", f"{AT}.gate.")) for name in tensors.places)


def rule_of(found: Found, tensors: TensorFiles) -> str | None:
    """The family's rule, told by the tensors that only it has; None for one that was compared with nobody's."""
    if f"{AT}.shared_expert_gate.weight" in tensors:
        return SOFTMAX  # Qwen
    config = found.text_config
    says = (config.get("scoring_func", SIGMOID), config.get("topk_method", "noaux_tc"))
    has_correction = f"{AT}.gate.e_score_correction_bias" in tensors
    return SIGMOID if has_correction and says == (SIGMOID, "noaux_tc") else None  # DeepSeek-V3 and GLM


def routing_of(found: Found, tensors: TensorFiles, rule: str) -> Routing:
    """The rule with its numbers; ModelError when experts are missing, or so many cannot be chosen."""
    config = found.text_config
    chosen, is_normed = int(config["num_experts_per_tok"]), bool(config.get("norm_topk_prob", True))
    routing = Routing(rule, chosen, is_normed=is_normed)
    if rule == SIGMOID:
        groups, is_open, scale = (config.get(key) or 1 for key in ("n_group", "topk_group", "routed_scaling_factor"))
        routing = Routing(rule, chosen, int(groups), int(is_open), is_normed, float(scale))
    _check(tensors, routing)
    return routing


def _check(tensors: TensorFiles, routing: Routing) -> None:
    """ModelError when experts are missing, or when so many cannot be chosen among those there are."""
    missing(tensors, (f"{AT}.gate.weight",))
    count = tensors.shape(f"{AT}.gate.weight")[0]
    shared = "shared_expert" if routing.rule == SOFTMAX else "shared_experts"
    parts = (f"{AT}.{shared}", *(() if STACKS[0] in tensors else (f"{AT}.experts.{expert}" for expert in range(count))))
    missing(tensors, [f"{at}.{name}" for at in parts for name in NETWORK])
    stacks = [tensors.shape(name) for name in STACKS if name in tensors]
    if len(stacks) == 1:
        missing(tensors, STACKS)
    there = stacks[0][0] if stacks else _named(tensors)
    if there != count:
        raise ModelError(f"{tensors.source}: its router chooses among {count} experts, and there are {there}")
    inside = count // routing.groups * routing.open_groups
    if count % routing.groups or not 0 < routing.open_groups <= routing.groups or not 0 < routing.chosen <= inside:
        groups = f"{routing.open_groups} of {routing.groups} groups"
        raise ModelError(f"{tensors.source}: {routing.chosen} of {count} experts cannot be chosen out of {groups}")


def _named(tensors: TensorFiles) -> int:
    """How many experts have tensors of their own."""
    pattern = re.compile(rf"{re.escape(AT)}\.experts\.(\d+)\.")
    return len({match[1] for name in tensors.places if (match := pattern.match(name))})
