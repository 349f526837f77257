"""What the machine says of its GPU, and what a copy, a launch and a wait cost on it."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from torch import Tensor

from specchat import __version__
from specchat.bench.gpu.gpu_bench import GpuBench
from specchat.bench.gpu.report import NAME, Line, attempt
from specchat.devices import CUDA, compute_capability, device_name, gpu_memory, multiprocessors, platform_of

PACKAGES = ("torch", "triton", "triton-windows", "bitsandbytes", "transformers", "tokenizers", "gguf", "llguidance")
CLOCKS = (
    "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem", "power.draw", "power.limit",
    "temperature.gpu", "pstate",
)  # fmt: skip
FLOOR_NODES = 200


def device_lines(bench: GpuBench) -> Iterator[Line]:
    for name, value in _facts(bench):
        yield {NAME: name, "value": value}
    yield attempt("clocks and power", lambda: {"value": _nvidia_smi()})


def _facts(bench: GpuBench) -> Iterator[tuple[str, str]]:
    yield "GPU", device_name(bench.device)
    yield "timed", "by events of the device" if bench.has_clock else "no: simulated, or without events; sizes are small"
    yield "specchat", f"{__version__} with Python {platform.python_version()} on {platform.platform()}"
    yield "torch computes with", platform_of(CUDA) or "no build for this GPU"
    yield "compute capability", ".".join(map(str, compute_capability(bench.device)))
    memory = gpu_memory(bench.device)
    yield "memory", f"{memory.free_bytes / 2**30:.1f} GiB free of {memory.total_bytes / 2**30:.1f}"
    if bench.has_clock:
        yield "multiprocessors, L2", f"{multiprocessors(bench.device)}, {bench.cache_bytes / 2**20:.0f} MiB"
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"


def _nvidia_smi() -> str:
    """Names and values, as the driver reports them."""
    command = ["nvidia-smi", f"--query-gpu={','.join(CLOCKS)}", "--format=csv,noheader"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()[0]
    return ", ".join(f"{name} {value.strip()}" for name, value in zip(CLOCKS, printed.split(","), strict=True))


def floor_lines(bench: GpuBench) -> Iterator[Line]:
    """What no kernel can undercut."""
    yield attempt("copy, read and written", lambda: {"GB/s": _gigabytes(bench.bytes_per_second)})
    yield attempt("a graph of one kernel, replayed and waited for", lambda: {"us": _wait_microseconds(bench)})
    yield attempt(f"a kernel among {FLOOR_NODES} in a graph", lambda: {"us": _node_microseconds(bench)})
    yield attempt("the same kernels launched one by one", lambda: {"us": _launch_microseconds(bench)})


def _gigabytes(bytes_per_second: float | None) -> float | None:
    return None if bytes_per_second is None else bytes_per_second / 1e9


def _wait_microseconds(bench: GpuBench) -> float | None:
    number = bench.noise(1)
    replay = bench.capture(lambda: _add(number))
    replay()
    return 1e6 * bench.host_seconds(replay, rounds=51) if bench.has_clock else None


def _node_microseconds(bench: GpuBench) -> float | None:
    number = bench.noise(1)
    if not bench.has_clock:
        return None
    return 1e6 * bench.replay_seconds([lambda: _add(number)] * FLOOR_NODES) / FLOOR_NODES


def _launch_microseconds(bench: GpuBench) -> float | None:
    number = bench.noise(1)
    if not bench.has_clock:
        return None
    return 1e6 * bench.host_seconds(lambda: [_add(number) for _ in range(FLOOR_NODES)]) / FLOOR_NODES


def _add(number: Tensor) -> None:
    number.add_(1)
