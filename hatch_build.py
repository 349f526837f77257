"""Compile the native kernels: into a wheel where SPECCHAT_BUILD_KERNELS is 1, and for this CPU beside a clone.

Any other wheel fits every system. Runs in the environment of the build, which has none of our dependencies.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from specchat.forward.native.native_build import InstructionSet

VARIABLE = "SPECCHAT_BUILD_KERNELS"

CPU = Path("/proc/cpuinfo")
# in torch's words, what they need of a CPU in those of Linux
CAPABILITIES = {"AVX512": {"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"}, "AVX2": {"avx2", "fma"}}
EXTENSIONS = {"VNNI": "avx512_vnni", "BF16": "avx512_bf16", "AMX": "amx_tile"}

# manylinux2014, the oldest system that pip and uv still know, and its C++ library
OLDEST_GLIBC, NEWEST_GLIBCXX = 17, (3, 4, 19)


class KernelBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        if version == "editable":
            compile_for_clone()
        if os.environ.get(VARIABLE) != "1" or version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="kernels-")
        try:
            libraries = compile_for_wheel(Path(self._folder.name))
        except subprocess.CalledProcessError as error:
            sys.exit(f"{VARIABLE}: {' '.join(error.cmd[:1])} cannot compile the kernels:\n{error.stderr}")
        build_data["force_include"].update({str(path): f"specchat/forward/native/{path.name}" for path in libraries})
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(libraries)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def compile_for_clone(cpu: Path = CPU) -> None:
    """Compile beside the sources, so that the first answer need not wait; elsewhere the first load compiles."""
    from specchat.forward.native.native_build import compile_best_library, find_compiler

    if (compiler := find_compiler()) is not None and platform.machine() == "x86_64" and cpu.exists():
        with suppress(OSError, subprocess.SubprocessError):
            compile_best_library(compiler, instruction_sets_of(cpu))


def instruction_sets_of(cpu: Path) -> list[InstructionSet]:
    """Those that torch, which is not here, would name."""
    from specchat.forward.native.native_build import instruction_sets

    found = re.search(r"^flags\s*:(.*)$", cpu.read_text(encoding="utf-8"), re.MULTILINE)
    flags = set(found[1].split()) if found else set[str]()
    capability = next((name for name, needed in CAPABILITIES.items() if needed <= flags), "DEFAULT")
    return instruction_sets(capability, {name for name, flag in EXTENSIONS.items() if flag in flags})


def compile_for_wheel(folder: Path) -> list[Path]:
    """A library for each instruction set of x86-64. Those that lie beside the sources are not compiled again."""
    if (found := (platform.system(), platform.machine())) != ("Linux", "x86_64"):
        raise OSError(f"kernels are built ahead on Linux x86_64 only, not on {' '.join(found)}")
    from specchat.forward.native.native_build import (
        COMPILERS,
        INSTRUCTION_SETS,
        PLAIN,
        compile_once,
        find_compiler,
    )

    compiler = find_compiler()
    if compiler is None:
        raise OSError(f"no C++ compiler: {', '.join(COMPILERS)}")
    sets = (*INSTRUCTION_SETS, PLAIN)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = pool.map(compile_once, [compiler] * len(sets), sets)
        return [
            shutil.copy(library, folder / each.library_name()) for library, each in zip(compiled, sets, strict=True)
        ]


def platform_tag(libraries: Iterable[Path]) -> str:
    """The oldest Linux on which these libraries can be loaded, as in the name of a wheel (PEP 600)."""
    needed = b"\0".join(path.read_bytes() for path in libraries)
    glibc = max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", needed))
    versions = [tuple(map(int, version.split(b"."))) for version in re.findall(rb"GLIBCXX_([\d.]+)", needed)]
    if max(versions, default=(0,)) > NEWEST_GLIBCXX:
        return "linux_x86_64"
    return f"manylinux_2_{max(glibc, OLDEST_GLIBC)}_x86_64"
