"""The contract of the front ends breaks where it should; `lint-imports` in .ci/run holds all of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINT = (
    "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports; "
    "sys.exit(lint_imports(limit_to_contracts=('front-ends',), no_cache=True, no_logo=True))"
)
PLANTED = {
    "cli/chat.py": "specchat.edit.undo_store",
    "repl/loop.py": "specchat.hub.catalog",
    "serve/server.py": "specchat.text.tokenizer",
    "tui/app.py": "specchat.history.history_writer",
}


def test_a_front_end_that_imports_below_the_verbs_breaks_the_contract(tmp_path):
    pytest.importorskip("importlinter")
    shutil.copytree(ROOT / "specchat", tmp_path / "specchat", ignore=shutil.ignore_patterns("__pycache__", "*.cpp"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, module in PLANTED.items():
        with (tmp_path / "specchat" / name).open("a") as file:
            file.write(f"\nimport {module}\n")

    ran = subprocess.run([sys.executable, "-c", LINT], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ran.returncode == 1, ran.stderr
    edges = [f"specchat.{name.removesuffix('.py').replace('/', '.')} -> {module}" for name, module in PLANTED.items()]
    assert not [edge for edge in edges if edge not in ran.stdout], ran.stdout
