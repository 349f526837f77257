"""Finds the servers installed on this machine and their versions."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from sysconfig import get_path

VERSION_TIMEOUT_SECONDS = 60.0  # some servers import torch before they print it


@dataclass(frozen=True)
class ServerInstall:
    package: str
    program: str


SERVER_INSTALLS = {
    "vllm": ServerInstall("vllm", "vllm"),
    "sglang": ServerInstall("sglang", "sglang"),
    "llama.cpp": ServerInstall("", "llama-server"),
}


def installed_version(server: str) -> str | None:
    """The version of an installed server; "" when it is unknown, None when the server is not installed."""
    install = SERVER_INSTALLS[server]
    if install.package:
        try:
            return version(install.package)
        except PackageNotFoundError:
            pass  # it may be installed in another environment
    return _reported_version(install) if shutil.which(install.program) else None


def program_path(name: str) -> str:
    """The path of a program: next to this interpreter, or in PATH."""
    if name == "python3":
        return sys.executable if find_spec("sglang") else name
    folders = (get_path("scripts"), os.environ.get("PATH", ""))
    return shutil.which(name, path=os.pathsep.join(folders)) or name


def version_numbers(version: str) -> tuple[int, ...]:
    """The numeric prefix of a version, for comparisons: (0, 10, 2) for "0.10.2rc1+cpu"."""
    prefix = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in prefix[0].split(".")) if prefix else ()


def _reported_version(install: ServerInstall) -> str:
    """The first version or build number in the output of the program."""
    try:
        command = (install.program, "--version")
        result = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"\d+(\.\d+)+|(?<=version: )\d+|\bb\d{4,}\b", result.stdout + result.stderr)
    return match[0] if match else ""
