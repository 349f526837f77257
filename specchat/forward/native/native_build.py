"""How the native kernels are compiled: sources, compilers, instruction sets, and the libraries of a wheel.

`native_ops.py` compiles them at their first use for the CPU that is there; `hatch_build.py` compiles one library for
each instruction set when a wheel is built, in an environment without our dependencies: this file imports none of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES, HEADERS = (tuple(sorted(FOLDER.glob(f"native_*.{ending}"))) for ending in ("cpp", "h"))
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
COMPILE_TIMEOUT_SECONDS = 180  # it takes 7 on a machine that does nothing else


@dataclass(frozen=True)
class InstructionSet:
    """What a library needs of a CPU, in torch's words for it, and the flags of its compiler."""

    name: str  # in the name of the library
    capability: str  # any other than those of the rest: ""
    extensions: frozenset[str]
    flags: tuple[str, ...]

    def library_name(self) -> str:
        """Of the library in a wheel. It contains a hash, so one from other sources or flags is never loaded."""
        return f"native_{self.name}-{source_hash(*self.flags)}.so"

    def wheel_path(self) -> Path:
        return FOLDER / self.library_name()


_AVX512 = ("-march=x86-64-v4", "-mprefer-vector-width=512")
_VNNI = (*_AVX512, "-mavx512vnni")
_BFLOAT16 = (*_VNNI, "-mavx512bf16")
INSTRUCTION_SETS = (
    InstructionSet(
        "avx512-amx",
        "AVX512",
        frozenset({"VNNI", "BF16", "AMX"}),
        (*_BFLOAT16, "-mamx-tile", "-mamx-bf16", "-mamx-int8"),
    ),
    InstructionSet("avx512-bf16", "AVX512", frozenset({"VNNI", "BF16"}), _BFLOAT16),
    InstructionSet("avx512-vnni", "AVX512", frozenset({"VNNI"}), _VNNI),
    InstructionSet("avx512", "AVX512", frozenset(), _AVX512),
    InstructionSet("avx2", "AVX2", frozenset(), ("-march=x86-64-v3",)),
)
PLAIN = InstructionSet("plain", "", frozenset(), ())


def instruction_sets(capability: str, extensions: Collection[str]) -> list[InstructionSet]:
    """Those of a CPU, the best first: with extensions, and without those that a compiler may not know."""
    return [
        each for each in INSTRUCTION_SETS if each.capability == capability and each.extensions <= set(extensions)
    ] or [PLAIN]


def best_in_wheel(sets: Iterable[InstructionSet]) -> InstructionSet | None:
    """The first whose library the wheel brought; None where it brought none for this CPU."""
    return next((each for each in sets if each.wheel_path().exists()), None)


def source_hash(*more: str) -> str:
    """Of all sources and these words, such as flags."""
    code = [path.read_text(encoding="utf-8") for path in (*HEADERS, *SOURCES)]
    return hashlib.sha256("\0".join((*code, *FLAGS, *more)).encode()).hexdigest()[:24]


def find_compiler() -> str | None:
    names = (os.environ.get("CXX", ""), *COMPILERS)
    return next((path for name in names if name and (path := shutil.which(name))), None)


def compile_library(compiler: str, flags: Collection[str], library: Path) -> None:
    """Compile all sources; CalledProcessError with the compiler's messages when it cannot."""
    partial = library.with_suffix(f".{os.getpid()}")
    command = (compiler, *FLAGS, *flags, *map(str, SOURCES), "-o", str(partial))
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_SECONDS)
    partial.replace(library)
