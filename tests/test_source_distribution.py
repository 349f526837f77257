"""The source distribution holds what its tests import."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def imported_packages(folder: Path) -> set[str]:
    """The first words of what the files of a folder import."""
    found = set[str]()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import():
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                case ast.ImportFrom(module=str(module), level=0):
                    found.add(module.partition(".")[0])
    return found


@pytest.mark.full
def test_every_package_of_the_repository_that_a_test_imports_travels_with_it():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = {path.strip("/") for path in settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")}

    for tests in (ROOT / "tests", ROOT / "tools" / "tests", ROOT / "recipes" / "tests"):
        needed = (imported_packages(tests) & ours) | {tests.relative_to(ROOT).parts[0]}
        assert needed <= included, tests
    assert "conftest.py" in included
