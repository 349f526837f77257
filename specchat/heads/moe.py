"""What stands behind the attention of a head's layer: a gated network, or a mixture of them of which few are asked.

Which experts a row asks is a rule of the family: DeepSeek-V3 (arXiv 2412.19437, section 2.1.2) and GLM-4.5 take the
best sigmoids within the best groups, Qwen3-Next the best of a softmax. Both bring an expert that every row asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from specchat.forward.linear import Linear, float_linear
from specchat.heads.spec import SIGMOID, Routing
from specchat.models.tensor_files import WeightLoader


@dataclass(frozen=True)
class SwiGluMlp:
    """down(silu(gate(x)) * up(x)), the network of a Llama's layer. [N, D] -> [N, D]"""

    gate_up_proj: Linear
    down_proj: Linear

    @classmethod
    def load(cls, loader: WeightLoader, prefix: str) -> SwiGluMlp:
        """The network whose three matrices lie there."""
        return cls(loader.linear(f"{prefix}.gate_proj", f"{prefix}.up_proj"), loader.linear(f"{prefix}.down_proj"))

    def __call__(self, rows: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(rows).chunk(2, dim=-1)
        return self.down_proj(functional.silu(gate) * up)


@dataclass(frozen=True)
class ExpertSelection:
    """Which experts every row asks, and with what weight."""

    experts: Tensor  # [N, chosen]
    weights: Tensor  # [N, chosen]


class MixtureOfExperts:
    """Many small networks, of which every row asks a few, and mostly one more that all rows ask. [N, D] -> [N, D]"""

    def __init__(self, routing: Routing, loader: WeightLoader, prefix: str) -> None:
        self._routing, exact = routing, replace(loader, dtype=torch.float32)  # near scores must not become equal
        self._router = exact.tensor(f"{prefix}.gate.weight")
        self._correction = exact.optional(f"{prefix}.gate.e_score_correction_bias")
        loader.loaded_bytes += exact.loaded_bytes
        self._experts = _load_stacked_experts(loader, prefix) or [
            SwiGluMlp.load(loader, f"{prefix}.experts.{expert}") for expert in range(len(self._router))
        ]
        shared = [
            name for name in ("shared_experts", "shared_expert") if f"{prefix}.{name}.up_proj.weight" in loader.files
        ]
        self._shared = SwiGluMlp.load(loader, f"{prefix}.{shared[0]}") if shared else None
        gate = f"{prefix}.shared_expert_gate"
        self._shared_gate = loader.linear(gate) if f"{gate}.weight" in loader.files else None

    def __call__(self, rows: Tensor) -> Tensor:
        chosen = select_experts(rows.float() @ self._router.T, self._routing, self._correction)
        mixed = torch.zeros_like(rows)
        for expert in chosen.experts.unique().tolist():
            places, ranks = torch.where(chosen.experts == expert)
            share = chosen.weights[places, ranks, None].to(rows)
            mixed.index_add_(0, places, self._experts[expert](rows[places]) * share)
        if self._shared is None:
            return mixed
        shared = self._shared(rows)
        return mixed + (shared if self._shared_gate is None else shared * self._shared_gate(rows).sigmoid())


def select_experts(scores: Tensor, routing: Routing, correction: Tensor | None) -> ExpertSelection:
    """The experts that every row asks. `scores`: of all experts, float32 [N, E]

    A correction (float32 [E]) decides who is chosen and not how much the chosen are worth. Of several groups only those
    count whose two best experts are best together.
    """
    worth = scores.sigmoid() if routing.scoring_func == SIGMOID else scores.softmax(-1)
    ranked = worth if correction is None else worth + correction
    if routing.expert_groups > 1:
        groups = ranked.unflatten(-1, (routing.expert_groups, -1))
        best = groups.topk(2, dim=-1).values.sum(-1).topk(routing.topk_groups, dim=-1).indices
        is_open = torch.zeros(groups.shape[:-1], dtype=torch.bool, device=ranked.device).scatter_(-1, best, value=True)
        ranked = groups.masked_fill(~is_open[..., None], float("-inf")).flatten(-2)
    experts = ranked.topk(routing.experts_per_token, dim=-1).indices
    weights = worth.gather(-1, experts)
    if routing.is_topk_normalized:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return ExpertSelection(experts, weights * routing.routed_scaling_factor)


def _load_stacked_experts(loader: WeightLoader, prefix: str) -> list[SwiGluMlp]:
    """Experts that were saved as two stacks of matrices; none when each has names of its own."""
    gate_up, down = (loader.optional(f"{prefix}.experts.{part}_proj") for part in ("gate_up", "down"))
    if gate_up is None or down is None:
        return []
    return [SwiGluMlp(float_linear(first), float_linear(second)) for first, second in zip(gate_up, down, strict=True)]
