"""Muon for hidden matrices, AdamW for other weights, and one learning rate schedule.

Muon orthogonalizes updates. That is fast for randomly initialized matrices, and destroys matrices with a designed
initialization; AdamW trains those at a low rate (`uses_slow_lr`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class LearningRateSchedule:
    muon_lr: float = 0.02
    adamw_lr: float = 2e-3
    slow_lr: float = 3e-4
    warmup_fraction: float = 0.02
    decay_fraction: float = 0.6
    final_lr_factor: float = 0.0
    max_grad_norm: float = 1.0

    def lr_factor(self, progress: float) -> float:
        if progress < self.warmup_fraction:
            return max(progress, 1e-3) / self.warmup_fraction
        if progress > 1.0 - self.decay_fraction:
            return self.final_lr_factor + (1.0 - self.final_lr_factor) * max(0.0, 1.0 - progress) / self.decay_fraction
        return 1.0


class MuonAdamW:
    """Muon and AdamW as one optimizer; AdamW trains matrices for which `uses_slow_lr(name)` at the low rate."""

    def __init__(
        self,
        module: nn.Module,
        schedule: LearningRateSchedule,
        uses_slow_lr: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        self.schedule = schedule
        named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
        self.parameters = [parameter for _, parameter in named]
        matrices = [p for name, p in named if is_hidden_matrix(name, p) and not uses_slow_lr(name)]
        others = [p for name, p in named if not is_hidden_matrix(name, p) and p.ndim > 1]
        slow = [p for name, p in named if p.ndim == 1 or (is_hidden_matrix(name, p) and uses_slow_lr(name))]
        self.optimizers: list[torch.optim.Optimizer] = []
        if matrices:
            self.optimizers.append(torch.optim.Muon(matrices, lr=schedule.muon_lr, weight_decay=0.0, momentum=0.95))
        groups = [{"params": others, "lr": schedule.adamw_lr}, {"params": slow, "lr": schedule.slow_lr}]
        groups = [group for group in groups if group["params"]]
        if groups:
            self.optimizers.append(
                torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-10, weight_decay=0.0, fused=True)
            )
        self.base_lrs = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]

    def step(self, progress: float) -> float:
        """Update the weights and clear the gradients; returns the norm of the gradient."""
        norm = float(nn.utils.clip_grad_norm_(self.parameters, self.schedule.max_grad_norm))
        for optimizer, rates in zip(self.optimizers, self.base_lrs, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * self.schedule.lr_factor(progress)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return norm

    def state_dicts(self) -> list[dict[str, object]]:
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def load_state_dicts(self, state: list[dict[str, object]]) -> None:
        for optimizer, saved in zip(self.optimizers, state, strict=True):
            optimizer.load_state_dict(saved)


def is_hidden_matrix(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim == 2 and "embed_tokens" not in name and "lm_head" not in name
