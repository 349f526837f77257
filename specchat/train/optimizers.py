"""How weights move: Muon for the matrices inside, AdamW for the rest, and one schedule for all.

Muon turns every direction of a matrix alike. That is quick for matrices that start at random and fatal for those
that start with a meaning, so these (the gentle ones) are left to AdamW at a low rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Pace:
    """Learning rates and the shape of the schedule, in fractions of a stage."""

    matrices: float = 0.02
    others: float = 2e-3
    gentle: float = 3e-4
    warmup: float = 0.02
    decay: float = 0.6
    floor: float = 0.0
    clip: float = 1.0

    def at(self, progress: float) -> float:
        """The share of the full rate when this much (0 to 1) of the stage is done."""
        if progress < self.warmup:
            return max(progress, 1e-3) / self.warmup
        if progress > 1.0 - self.decay:
            return self.floor + (1.0 - self.floor) * max(0.0, 1.0 - progress) / self.decay
        return 1.0


class Optimiser:
    """Two optimisers that step together; `is_gentle` names the weights that AdamW moves at the low rate."""

    def __init__(self, module: nn.Module, pace: Pace, is_gentle: Callable[[str], bool] = lambda _name: False) -> None:
        self.pace = pace
        named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
        self.parameters = [parameter for _, parameter in named]
        matrices = [p for name, p in named if is_inner_matrix(name, p) and not is_gentle(name)]
        others = [p for name, p in named if not is_inner_matrix(name, p) and p.ndim > 1]
        slow = [p for name, p in named if p.ndim == 1 or (is_inner_matrix(name, p) and is_gentle(name))]
        self.parts: list[torch.optim.Optimizer] = []
        if matrices:
            self.parts.append(torch.optim.Muon(matrices, lr=pace.matrices, weight_decay=0.0, momentum=0.95))
        groups = [{"params": others, "lr": pace.others}, {"params": slow, "lr": pace.gentle}]
        groups = [group for group in groups if group["params"]]
        if groups:
            self.parts.append(torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-10, weight_decay=0.0, fused=True))
        self.full_rates = [[group["lr"] for group in part.param_groups] for part in self.parts]

    def step(self, progress: float) -> float:
        """Move the weights and forget the gradients; the answer is the gradient's norm."""
        norm = float(nn.utils.clip_grad_norm_(self.parameters, self.pace.clip))
        for part, rates in zip(self.parts, self.full_rates, strict=True):
            for group, rate in zip(part.param_groups, rates, strict=True):
                group["lr"] = rate * self.pace.at(progress)
            part.step()
            part.zero_grad(set_to_none=True)
        return norm

    def state(self) -> list[dict[str, object]]:
        return [part.state_dict() for part in self.parts]

    def restore(self, state: list[dict[str, object]]) -> None:
        for part, saved in zip(self.parts, state, strict=True):
            part.load_state_dict(saved)


def is_inner_matrix(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim == 2 and "embed_tokens" not in name and "lm_head" not in name
