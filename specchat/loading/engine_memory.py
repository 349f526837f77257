"""What an engine will hold and what its device has left, so that two engines share a machine only where both fit.

The plan counts weights, drafter, the KV cache of a full context and the workspace, as `--dry-run` shows them.
"""

from dataclasses import replace

import torch

from specchat.devices import (
    CPU,
    check_available,
    default_device,
    device_count,
    device_name,
    gpu_memory,
    has_cpu_bfloat16,
    kind_of,
)
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


def memory_of_devices(device: str) -> tuple[Device, ...]:
    """What is free on a device, and on others of its kind, now, with what a process takes, which plans count."""
    check_available(device)
    kind = kind_of(device)
    if not kind.is_gpu:
        memory = main_memory()
        return (replace(memory, free_bytes=memory.free_bytes + PYTHON_BYTES),)
    names = [device, *(f"{kind.name}:{number}" for number in range(1, device_count(kind)))]
    return tuple(Device(kind, device_name(each), _free_now(each), gpu_memory(each).total_bytes) for each in names)


def planned_bytes(profile: Profile) -> dict[str, int | None]:
    """The bytes that the models of a profile take: on the target's device, None when they are not on this disk; then on
    others where some of its layers are.

    ModelError for what does not fit even where nothing else is in memory.
    """

    def empty(device: str) -> tuple[Device, ...]:
        return tuple(replace(each, free_bytes=each.total_bytes) for each in memory_of_devices(device))

    plan = plan_that_fits(profile, compute_features(), empty)
    plan.check()
    memory = plan.memory()
    if memory is None or not all(each.is_local for each in (plan.target, *([plan.draft] if plan.draft else []))):
        return {plan.target.options.device: None}
    kind = kind_of(plan.target.options.device)
    others = {f"{kind.name}:{number}": each for number, each in enumerate(memory.other_gpu_bytes, 1)}
    elsewhere = {device: each for device, each in {**others, CPU.name: memory.main_memory_bytes}.items() if each}
    return {plan.target.options.device: memory.total_bytes, **elsewhere}


def free_bytes(device: str) -> int:
    """The bytes that a new engine may use on this device."""
    return round((1 - SPARE_SHARE) * _free_now(device))


def _free_now(device: str) -> int:
    kind, free = kind_of(device), main_memory().free_bytes
    if kind.is_gpu:
        on_gpu = gpu_memory(device).free_bytes
        free = min(free, on_gpu) if kind.shares_main_memory else on_gpu
    return free
