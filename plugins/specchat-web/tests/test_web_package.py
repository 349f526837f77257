"""The package itself: what it adds to specchat, what it takes from it, and what the pages say of it."""

from pathlib import Path

import specchat_web
from specchat.cli.chat import chat
from specchat.cli.main import run
from specchat_web.command import web
from tests.plugins.conftest import wrong_imports
from tests.test_docs import OPTION, all_calls, all_options


def test_it_uses_public_names_of_specchat_and_no_front_end():
    assert wrong_imports(Path(specchat_web.__file__).parent) == []


def test_the_list_of_plugins_has_its_command(capsys):
    assert 0 == run(["plugins"])

    shown = capsys.readouterr().out
    assert "web (specchat-web 0.1.0)" in shown and "specchat web " in shown


def test_the_pages_call_what_exists():
    calls = [call for call in all_calls() if call.words[:1] == ("web",)]
    named = {option for call in calls for word in call.words if word.startswith("-") for option in OPTION.findall(word)}

    assert {"--port", "--open"} <= named <= all_options(web) | all_options(chat)
