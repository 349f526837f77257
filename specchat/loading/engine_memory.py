"""What an engine will hold and what its device has left, so that two engines share a machine only where both fit.

The plan counts weights, drafter, the KV cache of a full context and the workspace, as `--dry-run` shows them.
"""

from __future__ import annotations

import torch

from specchat.devices import check_available, default_device, gpu_memory, has_cpu_bfloat16, kind_of
from specchat.forward.native.native_build import INSTRUCTION_SETS
from specchat.hub.machine import main_memory
from specchat.loading.load_plan import ComputeFeatures, plan_load
from specchat.profile.keys import Profile

SPARE_SHARE = 0.1  # of the free memory, for what no plan knows


def compute_features() -> ComputeFeatures:
    has_vectors = torch.backends.cpu.get_cpu_capability() in {each.capability for each in INSTRUCTION_SETS}
    return ComputeFeatures(default_device(), has_cpu_bfloat16(), has_vectors)


def planned_bytes(profile: Profile) -> tuple[str, int | None]:
    """The device of a profile's target, and the bytes that its models take; None when they are not on this disk."""
    plan = plan_load(profile, compute_features())
    device = plan.target.options.device
    check_available(device)
    memory = plan.memory()
    if memory is None or not all(each.is_local for each in (plan.target, *([plan.draft] if plan.draft else []))):
        return device, None
    return device, memory.total_bytes


def free_bytes(device: str) -> int:
    """The bytes that a new engine may use on this device."""
    kind, free = kind_of(device), main_memory().free_bytes
    if kind.is_gpu:
        on_gpu = gpu_memory(device).free_bytes
        free = min(free, on_gpu) if kind.shares_main_memory else on_gpu
    return round((1 - SPARE_SHARE) * free)
