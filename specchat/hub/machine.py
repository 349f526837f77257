"""What this machine can compute with, found without torch: cards and their free memory, main memory, the CPU's skills.

Free memory decides, not total: screens and other programs hold the rest. Measuring the bandwidth of main memory takes
a fraction of a second and is never done unasked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from specchat.hub.memory_plan import GIB, usable_gpu_bytes

GPU, CPU = "cuda", "cpu"
CPU_FEATURE_FLAGS = {
    "AVX2": "avx2",
    "AVX512": "avx512f",
    "VNNI": "avx512_vnni",
    "BF16": "avx512_bf16",
    "AMX": "amx_bf16",
}
CPU_FEATURE_ALIASES = {
    "avx_vnni": "VNNI",
    "bf16": "BF16",
    "i8mm": "VNNI",
    "asimddp": "VNNI",
}  # what other CPUs call them
COPY_BYTES_PER_THREAD = 64 * 2**20  # by each thread and turn: more than a cache holds
COPY_REPEATS = 4
NVIDIA_SMI_COMMAND = ("nvidia-smi", "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader,nounits")
NVIDIA_SMI_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Device:
    """Something that computes, and the memory that it reads from."""

    kind: str  # CARD or CPU
    name: str
    free_bytes: int  # bytes
    total_bytes: int

    @property
    def is_gpu(self) -> bool:
        """Whether it has memory of its own."""
        return self.kind == GPU


@dataclass(frozen=True)
class Machine:
    """All of it, the cards first."""

    devices: tuple[Device, ...]
    cpu_features: tuple[str, ...] = ()
    bytes_per_second: float | None = None  # of main memory; None: not measured

    @property
    def best_device(self) -> Device:
        """The card with the most free memory, or the CPU."""
        cards = [device for device in self.devices if device.is_gpu]
        return max(cards, key=lambda card: card.free_bytes) if cards else self.cpu

    @property
    def cpu(self) -> Device:
        """Main memory and who reads it."""
        return next(device for device in self.devices if device.kind == CPU)


def detect_machine(*, measures_bandwidth: bool = False) -> Machine:
    """What is found here now."""
    return Machine((*detect_gpus(), main_memory()), cpu_features(), memory_bandwidth() if measures_bandwidth else None)


def simulated_gpu(gpu_gib: float) -> Device:
    """A card of this size with nothing else on it but a screen."""
    return Device(GPU, f"a card of {gpu_gib:g} GB", usable_gpu_bytes(gpu_gib), int(gpu_gib * GIB))


def detect_gpus() -> tuple[Device, ...]:
    """CUDA devices, as their driver's own tool lists them; none where it is missing or silent."""
    try:
        ran = subprocess.run(
            NVIDIA_SMI_COMMAND, capture_output=True, text=True, check=True, timeout=NVIDIA_SMI_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse_nvidia_smi(ran.stdout)


def parse_nvidia_smi(table: str) -> tuple[Device, ...]:
    """Lines like "NVIDIA H200, 142000, 143771", in MiB; a line that says something else is left out."""
    found = list[Device]()
    for line in table.splitlines():
        name, _, memory = line.partition(",")
        free, _, total = memory.partition(",")
        if free.strip().isdigit() and total.strip().isdigit():
            found.append(Device(GPU, name.strip(), int(free) * 2**20, int(total) * 2**20))
    return tuple(found)


def main_memory() -> Device:
    """What programs could still take without swapping, and all there is."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return Device(CPU, cpu_name(), min(sizes["MemAvailable"], _cgroup_available_bytes()), sizes["MemTotal"])
    except (OSError, ValueError, KeyError, IndexError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Device(CPU, cpu_name(), total // 2, total)  # a guess where nobody says what is free


def cpu_name() -> str:
    """What the CPU calls itself."""
    lines = _cpuinfo()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    cores = _cores()
    return f"{named[0] if named else sys.platform}, {cores} core{'s' * (cores > 1)}"


def cpu_features() -> tuple[str, ...]:
    """The names of `SKILLS` that this CPU has."""
    flags = {flag for line in _cpuinfo() if line.startswith(("flags", "Features")) for flag in line.split()}
    also = {CPU_FEATURE_ALIASES[flag] for flag in flags & CPU_FEATURE_ALIASES.keys()}
    return tuple(name for name, flag in CPU_FEATURE_FLAGS.items() if flag in flags or name in also)


def memory_bandwidth(threads: int | None = None) -> float:
    """Bytes a second that all cores read and write together while they copy; the best of a few turns."""
    import numpy

    count = min(threads or _cores(), 16)
    pairs = [
        (numpy.ones(COPY_BYTES_PER_THREAD, numpy.uint8), numpy.zeros(COPY_BYTES_PER_THREAD, numpy.uint8))
        for _ in range(count)
    ]
    best = 0.0
    with ThreadPoolExecutor(count) as pool:
        for _ in range(COPY_REPEATS):
            begun = perf_counter()
            list(pool.map(lambda pair: numpy.copyto(pair[1], pair[0]), pairs))
            best = max(best, 2 * COPY_BYTES_PER_THREAD * count / (perf_counter() - begun))
    return best


def _cgroup_available_bytes() -> int:
    """What the group of this process may take, where a container sets a limit; else more than any machine has."""
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):
        return sys.maxsize
    return max(limit - used, 0)


def _cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpuinfo() -> Sequence[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
