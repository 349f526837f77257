"""How the native kernels are compiled: sources, compilers, instruction sets, and where the libraries lie.

`native_ops.py` compiles them at their first use for the CPU that is there; `hatch_build.py` does it when a clone is
installed, and compiles one library for each instruction set into a wheel, in an environment without our dependencies:
this file imports none of them.
"""

import hashlib
import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from specchat.paths import belongs_to_user, cache_folder, user_id

FOLDER = Path(__file__).parent
COMPILED_BESIDE = FOLDER / "__pycache__"  # as Python's own compiled files: who can write there can change the sources
SOURCES, HEADERS = (tuple(sorted(FOLDER.glob(f"native_*.{ending}"))) for ending in ("cpp", "h"))
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
COMPILE_TIMEOUT_SECONDS = 600  # for one source
LIBRARY_BYTES = 2**20  # it is half as large
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class InstructionSet:
    """What a library needs of a CPU, in torch's words for it, and the flags of its compiler."""

    name: str  # in the name of the library
    capability: str  # any other than those of the rest: ""
    extensions: frozenset[str]
    flags: tuple[str, ...]

    def library_name(self) -> str:
        """It contains a hash, so a library from other sources or flags, or for another system, is never loaded."""
        code = (path.read_text(encoding="utf-8") for path in (*HEADERS, *SOURCES))
        made_of = "\0".join((*code, *FLAGS, *self.flags, platform.machine(), platform.system()))
        return f"native_{self.name}-{hashlib.sha256(made_of.encode()).hexdigest()[:24]}.so"

    def wheel_path(self) -> Path:
        return FOLDER / self.library_name()

    def compiled_folder(self) -> Path:
        """Where one is, or will be compiled: beside the sources, for all homes, or the cache of this one."""
        is_beside = any(self.compiled_libraries(COMPILED_BESIDE)) or os.access(FOLDER, os.W_OK)
        return COMPILED_BESIDE if is_beside else cache_folder() / "kernels"

    def compiled_libraries(self, folder: Path) -> list[Path]:
        """Those by their names alone; `checked_name` says which is whole."""
        return list(folder.glob(f"{Path(self.library_name()).stem}-*.so"))

    def checked_name(self, library: Path) -> str:
        """The name of a library with these bytes."""
        return f"{Path(self.library_name()).stem}-{hashlib.sha256(library.read_bytes()).hexdigest()[:24]}.so"


_AVX512 = ("-march=x86-64-v4", "-mprefer-vector-width=512")
_VNNI = (*_AVX512, "-mavx512vnni")
_BFLOAT16 = (*_VNNI, "-mavx512bf16")
_AMX = (*_BFLOAT16, "-mamx-tile", "-mamx-bf16", "-mamx-int8")
INSTRUCTION_SETS = (
    InstructionSet("avx512-amx", "AVX512", frozenset({"VNNI", "BF16", "AMX"}), _AMX),
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


def find_compiler() -> str | None:
    names = (os.environ.get("CXX", ""), *COMPILERS)
    return next((path for name in names if name and (path := shutil.which(name))), None)


def compile_best_library(compiler: str, sets: Sequence[InstructionSet]) -> Path:
    """The library with the most extensions that this compiler knows: older ones know neither AMX nor bfloat16."""
    for each in sets[:-1]:
        with suppress(subprocess.CalledProcessError):
            return compile_once(compiler, each)
    return compile_once(compiler, sets[-1])


def compile_once(compiler: str, instruction_set: InstructionSet) -> Path:
    """The path of the library: a whole one that is there, or a new one.

    Its name has the hash of its bytes, because the loader of the system ends the process over one that is cut, and one
    with other bytes computes other numbers. In a cache where other users can write, nothing is read.
    """
    folder = instruction_set.compiled_folder()
    is_shared = folder == COMPILED_BESIDE
    folder.mkdir(mode=0o777 if is_shared else 0o700, parents=True, exist_ok=True)
    if not is_shared and _is_writable_by_others(folder):
        raise PermissionError("other users can write to this folder")
    for library in instruction_set.compiled_libraries(folder):
        is_trusted = is_shared or not _is_writable_by_others(library)
        if is_trusted and library.name == instruction_set.checked_name(library):
            return library
        library.unlink()
    with TemporaryDirectory(dir=folder, prefix=".compiling-") as name:
        new = Path(name, "new.so")
        new.write_bytes(bytes(LIBRARY_BYTES))  # a full disk is noticed before the compiler has worked for seconds
        compile_library(compiler, instruction_set.flags, new)
        new.chmod(0o755 if is_shared else 0o700)  # whatever the umask is
        return new.replace(folder / instruction_set.checked_name(new))


def _is_writable_by_others(path: Path) -> bool:
    """Whether another user owns it, or the link at its place, or may change it."""
    status = path.stat()
    mode = 0 if user_id() is None else status.st_mode
    return not (belongs_to_user(status) and belongs_to_user(path.lstat())) or bool(mode & WRITABLE_BY_OTHERS)


def compile_library(compiler: str, flags: Collection[str], library: Path) -> None:
    """Compile all sources, several at once; CalledProcessError with the compiler's messages when it cannot."""

    def call(*arguments: str | Path) -> None:
        command = (compiler, *FLAGS, *flags, *map(str, arguments))
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_SECONDS)

    with TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [Path(folder, f"{source.stem}.o") for source in SOURCES]
        list(pool.map(lambda source, target: call("-c", source, "-o", target), SOURCES, objects))
        call(*objects, "-o", library)
