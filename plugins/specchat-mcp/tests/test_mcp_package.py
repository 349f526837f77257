"""The package itself: what it adds to specchat, what it takes from it, and what the pages say of it."""

from pathlib import Path

import specchat_mcp
from specchat.cli.main import run
from specchat_mcp.command import mcp
from tests.plugins.conftest import wrong_imports
from tests.test_docs import OPTION, all_calls, all_options


def test_it_uses_public_names_of_specchat_and_no_front_end():
    assert wrong_imports(Path(specchat_mcp.__file__).parent) == []


def test_the_list_of_plugins_has_its_commands_and_its_tools(capsys):
    assert 0 == run(["plugins"])

    shown = capsys.readouterr().out
    assert "mcp (specchat-mcp 0.1.0)" in shown
    assert all(each in shown for each in ("specchat mcp ", "/mcp [NAME|restart NAME] ", "tools of mcp "))
    assert "left out" not in shown


def test_the_pages_call_what_exists():
    calls = [call for call in all_calls() if call.words[:1] == ("mcp",)]
    named = {option for call in calls for word in call.words if word.startswith("-") for option in OPTION.findall(word)}

    assert len(calls) > 2
    assert named <= all_options(mcp)
