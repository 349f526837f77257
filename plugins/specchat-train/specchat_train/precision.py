"""The precision of a training step: bfloat16 where the device multiplies it, else float32, which is faster there."""

from __future__ import annotations

import torch

from specchat.devices import has_cpu_bfloat16, kind_of


def training_dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if kind_of(device).is_gpu or has_cpu_bfloat16() else torch.float32


def autocast(device: torch.device) -> torch.autocast:
    """Matmuls in `training_dtype`; the weights stay in float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=training_dtype(device) == torch.bfloat16)
