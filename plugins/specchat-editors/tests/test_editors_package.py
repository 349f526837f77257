"""The package itself: what it adds to specchat, what it takes from it, and what the pages say of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from specchat.cli.main import run
from specchat_editors.acp.command import acp
from specchat_editors.install.command import editors
from specchat_editors.lsp.command import lsp
from tests.test_docs import OPTION, all_calls, all_options

PLUGIN = Path(__file__).parents[1]
LINT = (
    "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports; "
    "sys.exit(lint_imports(limit_to_contracts=('front-ends',), no_cache=True, no_logo=True))"
)
PLANTED = {
    "acp/agent.py": "specchat.context.retrieve",
    "install/command.py": "specchat.edit.undo_store",
    "lsp/server.py": "specchat.chat.session",
    "stdio.py": "specchat.engine.decode",
}


def linted(folder: Path) -> tuple[int, str]:
    ran = subprocess.run([sys.executable, "-c", LINT], cwd=folder, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def test_it_imports_the_verbs_and_plain_types_only_and_any_other_import_breaks_the_contract(tmp_path):
    pytest.importorskip("importlinter")
    package = shutil.copytree(PLUGIN / "specchat_editors", tmp_path / "specchat_editors")
    shutil.copy(PLUGIN / "pyproject.toml", tmp_path)
    kept = linted(tmp_path)

    for name, module in PLANTED.items():
        with (package / name).open("a") as file:
            file.write(f"\nimport {module}\n")
    code, said = linted(tmp_path)

    assert (0, True) == (kept[0], "1 kept, 0 broken" in kept[1]), kept[1]
    edges = [f"specchat_editors.{name[:-3].replace('/', '.')} -> {module}" for name, module in PLANTED.items()]
    assert (1, []) == (code, [edge for edge in edges if edge not in said]), said


def test_the_list_of_plugins_has_its_commands(capsys):
    assert 0 == run(["plugins"])

    shown = capsys.readouterr().out
    assert "editors (specchat-editors 0.1.0)" in shown and "left out" not in shown
    assert all(f"specchat {each} " in shown for each in ("acp", "lsp", "editors"))


@pytest.mark.parametrize("command", [acp, lsp, editors], ids=lambda each: each.name)
def test_the_pages_call_what_exists(command: click.Command):
    calls = [call for call in all_calls() if call.words[:1] == (command.name,)]
    named = {option for call in calls for word in call.words if word.startswith("-") for option in OPTION.findall(word)}

    assert calls and named <= all_options(command)
