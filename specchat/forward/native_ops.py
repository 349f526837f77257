"""The kernels of `native_ops.cpp`: compiled once for the CPU that runs them, and cached on disk.

torch needs a dozen small operations between two matmuls of a layer, and each has an overhead of microseconds: half of
the time of a pass of a small model. The wheel contains no binaries, so the kernels are compiled at their first use;
without a C++ compiler torch computes everything. Knows the compiler, the library and its function signatures; knows no
layer.
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
ENVIRONMENT_VARIABLE, DISABLED = "SPECCHAT_KERNELS", "none"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
CAPABILITY_FLAGS = {  # by the instruction set that torch uses
    "AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "AVX2": ("-march=x86-64-v3",),
}
COMPILE_TIMEOUT_SECONDS = 60
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_POINTER, _INT64, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
ARGUMENT_TYPES = {
    "rms_norm": (_POINTER,) * 3 + (_INT64, _INT64, _FLOAT),
    "add_rms_norm": (_POINTER,) * 5 + (_INT64, _INT64, _FLOAT),
    "silu_and_mul": (_POINTER,) * 2 + (_INT64, _INT64),
    "qk_norm_rope": (_POINTER,) * 8 + (_INT64, _INT, _INT, _INT, _INT64, _FLOAT),
    "attention": (_POINTER,) * 5 + (_INT64, _INT, _INT, _INT, _INT64, _INT64, _POINTER),
    "quantize": (_POINTER,) * 3 + (_INT64, _INT64, _INT, _INT),
    "dequantize": (_POINTER,) * 4 + (_INT64, _INT64),
}
DTYPE_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
NO_MESSAGE = "no error message"
INSTALL_COMPILER = "install a C++ compiler, such as g++ or clang"

Kernel = Callable[..., None]  # arguments as in `native_ops.cpp`


@dataclass(frozen=True)
class NativeKernels:
    """The compiled library, or the reason why there is none."""

    library: ctypes.CDLL | None
    missing_reason: str = ""

    def kernel(self, name: str, dtype: torch.dtype) -> Kernel | None:
        """One of ARGUMENT_TYPES for a dtype; None when it does not exist."""
        if self.library is None or dtype not in DTYPE_NAMES:
            return None
        function_type = ctypes.CFUNCTYPE(None, *ARGUMENT_TYPES[name])
        return function_type.in_dll(self.library, f"{name}_{DTYPE_NAMES[dtype]}")


@lru_cache
def native_kernels() -> NativeKernels:
    """The kernels for the instruction set that torch uses on this CPU."""
    if os.environ.get(ENVIRONMENT_VARIABLE) == DISABLED:
        return NativeKernels(None, f"{ENVIRONMENT_VARIABLE}={DISABLED} is set")
    compiler, folder = _find_compiler(), cache_folder() / "kernels"
    if compiler is None:
        return NativeKernels(None, f"no C++ compiler; {INSTALL_COMPILER}")
    flags = (*FLAGS, *CAPABILITY_FLAGS.get(torch.backends.cpu.get_cpu_capability(), ()))
    try:
        return NativeKernels(ctypes.CDLL(str(_compile_library(compiler, flags, folder))))
    except subprocess.CalledProcessError as error:
        message = last_output_line(error.stderr, NO_MESSAGE)
        return NativeKernels(None, f"{compiler} cannot compile them ({message}); {INSTALL_COMPILER}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return NativeKernels(None, f"{folder}: {last_output_line(str(error), NO_MESSAGE)}")


def data_pointer(tensor: torch.Tensor | None) -> int | None:
    """The address of a tensor's numbers; None, a null pointer for kernels, without a tensor."""
    return None if tensor is None else tensor.data_ptr()


def _find_compiler() -> str | None:
    names = (os.environ.get("CXX", ""), *COMPILERS)
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _compile_library(compiler: str, flags: tuple[str, ...], folder: Path) -> Path:
    """The path of the library, compiled unless it is cached. A folder that other users can write to is refused."""
    key = "\0".join((SOURCE.read_text(), compiler, *flags, platform.machine(), platform.system()))
    library = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & WRITABLE_BY_OTHERS:
        raise PermissionError("other users can write to this folder")
    if not library.exists():
        partial = library.with_suffix(f".{os.getpid()}")
        command = (compiler, *flags, str(SOURCE), "-o", str(partial))
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_SECONDS)
        partial.replace(library)
    return library
