"""Which imports break the contract `front-ends` of a pyproject.toml, once some are planted."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

LINT = (
    "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports; "
    "sys.exit(lint_imports(limit_to_contracts=('front-ends',), no_cache=True, no_logo=True))"
)
BROKEN = re.compile(r"^-?\s+(\S+ -> \S+) \(l\.", re.MULTILINE)


def edges(package: Path, planted: Mapping[str, str]) -> set[str]:
    return {f"{package.name}.{name[:-3].replace('/', '.')} -> {module}" for name, module in planted.items()}


def broken_imports(package: Path, planted: Mapping[str, str], folder: Path) -> set[str]:
    """Plants imports into files of a copy of the package, whose pyproject.toml is beside it; all that are refused."""
    pytest.importorskip("importlinter")
    copied = shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.cpp"))
    shutil.copy(package.with_name("pyproject.toml"), folder)
    for name, module in planted.items():
        with (copied / name).open("a") as file:
            file.write(f"\nimport {module}\n")

    ran = subprocess.run([sys.executable, "-c", LINT], cwd=folder, capture_output=True, text=True, check=False)

    assert ran.returncode == 1, ran.stdout + ran.stderr
    return set(BROKEN.findall(ran.stdout))
