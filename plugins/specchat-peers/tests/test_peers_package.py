"""The package itself: what it adds to specchat, what it takes from it, and what the pages say of it."""

from pathlib import Path

import specchat_peers
from specchat.cli.main import run
from specchat_peers.command import peers
from tests.plugins.conftest import wrong_imports
from tests.test_docs import OPTION, all_calls, all_options


def test_it_uses_public_names_of_specchat_and_no_front_end():
    assert wrong_imports(Path(specchat_peers.__file__).parent) == []


def test_the_list_of_plugins_has_its_command(capsys):
    assert 0 == run(["plugins"])

    assert "specchat peers " in capsys.readouterr().out


def test_the_pages_give_options_that_exist():
    calls = [call for call in all_calls() if call.words[:1] == ("peers",)]

    assert len(calls) > 3
    for call in calls:
        named = {option for word in call.words if word.startswith("-") for option in OPTION.findall(word)}
        assert named <= all_options(peers), call


def test_the_place_where_it_was_names_it(capsys):
    assert 2 == run(["bench", "peers", "--gguf", "starter"])

    assert "'specchat peers'" in capsys.readouterr().err
