"""Compile the native kernels into a wheel where SPECCHAT_BUILD_KERNELS is 1; without it the wheel fits every system.

Runs in the environment of the build, which has none of our dependencies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "SPECCHAT_BUILD_KERNELS"


class KernelBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get(VARIABLE) != "1" or version == "editable":
            return
        sys.path.insert(0, self.root)
        from specchat.forward.native import native_build

        self._folder = tempfile.TemporaryDirectory(prefix="kernels-")
        try:
            libraries = native_build.compile_for_wheel(Path(self._folder.name))
        except subprocess.CalledProcessError as error:
            sys.exit(f"{VARIABLE}: {' '.join(error.cmd[:1])} cannot compile the kernels:\n{error.stderr}")
        build_data["force_include"].update({str(path): f"specchat/forward/native/{path.name}" for path in libraries})
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{native_build.platform_tag(libraries)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()
