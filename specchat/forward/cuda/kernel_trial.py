"""Whether our Triton kernels can be used here: they are tried at their first use, and the log says once why not.

Not every torch for CUDA comes with Triton, and no kernel is trusted before it has computed what torch computes.
Where Triton uses no tensor cores, a kernel that is right may be slower than torch, so there it is timed as well.
"""

import json
import logging
from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from typing import Any

import torch

from specchat.devices import device_name, kind_of, missing_triton, synchronize
from specchat.errors import first_line
from specchat.paths import remember, remembered_file

TENSOR_CORES = (8, 0)  # the first compute capability for whose tensor cores Triton compiles
TIMED_CALLS, TIMED_REPLAYS = 20, 5

Capture = Callable[[Callable[[], None]], Callable[[], None]]  # prepares a function, and returns its replay

log = logging.getLogger(__name__)


def triton_module(name: str, device: torch.device) -> Any:
    """A module of this package with kernels; None where the device has none, or the user has turned kernels off."""
    if not kind_of(device).has_kernels or missing_triton():
        return None
    try:
        import_module("triton")  # the module below may be loaded already
        return import_module(f"specchat.forward.cuda.{name}")
    except ImportError:
        return None


def passes(check: Callable[[], bool], kernels: str, fault: str = "give other results") -> bool:
    """Whether kernels pass a check. Where they do not, or none can be compiled, torch computes everything."""
    try:
        is_right = check()
    except Exception as error:  # noqa: BLE001 - the compiler of kernels, its assembler and the driver raise anything
        reason = first_line(error)
        log.warning("the %s cannot be used here (%s); torch computes instead, which is slower", kernels, reason)
        return False
    if not is_right:
        log.warning(
            "the %s %s here with Triton %s, and are not used", kernels, fault, import_module("triton").__version__
        )
    return is_right


def is_faster(
    ours: Callable[[], object], of_torch: Callable[[], object], capture: Capture, device: torch.device, sizes: object
) -> bool:
    """Whether a call takes less time than one of torch, both in a CUDA graph.

    Measured once for these sizes on a kind of GPU with these versions of torch and Triton.
    """
    versions = torch.__version__, import_module("triton").__version__
    path = remembered_file("kernels", (device_name(device), versions, repr(sizes)))
    try:
        seconds: list[float] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        seconds = [_seconds_of(call, capture, device) for call in (ours, of_torch)]
        remember(path, seconds)
    if seconds[0] >= seconds[1]:
        log.warning("the Triton kernels are slower than torch here (%.1e and %.1e s), and are not used", *seconds)
    return seconds[0] < seconds[1]


def _seconds_of(call: Callable[[], object], capture: Capture, device: torch.device) -> float:
    def run() -> None:
        for _ in range(TIMED_CALLS):
            call()

    replay, seconds = capture(run), list[float]()
    for _ in range(TIMED_REPLAYS):
        synchronize(device)
        started_at = perf_counter()
        replay()
        synchronize(device)
        seconds.append(perf_counter() - started_at)
    return min(seconds) / TIMED_CALLS
