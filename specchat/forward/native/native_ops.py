"""The native kernels (`native_*.cpp`), for the instruction set that torch uses on this CPU.

They compute a row to the same bits in every batch, which torch does not, and faster for the few rows of a decoding
pass. A wheel for Linux x86-64 brings them compiled; else they are compiled at their first use and cached on disk;
without a C++ compiler torch computes everything. Knows the library and its function signatures; knows no layer.
"""

import ctypes
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch

from specchat.devices import KERNELS_VARIABLE, NO_KERNELS
from specchat.errors import last_output_line
from specchat.forward.native.native_build import (
    InstructionSet,
    best_in_wheel,
    compile_best_library,
    find_compiler,
    instruction_sets,
)
from specchat.own_tables import own_tables

_POINTER, _INT64 = ctypes.c_void_p, ctypes.c_int64
_TYPES = {"p": _POINTER, "q": _INT64, "i": ctypes.c_int, "f": ctypes.c_float}
ARGUMENTS: Mapping[str, str] = own_tables(__file__, "native_arguments.toml")
DTYPE_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
NO_MESSAGE = "no error message"
INSTALL_COMPILER = "install a C++ compiler, such as g++ or clang"

Kernel = Callable[..., None]  # arguments as in `native_*.cpp`


@dataclass(frozen=True)
class NativeKernels:
    """The compiled library, or the reason why there is none."""

    library: ctypes.CDLL | None
    missing_reason: str = ""
    origin: str = ""  # of the library
    _found: dict[tuple[str, torch.dtype | None], Kernel] = field(default_factory=dict, repr=False, compare=False)

    @property
    def lanes(self) -> int:
        """Outputs of a linear layer that are computed together; 0 without a library."""
        return int(self.library.lanes()) if self.library is not None else 0

    def call(self, name: str, *arguments: int | bytes) -> int:
        """A function without a dtype, such as the size of a structure; addresses are numbers. Needs a library."""
        assert self.library is not None
        types = (_POINTER if isinstance(each, bytes) else _INT64 for each in arguments)
        return ctypes.CFUNCTYPE(_INT64, *types)((name, self.library))(*arguments)

    def kernel(self, name: str, dtype: torch.dtype | None = None) -> Kernel | None:
        """One of ARGUMENTS for a dtype, or of no dtype; None when it does not exist."""
        if (found := self._found.get((name, dtype))) is not None:
            return found
        if self.library is None or dtype not in (None, *DTYPE_NAMES):
            return None
        function_type = ctypes.CFUNCTYPE(None, *(_TYPES[each] for each in ARGUMENTS[name]))
        symbol = name if dtype is None else f"{name}_{DTYPE_NAMES[dtype]}"
        kernel = self._found[name, dtype] = function_type.in_dll(self.library, symbol)
        return kernel

    def require_kernel(self, name: str, dtype: torch.dtype) -> Kernel:
        """As `kernel`, where there is a library and the dtype is one of DTYPE_NAMES."""
        kernel = self.kernel(name, dtype)
        assert kernel is not None, f"no kernel {name} for {dtype}"
        return kernel


@lru_cache
def native_kernels() -> NativeKernels:
    """The kernels for this CPU: those of the wheel, else those that a compiler makes of their sources."""
    if os.environ.get(KERNELS_VARIABLE) == NO_KERNELS:
        return NativeKernels(None, f"{KERNELS_VARIABLE}={NO_KERNELS} is set")
    sets = _instruction_sets_here()
    return _load_from_wheel(sets) or _load_compiled(sets)


def must_be_compiled() -> bool:
    """Whether `native_kernels` would call a compiler, for long."""
    sets, is_off = _instruction_sets_here(), os.environ.get(KERNELS_VARIABLE) == NO_KERNELS
    is_there = is_off or best_in_wheel(sets) or any(each.compiled_libraries(each.compiled_folder()) for each in sets)
    return not is_there and find_compiler() is not None


def _instruction_sets_here() -> list[InstructionSet]:
    return instruction_sets(torch.backends.cpu.get_cpu_capability(), native_extensions())


def _load_from_wheel(sets: Sequence[InstructionSet]) -> NativeKernels | None:
    """None also where the library of the wheel needs a newer system than this one."""
    if (best := best_in_wheel(sets)) is not None:
        with suppress(OSError):
            return _load(best.wheel_path(), f"compiled in the wheel, for {best.name}")
    return None


def _load_compiled(sets: Sequence[InstructionSet]) -> NativeKernels:
    if (compiler := find_compiler()) is None:
        return NativeKernels(None, f"no C++ compiler; {INSTALL_COMPILER}")
    try:
        return _load(compile_best_library(compiler, sets), "compiled here, for this CPU")
    except subprocess.CalledProcessError as error:
        message = last_output_line(error.stderr, NO_MESSAGE)
        return NativeKernels(None, f"{compiler} cannot compile them ({message}); {INSTALL_COMPILER}")
    except subprocess.TimeoutExpired as error:
        return NativeKernels(None, f"{compiler} had not compiled them after {error.timeout:.0f} seconds")
    except OSError as error:
        return NativeKernels(None, f"{sets[-1].compiled_folder()}: {last_output_line(str(error), NO_MESSAGE)}")


def _load(path: Path, origin: str) -> NativeKernels:
    library = ctypes.CDLL(str(path))
    library.enable_amx()
    return NativeKernels(library, origin=origin)


class NativeBorderError(RuntimeError):
    """A tensor does not have the shape that a native kernel would read. A mistake of ours, or of a plugin."""


def check_border(kernel: str, like: torch.Tensor, *expected: tuple[torch.Tensor | None, Sequence[int]]) -> None:
    """NativeBorderError where a kernel would read beyond a tensor, or read it as another dtype; None is not read."""
    for tensor, shape in expected:
        if tensor is not None and (tensor.shape != shape or tensor.dtype != like.dtype):
            raise NativeBorderError(f"{kernel}: {list(tensor.shape)} {tensor.dtype}, not {list(shape)} {like.dtype}")


def data_pointer(tensor: torch.Tensor | None) -> int | None:
    """The address of a tensor's numbers; None, a null pointer for kernels, without a tensor."""
    return None if tensor is None else tensor.data_ptr()


def native_extensions() -> frozenset[str]:
    """What this CPU has beyond its instruction set, in torch's words."""
    supported = {
        "VNNI": torch.cpu._is_vnni_supported,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        "BF16": torch.cpu._is_avx512_bf16_supported,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        "AMX": torch.cpu._is_amx_tile_supported,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    }
    return frozenset(name for name, is_supported in supported.items() if is_supported())
