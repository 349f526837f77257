"""The package itself: what it adds to specchat, and what it takes from it."""

from pathlib import Path

import specchat_completions
from specchat.cli.main import run
from tests.plugins.conftest import wrong_imports


def test_it_uses_public_names_of_specchat_and_no_front_end():
    assert wrong_imports(Path(specchat_completions.__file__).parent) == []


def test_the_list_of_plugins_has_it(capsys):
    assert 0 == run(["plugins"])

    assert "completions by fill-in-the-middle" in capsys.readouterr().out
