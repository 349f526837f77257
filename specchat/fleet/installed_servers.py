"""Which servers are on this machine, and of what version: packages are looked up, programs are asked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

VERSION_TIMEOUT_SECONDS = 60.0  # some import all of torch to say their version


@dataclass(frozen=True)
class ServerInstall:
    """How a server is found: the package it comes in, the program it starts with, and the words that make it tell."""

    package: str
    program: str
    version_arguments: tuple[str, ...] = ("--version",)


SERVER_INSTALLS = {
    "vllm": ServerInstall("vllm", "vllm"),
    "sglang": ServerInstall("sglang", "sglang"),
    "tgi": ServerInstall("text-generation-server", "text-generation-launcher"),
    "trtllm": ServerInstall("tensorrt-llm", "trtllm-serve"),
    "llama.cpp": ServerInstall("", "llama-server"),
}


def installed_version(server: str) -> str | None:
    """The version of a server here, "" when it does not say, None when it is not here."""
    install = SERVER_INSTALLS[server]
    if install.package:
        try:
            return version(install.package)
        except PackageNotFoundError:
            pass  # it may live in an environment of its own
    return _reported_version(install) if shutil.which(install.program) else None


def program_path(name: str) -> str:
    """Where a program is: beside our own interpreter, if its package was found there, else where PATH says."""
    if name == "python3":
        return sys.executable if find_spec("sglang") else name
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    return shutil.which(name, path=os.pathsep.join(places)) or name


def version_numbers(version: str) -> tuple[int, ...]:
    """The beginning of a version that can be compared: (0, 10, 2) for "0.10.2rc1+cpu"."""
    beginning = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in beginning[0].split(".")) if beginning else ()


def _reported_version(install: ServerInstall) -> str:
    """The first number with dots, or of a build, among what the program says."""
    try:
        ran = subprocess.run(
            (install.program, *install.version_arguments),
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+(\.\d+)+|(?<=version: )\d+|\bb\d{4,}\b", ran.stdout + ran.stderr)
    return found[0] if found else ""
