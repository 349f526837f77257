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

from specchat.hub.memory_plan import GIB, usable

CARD, CPU = "cuda", "cpu"
SKILLS = {"AVX2": "avx2", "AVX512": "avx512f", "VNNI": "avx512_vnni", "BF16": "avx512_bf16", "AMX": "amx_bf16"}
ALSO = {"avx_vnni": "VNNI", "bf16": "BF16", "i8mm": "VNNI", "asimddp": "VNNI"}  # what other CPUs call them
COPIED_BYTES = 64 * 2**20  # by each thread and turn: more than a cache holds
TURNS = 4
SMI = ("nvidia-smi", "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader,nounits")
SMI_SECONDS = 5.0


@dataclass(frozen=True)
class Device:
    """Something that computes, and the memory that it reads from."""

    kind: str  # CARD or CPU
    name: str
    free: int  # bytes
    total: int

    @property
    def is_card(self) -> bool:
        """Whether it has memory of its own."""
        return self.kind == CARD


@dataclass(frozen=True)
class Machine:
    """All of it, the cards first."""

    devices: tuple[Device, ...]
    skills: tuple[str, ...] = ()
    bytes_per_second: float | None = None  # of main memory; None: not measured

    @property
    def best(self) -> Device:
        """The card with the most free memory, or the CPU."""
        cards = [device for device in self.devices if device.is_card]
        return max(cards, key=lambda card: card.free) if cards else self.cpu

    @property
    def cpu(self) -> Device:
        """Main memory and who reads it."""
        return next(device for device in self.devices if device.kind == CPU)


def this_machine(*, is_measured: bool = False) -> Machine:
    """What is found here now."""
    return Machine((*cards(), main_memory()), skills(), memory_bandwidth() if is_measured else None)


def simulated(card_gib: float) -> Device:
    """A card of this size with nothing else on it but a screen."""
    return Device(CARD, f"a card of {card_gib:g} GB", usable(card_gib), int(card_gib * GIB))


def cards() -> tuple[Device, ...]:
    """CUDA devices, as their driver's own tool lists them; none where it is missing or silent."""
    try:
        ran = subprocess.run(SMI, capture_output=True, text=True, check=True, timeout=SMI_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ()
    return parsed_cards(ran.stdout)


def parsed_cards(table: str) -> tuple[Device, ...]:
    """Lines like "NVIDIA H200, 142000, 143771", in MiB; a line that says something else is left out."""
    found = list[Device]()
    for line in table.splitlines():
        name, _, memory = line.partition(",")
        free, _, total = memory.partition(",")
        if free.strip().isdigit() and total.strip().isdigit():
            found.append(Device(CARD, name.strip(), int(free) * 2**20, int(total) * 2**20))
    return tuple(found)


def main_memory() -> Device:
    """What programs could still take without swapping, and all there is."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return Device(CPU, cpu_name(), min(sizes["MemAvailable"], _allowed()), sizes["MemTotal"])
    except (OSError, ValueError, KeyError, IndexError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Device(CPU, cpu_name(), total // 2, total)  # a guess where nobody says what is free


def cpu_name() -> str:
    """What the CPU calls itself."""
    lines = _cpuinfo()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    cores = _cores()
    return f"{named[0] if named else sys.platform}, {cores} core{'s' * (cores > 1)}"


def skills() -> tuple[str, ...]:
    """The names of `SKILLS` that this CPU has."""
    flags = {flag for line in _cpuinfo() if line.startswith(("flags", "Features")) for flag in line.split()}
    also = {ALSO[flag] for flag in flags & ALSO.keys()}
    return tuple(name for name, flag in SKILLS.items() if flag in flags or name in also)


def memory_bandwidth(threads: int | None = None) -> float:
    """Bytes a second that all cores read and write together while they copy; the best of a few turns."""
    import numpy

    count = min(threads or _cores(), 16)
    pairs = [(numpy.ones(COPIED_BYTES, numpy.uint8), numpy.zeros(COPIED_BYTES, numpy.uint8)) for _ in range(count)]
    best = 0.0
    with ThreadPoolExecutor(count) as pool:
        for _ in range(TURNS):
            begun = perf_counter()
            list(pool.map(lambda pair: numpy.copyto(pair[1], pair[0]), pairs))
            best = max(best, 2 * COPIED_BYTES * count / (perf_counter() - begun))
    return best


def _allowed() -> int:
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
