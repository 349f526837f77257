"""Which section an imported Python module belongs to, as isort and Ruff have them by default.

First-party modules are those that lie in the root of the project or in its `src`. Reads the project's settings, imports
nothing.
"""

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from specchat.edit.refactoring.splices import RefusedError

ROOT_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "ruff.toml", ".git")
MAX_PARENTS = 12
# Settings that do not change the order of imports, or that are read here.
KNOWN_SETTINGS = frozenset(
    ("known-first-party", "known_first_party", "profile", "line_length", "multi_line_output", "include_trailing_comma",
     "use_parentheses", "ensure_newline_before_comments", "src_paths", "skip", "skip_glob", "extend_skip", "py_version",
     "split-on-trailing-comma", "atomic", "combine-as-imports", "lines-after-imports", "lines_after_imports")
)  # fmt: skip


class Section(IntEnum):
    FUTURE = 0
    STANDARD_LIBRARY = 1
    THIRD_PARTY = 2
    FIRST_PARTY = 3
    RELATIVE = 4


@dataclass(frozen=True)
class ImportSections:
    """The sections of the imports in one file."""

    roots: tuple[Path, ...] = ()
    first_party: frozenset[str] = frozenset()

    @classmethod
    def of_file(cls, path: Path) -> "ImportSections":
        """The sections for a file of a project. RefusedError when the project sorts in a way of its own."""
        if not path.is_file():
            return cls()
        root = project_root(path)
        return cls((root, root / "src"), _first_party_names(root))

    def section_of(self, module: str) -> Section:
        if module.startswith("."):
            return Section.RELATIVE
        top = module.partition(".")[0]
        if top == "__future__":
            return Section.FUTURE
        if top in self.first_party:
            return Section.FIRST_PARTY
        if top in sys.stdlib_module_names:
            return Section.STANDARD_LIBRARY
        is_here = any((root / f"{top}.py").is_file() or (root / top).is_dir() for root in self.roots)
        return Section.FIRST_PARTY if is_here else Section.THIRD_PARTY


def project_root(path: Path) -> Path:
    """The nearest folder above a file that looks like the root of a project, else the folder of the file."""
    folders = list(path.resolve().parents)[:MAX_PARENTS]
    return next((each for each in folders if any((each / name).exists() for name in ROOT_FILES)), folders[0])


def _first_party_names(root: Path) -> frozenset[str]:
    if any((root / name).is_file() for name in (".isort.cfg", "ruff.toml", ".ruff.toml")):
        raise RefusedError(f"{root.name} has settings for sorting imports")
    try:
        tools: Mapping[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError):
        return frozenset()
    ruff = tools.get("ruff", {})
    settings = {**tools.get("isort", {}), **ruff.get("isort", {}), **ruff.get("lint", {}).get("isort", {})}
    if own := set(settings) - KNOWN_SETTINGS:
        raise RefusedError(f"{root.name} has settings for sorting imports ({min(own)})")
    names = [*settings.get("known-first-party", []), *settings.get("known_first_party", [])]
    return frozenset(str(name).partition(".")[0] for name in names)
