"""The kernels of `native_ops.cpp`, compiled once on the machine that runs them, and kept.

torch needs a dozen small operations between two products of a layer, and each costs microseconds before it computes
anything: a half of what a pass of a small model takes. No wheel brings code for that, so a compiler is asked for, once;
where there is none, everything works without. Knows a compiler, a file and what its functions are given; no tensor.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from specchat.errors import last_output_line
from specchat.paths import cache_folder

SOURCE = Path(__file__).with_name("native_ops.cpp")
ENVIRONMENT_VARIABLE, DISABLED = "SPECCHAT_KERNELS", "none"  # says to do without
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
CAPABILITY_FLAGS = {  # what may be assumed of a CPU that torch uses so much of
    "AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "AVX2": ("-march=x86-64-v3",),
}
COMPILE_TIMEOUT_SECONDS = 60
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_POINTER, _INT64, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
ARGUMENT_TYPES = {
    "norm": (_POINTER,) * 3 + (_INT64, _INT64, _FLOAT),
    "add": (_POINTER,) * 5 + (_INT64, _INT64, _FLOAT),
    "gate": (_POINTER,) * 2 + (_INT64, _INT64),
    "turn": (_POINTER,) * 8 + (_INT64, _INT, _INT, _INT, _INT64, _FLOAT),
    "attend": (_POINTER,) * 5 + (_INT64, _INT, _INT, _INT, _INT64, _INT64, _POINTER),
    "shrink": (_POINTER,) * 3 + (_INT64, _INT64, _INT, _INT),
    "widen": (_POINTER,) * 4 + (_INT64, _INT64),
}
DTYPE_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}

Kernel = Callable[..., None]  # of addresses and counts, in the order of `native_ops.cpp`

NO_MESSAGE = "it does not say why"
REMEDY = "install a C++ compiler, such as g++ or clang"


@dataclass(frozen=True)
class NativeKernels:
    """The compiled kernels; without them, why there are none."""

    library: ctypes.CDLL | None
    missing_reason: str = ""

    def kernel(self, name: str, dtype: torch.dtype) -> Kernel | None:
        """One of ARGUMENTS for numbers of this dtype; None where there is none."""
        if self.library is None or dtype not in DTYPE_NAMES:
            return None
        function = getattr(self.library, f"{name}_{DTYPE_NAMES[dtype]}")
        function.argtypes, function.restype = ARGUMENT_TYPES[name], None
        return function


@lru_cache
def native_kernels() -> NativeKernels:
    """The kernels for what torch uses of this CPU."""
    capability = torch.backends.cpu.get_cpu_capability()
    if os.environ.get(ENVIRONMENT_VARIABLE) == DISABLED:
        return NativeKernels(None, f"{ENVIRONMENT_VARIABLE}={DISABLED} says so")
    compiler, folder = _find_compiler(), cache_folder() / "kernels"
    if compiler is None:
        return NativeKernels(None, f"no C++ compiler; {REMEDY}")
    try:
        return NativeKernels(
            ctypes.CDLL(str(_compile_library(compiler, (*FLAGS, *CAPABILITY_FLAGS.get(capability, ())), folder)))
        )
    except subprocess.CalledProcessError as error:
        return NativeKernels(
            None, f"{compiler} cannot compile them ({last_output_line(error.stderr, NO_MESSAGE)}); {REMEDY}"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return NativeKernels(None, f"{folder}: {last_output_line(str(error), NO_MESSAGE)}")


def data_pointer(tensor: torch.Tensor | None) -> int | None:
    """Where the numbers of a tensor begin; None, which kernels take for nothing, where there is none."""
    return None if tensor is None else tensor.data_ptr()


def _find_compiler() -> str | None:
    names = (os.environ.get("CXX", ""), *COMPILERS)
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _compile_library(compiler: str, flags: tuple[str, ...], folder: Path) -> Path:
    """The file with the kernels, made now unless it is there. What anybody else could have put there is not run."""
    spelled = "\0".join((SOURCE.read_text(), compiler, *flags, platform.machine(), platform.system()))
    made = folder / f"{hashlib.sha256(spelled.encode()).hexdigest()[:24]}.so"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & WRITABLE_BY_OTHERS:
        raise PermissionError("others may write there")
    if not made.exists():
        making = made.with_suffix(f".{os.getpid()}")
        command = (compiler, *flags, str(SOURCE), "-o", str(making))
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_SECONDS)
        making.replace(made)
    return made
