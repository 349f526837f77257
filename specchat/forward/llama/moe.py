"""The MLP of a mixture of experts: a router chooses some experts for each row, and their outputs are added up.

The routing depends on the family: Qwen, Mixtral and OLMoE choose the highest values of a softmax; DeepSeek-V3 (arXiv
2412.19437, section 2.1.2) and GLM-4.5 the highest sigmoids within the best groups. Some have a shared expert, which
computes every row. Targets and heads run this MLP. Knows tensors; knows no family and no file.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.forward.fused_ops import TorchOps
from specchat.forward.linear.expert_linear import ExpertLinear, RowsByExpert
from specchat.forward.linear.linear import Linear
from specchat.forward.llama.decoder_layer import GatedMlp
from specchat.forward.llama.variations import SILU, Activation

SIGMOID, SOFTMAX = "sigmoid", "softmax"


@dataclass(frozen=True)
class ExpertSizes:
    experts: int
    intermediate_size: int  # of each
    shared_intermediate_size: int = 0  # of the expert for every row, where the family has one


@dataclass(frozen=True)
class Routing:
    scoring_func: str  # SIGMOID of each score, or SOFTMAX over all
    experts_per_token: int
    expert_groups: int = 1  # of equal size
    topk_groups: int = 1  # groups whose experts can be selected
    is_topk_normalized: bool = True  # the weights of the selected experts add up to 1
    routed_scaling_factor: float = 1.0  # of these weights


@dataclass(frozen=True)
class ExpertSelection:
    experts: Tensor  # [N, experts_per_token]
    weights: Tensor  # float32 [N, experts_per_token]


@dataclass(frozen=True)
class Router:
    """Chooses the experts of every row, from scores that are products in `dtype`."""

    linear: Linear  # -> experts
    dtype: torch.dtype
    routing: Routing
    correction: Tensor | None = None  # float32 [experts]

    def __call__(self, rows: Tensor) -> ExpertSelection:
        return select_experts(self.linear(rows.to(self.dtype)).float(), self.routing, self.correction)


@dataclass(frozen=True)
class SharedExpert:
    """An MLP that computes every row; with a gate, its output is multiplied with the sigmoid of a score of the row."""

    mlp: GatedMlp
    gate: Linear | None  # -> 1

    def __call__(self, rows: Tensor, ops: TorchOps) -> Tensor:
        output = self.mlp(rows, ops)
        if self.gate is None:
            return output
        score = self.gate(rows)
        # sigmoid(x) is the first of softmax(x, 0), which torch computes row by row: the bits of its sigmoid depend on
        # the place of a number in the tensor
        return output * torch.cat((score, torch.zeros_like(score)), dim=-1).softmax(-1)[:, :1]


@dataclass(frozen=True)
class MixtureOfExperts:
    """The weighted sum of down(silu(gate(x)) * up(x)) of the experts that are chosen for a row. [N, D] -> [N, D]"""

    router: Router
    gate_up_proj: ExpertLinear
    down_proj: ExpertLinear
    shared: SharedExpert | None = None
    activation: Activation = SILU

    def __call__(self, rows: Tensor, ops: TorchOps) -> Tensor:
        selection = self.router(rows)
        by_expert = RowsByExpert.sort(selection.experts)
        gate_up = self.gate_up_proj(by_expert.gather(rows), by_expert)
        inner = ops.activate_and_mul(gate_up, self.activation)
        parts = by_expert.scatter(self.down_proj(inner, by_expert)).float() * selection.weights[:, :, None]
        output = parts[:, 0]  # in the order of its choices: a sum over a dimension may depend on the rows
        for choice in range(1, by_expert.choices):
            output = output + parts[:, choice]
        output = output.to(rows.dtype)
        return output if self.shared is None else output + self.shared(rows, ops)


def select_experts(scores: Tensor, routing: Routing, correction: Tensor | None) -> ExpertSelection:
    """The experts of every row. `scores`: of all experts, float32 [N, E]

    The correction (float32 [E]) changes which experts are selected, but not their weights. With groups, only the groups
    with the highest sum of their two best experts count.
    """
    weights = scores.sigmoid() if routing.scoring_func == SIGMOID else scores.softmax(-1)
    ranked = weights if correction is None else weights + correction
    if routing.expert_groups > 1:
        groups = ranked.unflatten(-1, (routing.expert_groups, -1))
        best = groups.topk(2, dim=-1).values.sum(-1).topk(routing.topk_groups, dim=-1).indices
        is_open = torch.zeros(groups.shape[:-1], dtype=torch.bool, device=ranked.device).scatter_(-1, best, value=True)
        ranked = groups.masked_fill(~is_open[..., None], float("-inf")).flatten(-2)
    experts = ranked.topk(routing.experts_per_token, dim=-1).indices
    weights = weights.gather(-1, experts)
    if routing.is_topk_normalized:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return ExpertSelection(experts, weights * routing.routed_scaling_factor)
