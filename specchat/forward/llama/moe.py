"""The MLP of a mixture of experts: a router chooses some experts for each row, and their outputs are added up.

Qwen, Mixtral and OLMoE choose the highest values of a softmax; heads of plugins may route in another way. Some have a
shared expert, which computes every row. Targets and heads run this MLP. Knows tensors; knows no family and no file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from specchat.forward.fused_ops import TorchOps
from specchat.forward.linear.expert_linear import ExpertLinear
from specchat.forward.linear.linear import Linear
from specchat.forward.llama.decoder_layer import GatedMlp
from specchat.forward.llama.variations import SILU, Activation
from specchat.forward.native.native_mixture import NativeMixture
from specchat.forward.native.native_ops import DTYPE_NAMES


@dataclass(frozen=True)
class ExpertSizes:
    experts: int
    intermediate_size: int  # of each
    shared_intermediate_size: int = 0  # of the expert for every row, where the family has one


@dataclass(frozen=True)
class ExpertSelection:
    experts: Tensor  # [N, experts_per_token]
    weights: Tensor  # float32 [N, experts_per_token]


@dataclass(frozen=True)
class Routing:
    experts_per_token: int
    is_topk_normalized: bool = True  # the weights of the selected experts add up to 1

    def select(self, scores: Tensor) -> ExpertSelection:
        """The experts of every row, by a softmax. `scores`: of all experts, float32 [N, E]"""
        weights = scores.softmax(-1)
        return self.highest(weights, weights)

    def highest(self, ranked: Tensor, weights: Tensor) -> ExpertSelection:
        """The experts that rank highest, and what they weigh. float32 [N, E] each"""
        experts = ranked.topk(self.experts_per_token, dim=-1).indices
        weights = weights.gather(-1, experts)
        if self.is_topk_normalized:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return ExpertSelection(experts, weights)


@dataclass(frozen=True)
class Router:
    """Chooses the experts of every row, from scores that are products in `dtype`."""

    linear: Linear  # -> experts
    dtype: torch.dtype
    routing: Routing

    def __call__(self, rows: Tensor) -> ExpertSelection:
        return self.routing.select(self.linear(rows.to(self.dtype)).float())


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

    @property
    def is_on_device(self) -> bool:
        """Whether passes over few rows do not wait for the choice of experts."""
        return self.gate_up_proj.stack is not None and self.down_proj.stack is not None

    @cached_property
    def native(self) -> Mapping[torch.dtype, NativeMixture]:
        """What computes the experts of all rows in one call, by the dtype of rows; none where kernels do not."""
        routing, experts = self.router.routing, (self.gate_up_proj.experts, self.down_proj.experts)
        if type(routing) is not Routing:  # another may choose in another way
            return {}
        rules = routing.experts_per_token, routing.is_topk_normalized, self.activation
        made = {dtype: NativeMixture.of(self.router.linear, *experts, *rules, dtype) for dtype in DTYPE_NAMES}
        return {dtype: mixture for dtype, mixture in made.items() if mixture is not None}

    def __call__(self, rows: Tensor, ops: TorchOps) -> Tensor:
        native = self.native.get(rows.dtype)
        output = self.sum_of_experts(rows, ops) if native is None else native(rows)
        return output if self.shared is None else output + self.shared(rows, ops)

    def sum_of_experts(self, rows: Tensor, ops: TorchOps) -> Tensor:
        """The same without the shared expert, by one call for each expert."""
        selection = self.router(rows)
        by_expert = self.gate_up_proj.sort(selection.experts)
        gate_up = self.gate_up_proj(by_expert.gather(rows), by_expert)
        inner = ops.activate_and_mul(gate_up, self.activation)
        return by_expert.weighted_sum(self.down_proj(inner, by_expert), selection.weights)
