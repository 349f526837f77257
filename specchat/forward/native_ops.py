"""The native kernels (`native_*.cpp`): compiled once for the CPU that runs them, and cached on disk.

They compute a row to the same bits in every batch, which torch does not, and faster for the few rows of a decoding
pass. The wheel contains no binaries, so the kernels are compiled at their first use; without a C++ compiler torch
computes everything. Knows the compiler, the library and its function signatures; knows no layer.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from specchat.errors import last_output_line
from specchat.paths import belongs_to_user, cache_folder, user_id

SOURCES = tuple(
    Path(__file__).with_name(f"native_{name}.cpp") for name in ("ops", "linear", "packed", "attention", "recurrent")
)
HEADER = Path(__file__).with_name("native_lanes.h")
ENVIRONMENT_VARIABLE, DISABLED = "SPECCHAT_KERNELS", "none"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
CAPABILITY_FLAGS = {  # by the instruction set that torch uses
    "AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "AVX2": ("-march=x86-64-v3",),
}
BFLOAT16_FLAGS, VNNI_FLAGS = ("-mavx512bf16",), ("-mavx512vnni",)
AMX_FLAGS = ("-mamx-tile", "-mamx-bf16")
COMPILE_TIMEOUT_SECONDS = 60
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_POINTER, _INT64, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
ARGUMENT_TYPES = {
    "rms_norm": (_POINTER,) * 3 + (_INT64, _INT64, _FLOAT),
    "add_rms_norm": (_POINTER,) * 5 + (_INT64, _INT64, _FLOAT),
    "silu_and_mul": (_POINTER,) * 2 + (_INT64, _INT64),
    "qk_norm_rope": (_POINTER,) * 8 + (_INT64, _INT, _INT, _INT, _INT64, _FLOAT),
    "attention": (_POINTER,) * 5 + (_INT64, _INT, _INT, _INT, _INT64, _INT64, _POINTER, _INT64),
    "linear": (_POINTER,) * 4 + (_INT64,) * 4,
    "packed_linear": (_POINTER,) * 4 + (_INT64,) * 7,
    "gated_delta": (_POINTER,) * 7 + (_INT64,) * 6 + (_INT, _INT64),
    "mamba2_scan": (_POINTER,) * 8 + (_INT64,) * 5 + (_INT, _INT64),
    "convolution": (_POINTER,) * 4 + (_INT64,) * 4 + (_INT,),
    "quantize": (_POINTER,) * 3 + (_INT64, _INT64, _INT, _INT),
    "dequantize": (_POINTER,) * 4 + (_INT64, _INT64),
}
DTYPE_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
NO_MESSAGE = "no error message"
INSTALL_COMPILER = "install a C++ compiler, such as g++ or clang"

Kernel = Callable[..., None]  # arguments as in `native_*.cpp`


@dataclass(frozen=True)
class NativeKernels:
    """The compiled library, or the reason why there is none."""

    library: ctypes.CDLL | None
    missing_reason: str = ""

    @property
    def lanes(self) -> int:
        """Outputs of a linear layer that are computed together; 0 without a library."""
        return int(self.library.lanes()) if self.library is not None else 0

    def packed_block_bytes(self, file_format: int, inputs: int) -> int:
        """As in native_packed.cpp; this and `pack_blocks` need a library."""
        assert self.library is not None
        function_type = ctypes.CFUNCTYPE(_INT64, _INT64, _INT64)
        return function_type(("packed_block_bytes", self.library))(file_format, inputs)

    def pack_blocks(self, rows: int, out: int, outputs: int, inputs: int, file_format: int, threads: int) -> None:
        assert self.library is not None
        function_type = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, *(_INT64,) * 4)
        function_type(("pack_blocks", self.library))(rows, out, outputs, inputs, file_format, threads)

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
    try:
        library = ctypes.CDLL(str(_compile_best_library(compiler, folder)))
        library.enable_amx()
        return NativeKernels(library)
    except subprocess.CalledProcessError as error:
        message = last_output_line(error.stderr, NO_MESSAGE)
        return NativeKernels(None, f"{compiler} cannot compile them ({message}); {INSTALL_COMPILER}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return NativeKernels(None, f"{folder}: {last_output_line(str(error), NO_MESSAGE)}")


class NativeBorderError(RuntimeError):
    """A tensor does not have the shape that a native kernel would read. A mistake of ours, or of a plugin."""


def check_border(kernel: str, like: torch.Tensor, *expected: tuple[torch.Tensor, Sequence[int]]) -> None:
    """NativeBorderError where a kernel would read beyond a tensor, or read it as another dtype."""
    for tensor, shape in expected:
        if tensor.shape != shape or tensor.dtype != like.dtype:
            raise NativeBorderError(f"{kernel}: {list(tensor.shape)} {tensor.dtype}, not {list(shape)} {like.dtype}")


def data_pointer(tensor: torch.Tensor | None) -> int | None:
    """The address of a tensor's numbers; None, a null pointer for kernels, without a tensor."""
    return None if tensor is None else tensor.data_ptr()


def _flag_sets() -> list[tuple[str, ...]]:
    """Compiler flags for the instruction set that torch uses, with its extensions for bfloat16 first, then without."""
    capability = torch.backends.cpu.get_cpu_capability()
    has_vnni = capability == "AVX512" and torch.cpu._is_vnni_supported()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    sets: list[tuple[str, ...]] = [(*FLAGS, *CAPABILITY_FLAGS.get(capability, ()), *(VNNI_FLAGS if has_vnni else ()))]
    if capability == "AVX512" and torch.cpu._is_avx512_bf16_supported():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        sets.insert(0, sets[0] + BFLOAT16_FLAGS)
        if torch.cpu._is_amx_tile_supported():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            sets.insert(0, sets[0] + AMX_FLAGS)
    return sets


def _compile_best_library(compiler: str, folder: Path) -> Path:
    """The library with the most extensions that this compiler knows: older ones know neither AMX nor bfloat16."""
    *extended, plain = _flag_sets()
    for flags in extended:
        try:
            return _compile_library(compiler, flags, folder)
        except subprocess.CalledProcessError:
            continue
    return _compile_library(compiler, plain, folder)


def _find_compiler() -> str | None:
    names = (os.environ.get("CXX", ""), *COMPILERS)
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _compile_library(compiler: str, flags: tuple[str, ...], folder: Path) -> Path:
    """The path of the library, compiled unless it is cached. A folder that other users can write to is refused."""
    code = [path.read_text() for path in (HEADER, *SOURCES)]
    key = "\0".join((*code, compiler, *flags, platform.machine(), platform.system()))
    library = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_writable_by_others = user_id() is not None and folder.stat().st_mode & WRITABLE_BY_OTHERS
    if not belongs_to_user(folder.stat()) or is_writable_by_others:
        raise PermissionError("other users can write to this folder")
    if not library.exists():
        partial = library.with_suffix(f".{os.getpid()}")
        command = (compiler, *flags, *map(str, SOURCES), "-o", str(partial))
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_SECONDS)
        partial.replace(library)
    return library
