"""The mixture of experts of a head's layer.

The routing depends on the family: DeepSeek-V3 (arXiv 2412.19437, section 2.1.2) and GLM-4.5 choose the highest sigmoids
within the best groups, Qwen3-Next the highest values of a softmax. Both have a shared expert for every row.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specchat.forward.decoder_layer import SwiGluMlp
from specchat.forward.fused_ops import TorchOps
from specchat.forward.linear import float_linear
from specchat.heads.spec import SIGMOID, Routing
from specchat.models.tensor_files import WeightLoader


@dataclass(frozen=True)
class ExpertSelection:
    experts: Tensor  # [N, experts_per_token]
    weights: Tensor  # [N, experts_per_token]


class MixtureOfExperts:
    """A router, its experts, and in most families a shared expert. [N, D] -> [N, D]"""

    def __init__(self, routing: Routing, loader: WeightLoader, prefix: str) -> None:
        self._routing, exact = routing, replace(loader, dtype=torch.float32)  # lower precision would create ties
        self._router = exact.tensor(f"{prefix}.gate.weight")
        self._correction = exact.optional(f"{prefix}.gate.e_score_correction_bias")
        loader.loaded_bytes += exact.loaded_bytes
        self._experts = _load_stacked_experts(loader, prefix) or [
            SwiGluMlp.load(loader.linear, f"{prefix}.experts.{expert}") for expert in range(len(self._router))
        ]
        shared = [
            name for name in ("shared_experts", "shared_expert") if f"{prefix}.{name}.up_proj.weight" in loader.files
        ]
        self._shared = SwiGluMlp.load(loader.linear, f"{prefix}.{shared[0]}") if shared else None
        gate = f"{prefix}.shared_expert_gate"
        self._shared_gate = loader.linear(gate) if f"{gate}.weight" in loader.files else None

    def __call__(self, rows: Tensor, ops: TorchOps) -> Tensor:
        selection = select_experts(rows.float() @ self._router.T, self._routing, self._correction)
        output = torch.zeros_like(rows)
        for expert in selection.experts.unique().tolist():
            row_indices, ranks = torch.where(selection.experts == expert)
            weights = selection.weights[row_indices, ranks, None].to(rows)
            output.index_add_(0, row_indices, self._experts[expert](rows[row_indices], ops) * weights)
        if self._shared is None:
            return output
        shared = self._shared(rows, ops)
        return output + (shared if self._shared_gate is None else shared * self._shared_gate(rows).sigmoid())


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


def _load_stacked_experts(loader: WeightLoader, prefix: str) -> list[SwiGluMlp]:
    """Experts that are stored as two stacks of matrices; none when each expert has its own tensors."""
    gate_up, down = (loader.optional(f"{prefix}.experts.{part}_proj") for part in ("gate_up", "down"))
    if gate_up is None or down is None:
        return []
    return [SwiGluMlp(float_linear(first), float_linear(second)) for first, second in zip(gate_up, down, strict=True)]
