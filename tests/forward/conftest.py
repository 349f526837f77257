"""The native kernels of this CPU, and as they are compiled for older ones."""

from functools import lru_cache
from pathlib import Path

import pytest
import torch

from specchat.forward.native_ops import NativeKernels, native_kernels

INSTRUCTION_SETS = {"DEFAULT": 0, "AVX2": 1, "AVX512": 2}
THIS_CPU = "all"


@pytest.fixture(
    params=[THIS_CPU, *(pytest.param(name, marks=pytest.mark.full) for name in INSTRUCTION_SETS)],
    scope="module",
)
def kernels(request, tmp_path_factory) -> NativeKernels:
    """The kernels as compiled for an older CPU than this one, and for this one."""
    if request.param == THIS_CPU:
        return native_kernels()
    if INSTRUCTION_SETS[request.param] > INSTRUCTION_SETS.get(torch.backends.cpu.get_cpu_capability(), 0):
        pytest.skip(f"this CPU has no {request.param}")
    return compiled_for(request.param, tmp_path_factory.getbasetemp())


@lru_cache
def compiled_for(instruction_set: str, folder: Path) -> NativeKernels:
    """Compiled once for all tests: it takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECCHAT_CACHE", str(folder / "kernels"))
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instruction_set)
        for extension in ("avx512_bf16", "vnni"):
            patch.setattr(torch.cpu, f"_is_{extension}_supported", lambda: False)
        return native_kernels.__wrapped__()
