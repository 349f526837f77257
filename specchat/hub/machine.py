"""The hardware of this machine: GPUs and their free memory, main memory, CPU features, bandwidth.

GPUs are those that torch can use, which a process of its own tells: this one imports no torch. The bandwidth of main
memory is measured only on request; it takes a fraction of a second. What was measured once is kept: it is a property of
the machine, and a second measurement beside other programs would differ. That of GPUs is in their makers' data sheets.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import log2
from pathlib import Path
from time import perf_counter
from typing import Any

from specchat.devices import CPU, CUDA, KINDS, DeviceKind, may_have_gpu
from specchat.errors import last_output_line
from specchat.hub.memory_plan import GIB, usable_gpu_bytes
from specchat.own_tables import own_tables
from specchat.paths import cache_folder, read_json_object, remember
from specchat.python_child import PACKAGE_FOLDER, python_command

# Features, and the flags that show them, also those of similar features on other CPUs.
CPU_FEATURE_FLAGS = {
    "AVX2": {"avx2"}, "AVX512": {"avx512f"}, "VNNI": {"avx512_vnni", "avx_vnni", "i8mm", "asimddp"},
    "BF16": {"avx512_bf16", "bf16"}, "AMX": {"amx_bf16"},
}  # fmt: skip
COPY_BYTES_PER_THREAD = 64 * 2**20  # more than a CPU cache
COPY_REPEATS = 4
BUSY_CORES_SHARE = 0.5  # of the cores, in the last minute
PROBE_TIMEOUT_SECONDS = 60.0
SIMULATED_NAME = "a GPU with"


@dataclass(frozen=True)
class Device:
    kind: DeviceKind
    name: str
    free_bytes: int
    total_bytes: int

    @property
    def is_gpu(self) -> bool:
        return self.kind.is_gpu


@dataclass(frozen=True)
class Machine:
    """All devices, GPUs first."""

    devices: tuple[Device, ...]
    cpu_features: tuple[str, ...] = ()
    bytes_per_second: float | None = None  # memory bandwidth of the CPU; None: not measured

    @property
    def best_device(self) -> Device:
        """The GPU with the most memory, and of equal ones the one with the most free memory; or the CPU."""
        gpus = [device for device in self.devices if device.is_gpu]
        return max(gpus, key=lambda gpu: (gpu.total_bytes, gpu.free_bytes)) if gpus else self.cpu

    @property
    def cpu(self) -> Device:
        return next(device for device in self.devices if not device.is_gpu)

    def devices_of(self, name: str) -> tuple[Device, ...]:
        """Those that models on a device such as "cpu" or "cuda" are planned for, in the order of torch's numbers."""
        gpus = tuple(each for each in self.devices if each.is_gpu and each.kind.name == name)
        return (self.cpu,) if name == CPU.name else gpus or (self.best_device,)

    def device_of(self, name: str) -> Device:
        return self.devices_of(name)[0]


@dataclass(frozen=True)
class Bandwidth:
    bytes_per_second: float
    gpu: str = ""  # whose it is; "" for main memory

    def __str__(self) -> str:
        return f"{self.bytes_per_second / 1e9:.0f} GB/s{f' ({self.gpu})' * bool(self.gpu)}"


def detect_machine() -> Machine:
    return Machine((*detect_gpus(), main_memory()), cpu_features())


def simulated_gpu(gpu_gib: float) -> Device:
    """A GPU of this size with only a display on it."""
    return Device(CUDA, f"{SIMULATED_NAME} {gpu_gib:g} GB", usable_gpu_bytes(gpu_gib), int(gpu_gib * GIB))


def detect_gpus() -> tuple[Device, ...]:
    """The GPUs that torch finds; none, without asking it, where no driver is loaded."""
    return probed_gpus(probe("torch")) if may_have_gpu() else ()


def probe(package: str) -> dict[str, Any]:
    """Run a probe of `package_probes.py` by its name; returns {"error": ...} when it fails.

    In a process of its own, because a broken installation may hang, print, or end the process that imports it.
    """
    try:
        process = subprocess.run(
            python_command("specchat.hub.package_probes", package), cwd=PACKAGE_FOLDER,
            capture_output=True, text=True, timeout=PROBE_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        if process.returncode:
            return {"error": last_output_line(process.stderr, "the subprocess ended without a message")}
        return json.loads(process.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"no result after {PROBE_TIMEOUT_SECONDS:.0f} seconds"}
    except (OSError, ValueError, IndexError) as error:
        return {"error": f"its output is not readable ({type(error).__name__})"}


def probed_gpus(torch_probe: Mapping[str, Any]) -> tuple[Device, ...]:
    """The GPUs in the result of the probe "torch". One that shares main memory has what is free of both."""
    gpus = list[Device]()
    for each in torch_probe.get("gpus", ()):
        kind, free = KINDS[each["kind"]], each["free"]
        free = min(free, main_memory().free_bytes) if kind.shares_main_memory else free
        gpus.append(Device(kind, each["name"], free, each["total"]))
    return tuple(gpus)


def gpu_bandwidth(device: Device) -> Bandwidth | None:
    """The bandwidth of a GPU, or of a usual one of its size where only that is known; None for an unknown one."""
    if device.kind is not CUDA:
        return None
    tables = own_tables(__file__, "gpu_bandwidths.toml")
    bandwidths, usual = tables["bandwidths"], tables["usual"]
    if device.name.startswith(SIMULATED_NAME):
        sizes = [size for size in map(int, usual) if size * 2**30 <= device.total_bytes]
        name = usual[str(max(sizes))] if sizes else ""
    else:
        name = next((part for part in bandwidths if re.search(rf"\b{part}\b", device.name)), "")
    return Bandwidth(bandwidths[name] * 1e9, name) if name else None


def main_memory() -> Device:
    """The CPU, with the memory that is available without swapping and the total."""
    if os.name == "nt":
        return Device(CPU, cpu_name(), *_windows_memory())
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        limit, available = _cgroup_bytes()
        return Device(CPU, cpu_name(), min(sizes["MemAvailable"], available), min(sizes["MemTotal"], limit))
    except (OSError, ValueError, KeyError, IndexError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Device(CPU, cpu_name(), total // 2, total)  # assume that half is free where it is not reported


def _windows_memory() -> tuple[int, int]:
    """The available and the total bytes: numbers of MEMORYSTATUSEX, which begins with its own size."""
    import ctypes

    status = (ctypes.c_uint64 * 8)()
    status[0] = ctypes.sizeof(status)
    system: Any = getattr(ctypes, "windll")  # noqa: B009 - only Windows has it
    system.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return status[2], status[1]


def cpu_name() -> str:
    names = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith(("model name", "Model"))]
    cores = _cores()
    return f"{names[0] if names else sys.platform}, {cores} core{'s' * (cores > 1)}"


def cpu_features() -> tuple[str, ...]:
    flags = {flag for line in _cpuinfo() if line.startswith(("flags", "Features")) for flag in line.split()}
    return tuple(name for name, shown_by in CPU_FEATURE_FLAGS.items() if flags & shown_by)


def memory_bandwidth(threads: int | None = None) -> float:
    """Bytes per second that all cores read and write together while they copy; the best of COPY_REPEATS."""
    import numpy

    count = min(threads or _cores(), 16)
    pairs = [
        (numpy.ones(COPY_BYTES_PER_THREAD, numpy.uint8), numpy.zeros(COPY_BYTES_PER_THREAD, numpy.uint8))
        for _ in range(count)
    ]
    best = 0.0
    with ThreadPoolExecutor(count) as pool:
        for _ in range(COPY_REPEATS):
            started_at = perf_counter()
            list(pool.map(lambda pair: numpy.copyto(pair[1], pair[0]), pairs))
            best = max(best, 2 * COPY_BYTES_PER_THREAD * count / (perf_counter() - started_at))
    return best


def kept_bandwidth() -> float | None:
    """The bandwidth that was measured on this CPU before; None if it was not."""
    value = read_json_object(_bandwidth_file()).get(cpu_name())
    return float(value) if isinstance(value, int | float) and value > 0 else None


def is_busy() -> bool:
    """Whether other programs compute now, so that a measurement says less than the machine can."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > BUSY_CORES_SHARE * _cores()


def keep_bandwidth(bytes_per_second: float, *, is_lasting: bool = True) -> float:
    """The nearest of ..., 5, 10, 20, 40, ... GB/s, because other digits are noise; stored if it is to last."""
    rounded = 10e9 * 2.0 ** round(log2(bytes_per_second / 10e9))
    if is_lasting:
        remember(_bandwidth_file(), {cpu_name(): rounded})
    return rounded


def _bandwidth_file() -> Path:
    return cache_folder() / "bandwidth.json"


def _cgroup_bytes() -> tuple[int, int]:
    """The memory of this cgroup and what is left of it, where a container sets a limit; else sys.maxsize."""
    cgroup = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((cgroup / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):
        return sys.maxsize, sys.maxsize
    return limit, max(limit - used, 0)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpuinfo() -> Sequence[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
