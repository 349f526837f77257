"""What an engine will hold and what its device has left, so that two engines share a machine only where both fit.

The plan counts weights, drafter, the KV cache of a full context and the workspace, as `--dry-run` shows them.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from specchat.devices import check_available, default_device, device_name, gpu_memory, has_cpu_bfloat16, kind_of
from specchat.forward.native.native_build import INSTRUCTION_SETS
from specchat.hub.machine import Device, main_memory
from specchat.hub.memory_plan import PYTHON_BYTES
from specchat.loading.fitted_plan import plan_that_fits
from specchat.loading.load_plan import ComputeFeatures
from specchat.profile.keys import Profile

SPARE_SHARE = 0.1  # of the free memory, for what no plan knows


def compute_features() -> ComputeFeatures:
    has_vectors = torch.backends.cpu.get_cpu_capability() in {each.capability for each in INSTRUCTION_SETS}
    return ComputeFeatures(default_device(), has_cpu_bfloat16(), has_vectors)


def memory_of_device(device: str) -> Device:
    """What is free on a device now, with what a process takes, which plans count."""
    check_available(device)
    if not kind_of(device).is_gpu:
        memory = main_memory()
        return replace(memory, free_bytes=memory.free_bytes + PYTHON_BYTES)
    return Device(kind_of(device), device_name(device), _free_now(device), gpu_memory(device).total_bytes)


def planned_bytes(profile: Profile) -> tuple[str, int | None]:
    """The device of a profile's target, and the bytes that its models take; None when they are not on this disk.

    ModelError for what does not fit even where nothing else is in memory.
    """

    def empty(device: str) -> Device:
        memory = memory_of_device(device)
        return replace(memory, free_bytes=memory.total_bytes)

    plan = plan_that_fits(profile, compute_features(), empty)
    plan.check()
    memory = plan.memory()
    if memory is None or not all(each.is_local for each in (plan.target, *([plan.draft] if plan.draft else []))):
        return plan.target.options.device, None
    return plan.target.options.device, memory.total_bytes


def free_bytes(device: str) -> int:
    """The bytes that a new engine may use on this device."""
    return round((1 - SPARE_SHARE) * _free_now(device))


def _free_now(device: str) -> int:
    kind, free = kind_of(device), main_memory().free_bytes
    if kind.is_gpu:
        on_gpu = gpu_memory(device).free_bytes
        free = min(free, on_gpu) if kind.shares_main_memory else on_gpu
    return free
