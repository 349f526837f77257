"""What differs between the kinds of devices, and all questions to torch about one. One entry in KINDS for each kind.

The rest of specchat asks an entry what it can do, and compares names only where code is for CPUs. torch calls AMD GPUs
"cuda", too. Names, memory and events come from torch, and no function here knows a model. Importing this file imports
no torch.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specchat.errors import ModelError

if TYPE_CHECKING:
    import torch

KERNELS_VARIABLE, NO_KERNELS = "SPECCHAT_KERNELS", "none"  # of the environment: turns all kernels of our own off
FLOAT_FORMAT, GGUF_FORMAT = "float", "gguf"
WEIGHT_FORMATS = (FLOAT_FORMAT, GGUF_FORMAT, "int8", "fp8", "nf4", "nf4-double")  # of linear layers
INT8_KV = "int8"
KV_CACHE_FORMATS = (FLOAT_FORMAT, INT8_KV)  # of keys and values of the target
DRIVER_FILES = {
    "NVIDIA": ("/dev/nvidiactl", "/dev/dxg", "$SYSTEMROOT/System32/nvcuda.dll"),
    "AMD": ("/dev/kfd", *(f"$SYSTEMROOT/System32/amdhip64{each}.dll" for each in ("", "_6", "_7"))),
    "Intel": ("/sys/module/xe",),  # others than these use a driver that may drive a display alone
}
INTEL_DRIVER_FILES = ("/dev/dri", "renderD*")  # every GPU of a display has one
NEVER_TRIED = "nothing of it was ever tried on a real one"


@dataclass(frozen=True)
class DeviceKind:
    """What specchat uses on a kind of device."""

    name: str  # as torch and `--device` call it
    title: str
    has_graphs: bool = False  # passes are captured as CUDA graphs, over a KV arena
    has_kernels: bool = False  # fused ops, and products with 4-bit weights and blocks, in Triton
    has_bitsandbytes: bool = False  # its 4-bit and int8 products
    shares_main_memory: bool = False
    weight_formats: tuple[str, ...] = (FLOAT_FORMAT, GGUF_FORMAT, "int8")  # torch alone computes these
    prefill_chunk: int = 512  # tokens
    collective_backend: str = "gloo"  # of torch.distributed
    tried: str = f"eager passes by torch; {NEVER_TRIED}"

    @property
    def is_gpu(self) -> bool:
        return self.name != "cpu"

    def check_format(self, quant_format: str) -> None:
        """ModelError when weights of this format cannot be computed here."""
        if quant_format not in self.weight_formats:
            formats = " or ".join(self.weight_formats)
            raise ModelError(f"device {self.name} has no kernel for {quant_format} weights; use --weights {formats}")


CPU = DeviceKind(
    "cpu", "CPU", has_bitsandbytes=True, shares_main_memory=True, weight_formats=WEIGHT_FORMATS, prefill_chunk=128,
    tried="tried on x86-64 with Linux",
)  # fmt: skip
CUDA = DeviceKind(
    "cuda", "GPU of NVIDIA or AMD", has_graphs=True, has_kernels=True, has_bitsandbytes=True,
    weight_formats=WEIGHT_FORMATS, collective_backend="nccl",
    tried="tried on an NVIDIA H200 alone, with Linux",
)  # fmt: skip
MPS = DeviceKind("mps", "Apple GPU", shares_main_memory=True)
XPU = DeviceKind("xpu", "Intel GPU")
KINDS: Mapping[str, DeviceKind] = {each.name: each for each in (CPU, CUDA, MPS, XPU)}
GPU_KINDS = tuple(each for each in KINDS.values() if each.is_gpu)


@dataclass(frozen=True)
class DeviceMemory:
    """`free_bytes`: what a new program may use; torch's cache of this process counts as free."""

    free_bytes: int
    total_bytes: int


def kind_of(device: torch.device | str) -> DeviceKind:
    """The kind of a device such as "cuda:1"; ModelError for a name that specchat does not know."""
    name = str(device).partition(":")[0]
    if name not in KINDS:
        raise ModelError(f"device {device}: unknown; --device takes auto, {', '.join(KINDS)}")
    return KINDS[name]


def resolve_device(device: str, *, default: str) -> str:
    """The device for a setting; `default` for "auto"."""
    return default if device == "auto" else device


def default_device() -> str:
    """The first kind of GPU that torch finds, else the CPU."""
    return next((each.name for each in GPU_KINDS if is_available(each)), CPU.name)


def is_available(kind: DeviceKind) -> bool:
    return not kind.is_gpu or bool(_module(kind).is_available())


def check_available(device: str) -> None:
    """ModelError when torch does not find this device."""
    kind = kind_of(device)
    if is_available(kind):
        return
    import torch

    raise ModelError(
        f"device {device}: torch {torch.__version__} finds no {kind.title}; use --device {default_device()}, or leave "
        "--device out ('specchat doctor' shows what is there)"
    )


def missing_triton() -> str:
    """Why no kernels of our own can be tried on a GPU that can have them; "" where they can. Imports nothing."""
    if os.environ.get(KERNELS_VARIABLE) == NO_KERNELS:
        return f"{KERNELS_VARIABLE}={NO_KERNELS} is set"
    package = " (pip install triton-windows)" if sys.platform == "win32" else ""
    return "" if find_spec("triton") is not None else f"Triton is not installed{package}"


def device_count(kind: DeviceKind) -> int:
    return _module(kind).device_count() if kind.is_gpu and is_available(kind) else 0


def device_name(device: torch.device | str) -> str:
    """The name of a GPU, or that of this machine for its CPU."""
    kind = kind_of(device)
    if not kind.is_gpu:
        return f"{platform.machine()} {platform.node()}"
    named = getattr(_module(kind), "get_device_name", None)
    return named(device) if named is not None else f"{kind.title} ({platform.processor() or platform.machine()})"


def gpu_memory(device: torch.device | str) -> DeviceMemory:
    """The memory of a GPU. Where it is main memory, this is the share that the system recommends for the GPU."""
    kind = kind_of(device)
    module = _module(kind)
    if kind is MPS:
        total = module.recommended_max_memory()
        return DeviceMemory(max(total - module.current_allocated_memory(), 0), total)
    cached = module.memory_reserved(device) - module.memory_allocated(device)
    try:
        free, total = module.mem_get_info(device)
    except RuntimeError:  # of some GPUs, Intel's driver reports the total alone
        total = module.get_device_properties(device).total_memory
        free = total - module.memory_reserved(device)
    return DeviceMemory(free + cached, total)


def multiprocessors(device: torch.device) -> int:
    return _module(kind_of(device)).get_device_properties(device).multi_processor_count


def compute_capability(device: torch.device) -> tuple[int, int]:
    """Of a GPU that torch calls "cuda"."""
    return _module(kind_of(device)).get_device_capability(device)


def select(device: str) -> None:
    """Make this the GPU of the process."""
    _module(kind_of(device)).set_device(device)


def launching_on(device: torch.device | str) -> AbstractContextManager[None]:
    """Within it kernels of Triton run on this GPU; operations of torch find the device of their tensors anyway."""
    kind = kind_of(device)
    return _module(kind).device(device) if kind.has_kernels else nullcontext()


def synchronize(device: torch.device) -> None:
    """Wait until the device has computed everything; a CPU has."""
    kind = kind_of(device)
    if kind is MPS:
        _module(kind).synchronize()
    elif kind.is_gpu:
        _module(kind).synchronize(device)


def prepare(device: torch.device) -> None:
    """Settings of torch that a device needs."""
    if kind_of(device) is CUDA:
        import torch

        torch.backends.cuda.enable_cudnn_sdp(enabled=False)  # it makes a plan for every number of keys


def platform_of(kind: DeviceKind) -> str:
    """What torch computes with on this kind: "CUDA 12.8", "ROCm 6.4"; "" for none."""
    import torch

    found = {
        CUDA.name: ("ROCm", torch.version.hip) if torch.version.hip else ("CUDA", torch.version.cuda),
        XPU.name: ("XPU", getattr(torch.version, "xpu", None)),
        MPS.name: ("Metal", "of this system" if is_available(MPS) else None),
    }.get(kind.name, ("", None))
    return f"{found[0]} {found[1]}" if found[1] else ""


def has_cpu_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16. Others convert it to float32 first, which is slow."""
    import torch

    return torch.cpu._is_avx512_bf16_supported()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def may_have_gpu() -> bool:
    """Whether asking torch for GPUs, which takes seconds to import, can find one. Imports no torch."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    from importlib.metadata import PackageNotFoundError, version  # longer to import than a thin client

    try:
        if "+cpu" in version("torch"):
            return False
    except PackageNotFoundError:
        return False
    folder, pattern = INTEL_DRIVER_FILES
    return os.name == "nt" or bool(drivers()) or any(Path(folder).glob(pattern))


def drivers() -> tuple[str, ...]:
    """The makers of GPUs whose driver is on this machine (Linux, Windows)."""
    found = {maker: [Path(os.path.expandvars(each)).exists() for each in DRIVER_FILES[maker]] for maker in DRIVER_FILES}
    return tuple(maker for maker, files in found.items() if any(files))


def _module(kind: DeviceKind) -> Any:
    import torch

    return getattr(torch, kind.name)
