"""The package itself: what it adds to specchat, what it takes from it, and what the pages say of it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from specchat.cli.main import run
from specchat_editors.acp.command import acp
from specchat_editors.install.command import editors
from specchat_editors.lsp.command import lsp
from tests.planted_imports import broken_imports, edges
from tests.test_docs import OPTION, all_calls, all_options

PLUGIN = Path(__file__).parents[1]
PLANTED = {
    "acp/agent.py": "specchat.context.retrieve",
    "install/command.py": "specchat.edit.undo_store",
    "lsp/server.py": "specchat.chat.session",
    "stdio.py": "specchat.engine.decode",
}


def test_an_import_below_the_verbs_and_no_other_breaks_the_contract(tmp_path):
    package = PLUGIN / "specchat_editors"

    assert edges(package, PLANTED) == broken_imports(package, PLANTED, tmp_path)


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
