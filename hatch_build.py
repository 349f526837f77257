"""Compile the native kernels into a wheel where SPECCHAT_BUILD_KERNELS is 1; without it the wheel fits every system.

Runs in the environment of the build, which has none of our dependencies.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "SPECCHAT_BUILD_KERNELS"
STRIPPED = "-s"  # no symbols that only debuggers read: a wheel has six libraries

# manylinux2014, the oldest system that pip and uv still know, and its C++ library
OLDEST_GLIBC, NEWEST_GLIBCXX = 17, (3, 4, 19)


class KernelBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get(VARIABLE) != "1" or version == "editable":
            return
        sys.path.insert(0, self.root)
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


def compile_for_wheel(folder: Path) -> list[Path]:
    """A library for each instruction set of x86-64."""
    if (found := (platform.system(), platform.machine())) != ("Linux", "x86_64"):
        raise OSError(f"kernels are built ahead on Linux x86_64 only, not on {' '.join(found)}")
    from specchat.forward.native.native_build import (
        COMPILERS,
        INSTRUCTION_SETS,
        PLAIN,
        compile_library,
        find_compiler,
    )

    compiler = find_compiler()
    if compiler is None:
        raise OSError(f"no C++ compiler: {', '.join(COMPILERS)}")
    libraries = {folder / each.library_name(): each for each in (*INSTRUCTION_SETS, PLAIN)}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        flags = ((*each.flags, STRIPPED) for each in libraries.values())
        list(pool.map(compile_library, [compiler] * len(libraries), flags, libraries))
    return list(libraries)


def platform_tag(libraries: Iterable[Path]) -> str:
    """The oldest Linux on which these libraries can be loaded, as in the name of a wheel (PEP 600)."""
    needed = b"\0".join(path.read_bytes() for path in libraries)
    glibc = max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", needed))
    versions = [tuple(map(int, version.split(b"."))) for version in re.findall(rb"GLIBCXX_([\d.]+)", needed)]
    if max(versions, default=(0,)) > NEWEST_GLIBCXX:
        return "linux_x86_64"
    return f"manylinux_2_{max(glibc, OLDEST_GLIBC)}_x86_64"
