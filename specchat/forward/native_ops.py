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

from specchat.errors import last_line
from specchat.paths import cache_folder

SOURCE = Path(__file__).with_name("native_ops.cpp")
VARIABLE, WITHOUT = "SPECCHAT_KERNELS", "none"  # says to do without
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
WIDEST = {  # what may be assumed of a CPU that torch uses so much of
    "AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "AVX2": ("-march=x86-64-v3",),
}
PATIENCE_SECONDS = 60
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

_AT, _COUNT, _INT, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
ARGUMENTS = {
    "norm": (_AT,) * 3 + (_COUNT, _COUNT, _REAL),
    "add": (_AT,) * 5 + (_COUNT, _COUNT, _REAL),
    "gate": (_AT,) * 2 + (_COUNT, _COUNT),
    "turn": (_AT,) * 8 + (_COUNT, _INT, _INT, _INT, _COUNT, _REAL),
    "attend": (_AT,) * 5 + (_COUNT, _INT, _INT, _INT, _COUNT, _COUNT, _AT),
    "shrink": (_AT,) * 3 + (_COUNT, _COUNT, _INT, _INT),
    "widen": (_AT,) * 4 + (_COUNT, _COUNT),
}
NUMBERS = {torch.float32: "float32", torch.bfloat16: "bfloat16"}

Kernel = Callable[..., None]  # of addresses and counts, in the order of `native_ops.cpp`

MUTE = "it does not say why"
REMEDY = "install a C++ compiler, such as g++ or clang"


@dataclass(frozen=True)
class Found:
    """The compiled kernels; without them, why there are none."""

    library: ctypes.CDLL | None
    lack: str = ""

    def kernel(self, name: str, dtype: torch.dtype) -> Kernel | None:
        """One of ARGUMENTS for numbers of this dtype; None where there is none."""
        if self.library is None or dtype not in NUMBERS:
            return None
        function = getattr(self.library, f"{name}_{NUMBERS[dtype]}")
        function.argtypes, function.restype = ARGUMENTS[name], None
        return function


@lru_cache
def kernels() -> Found:
    """The kernels for what torch uses of this CPU."""
    capability = torch.backends.cpu.get_cpu_capability()
    if os.environ.get(VARIABLE) == WITHOUT:
        return Found(None, f"{VARIABLE}={WITHOUT} says so")
    compiler, folder = _compiler(), cache_folder() / "kernels"
    if compiler is None:
        return Found(None, f"no C++ compiler; {REMEDY}")
    try:
        return Found(ctypes.CDLL(str(_compiled(compiler, (*FLAGS, *WIDEST.get(capability, ())), folder))))
    except subprocess.CalledProcessError as error:
        return Found(None, f"{compiler} cannot compile them ({last_line(error.stderr, MUTE)}); {REMEDY}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Found(None, f"{folder}: {last_line(str(error), MUTE)}")


def address(tensor: torch.Tensor | None) -> int | None:
    """Where the numbers of a tensor begin; None, which kernels take for nothing, where there is none."""
    return None if tensor is None else tensor.data_ptr()


def _compiler() -> str | None:
    names = (os.environ.get("CXX", ""), *COMPILERS)
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _compiled(compiler: str, flags: tuple[str, ...], folder: Path) -> Path:
    """The file with the kernels, made now unless it is there. What anybody else could have put there is not run."""
    spelled = "\0".join((SOURCE.read_text(), compiler, *flags, platform.machine(), platform.system()))
    made = folder / f"{hashlib.sha256(spelled.encode()).hexdigest()[:24]}.so"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & OTHERS_MAY_WRITE:
        raise PermissionError("others may write there")
    if not made.exists():
        making = made.with_suffix(f".{os.getpid()}")
        command = (compiler, *flags, str(SOURCE), "-o", str(making))
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        making.replace(made)
    return made
