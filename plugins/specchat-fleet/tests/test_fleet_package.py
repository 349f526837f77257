"""The package itself: what it adds to specchat, what it takes from it, and what the pages say of it."""

from pathlib import Path

import click

import specchat_fleet
from specchat.cli.main import run
from specchat_fleet.command import fleet
from tests.plugins.conftest import wrong_imports
from tests.test_docs import OPTION, all_calls, all_options

SOURCE = Path(specchat_fleet.__file__).parent


def test_it_uses_public_names_of_specchat_and_no_front_end():
    assert wrong_imports(SOURCE) == []


def test_the_list_of_plugins_has_its_command_and_its_servers(capsys):
    assert 0 == run(["plugins"])

    shown = capsys.readouterr().out
    assert "fleet (specchat-fleet 0.1.0)" in shown and "specchat fleet " in shown
    assert all(f"backend = {name}" in shown for name in ("vllm", "sglang", "openai"))


def test_the_pages_call_what_exists_and_every_command():
    calls = [call for call in all_calls() if call.words[:1] == ("fleet",)]
    assert isinstance(fleet, click.Group) and len(calls) > 3

    named = set[str]()
    for call in calls:
        name = call.words[1] if len(call.words) > 1 else ""
        named.update(name.split("|"))
        options = {option for word in call.words if word.startswith("-") for option in OPTION.findall(word)}
        assert options <= all_options(fleet), call
    assert fleet.commands.keys() == named - {""}
