"""The native kernels of this CPU, and as they are compiled for older ones."""

import os
from ctypes import CDLL
from functools import lru_cache
from pathlib import Path

import pytest
import torch

from specchat.forward.native.native_build import compile_library, find_compiler, instruction_sets
from specchat.forward.native.native_ops import NativeKernels, native_extensions, native_kernels
from tests.processes import alone_among_test_processes

RUN_FOLDER = Path(os.environ["SPECCHAT_CACHE"])  # of all processes of a test run
INSTRUCTION_SETS = {"DEFAULT": 0, "AVX2": 1, "AVX512": 2}
THIS_CPU, EMULATED_TILES = "all", "emulated tiles"
TILES_HEADER = Path(__file__).with_name("emulated_tiles.h")


@pytest.fixture(
    params=[THIS_CPU, *(pytest.param(name, marks=pytest.mark.full) for name in (*INSTRUCTION_SETS, EMULATED_TILES))],
    scope="module",
)
def kernels(request) -> NativeKernels:
    """The kernels as compiled for an older CPU than this one, for this one, and for one with AMX."""
    if request.param == THIS_CPU:
        return native_kernels()
    if request.param == EMULATED_TILES:
        if torch.backends.cpu.get_cpu_capability() != "AVX512":
            pytest.skip("tiles have as many lanes as AVX512")
        return compiled_with_emulated_tiles()
    if INSTRUCTION_SETS[request.param] > INSTRUCTION_SETS.get(torch.backends.cpu.get_cpu_capability(), 0):
        pytest.skip(f"this CPU has no {request.param}")
    return compiled_for(request.param)


@lru_cache
def compiled_for(instruction_set: str) -> NativeKernels:
    """Compiled once for all tests and test processes, and not at all after a wheel was built: it takes a minute."""
    with pytest.MonkeyPatch.context() as patch, alone_among_test_processes(RUN_FOLDER):
        patch.setenv("SPECCHAT_CACHE", str(RUN_FOLDER))
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instruction_set)
        for extension in ("avx512_bf16", "vnni"):
            patch.setattr(torch.cpu, f"_is_{extension}_supported", lambda: False)
        return native_kernels.__wrapped__()


@lru_cache
def compiled_with_emulated_tiles() -> NativeKernels:
    """What a CPU with AMX computes, by plain code in the place of its instructions."""
    compiler, library = find_compiler(), RUN_FOLDER / "emulated_tiles.so"
    if compiler is None:
        pytest.skip("no C++ compiler here")
    flags = next(each.flags for each in instruction_sets("AVX512", native_extensions() - {"AMX"}))
    with alone_among_test_processes(RUN_FOLDER):
        if not library.exists():
            compile_library(compiler, (*flags, "-include", str(TILES_HEADER)), library)
    loaded = CDLL(str(library))
    assert loaded.enable_amx()
    return NativeKernels(loaded, origin="compiled with emulated tiles")
