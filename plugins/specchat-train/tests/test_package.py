"""The package itself: what it adds to specchat, what it takes from it, and what the pages say of it."""

from pathlib import Path

import click

import specchat_train
from specchat_train.command import train
from tests.plugins.conftest import wrong_imports
from tests.test_docs import OPTION, all_calls, all_options
from tests.test_terminal import past_the_door

SOURCE = Path(specchat_train.__file__).parent


def test_it_uses_public_names_of_specchat_and_no_front_end():
    assert wrong_imports(SOURCE) == []


def test_only_progress_bars_write_to_the_terminal_past_the_door():
    assert {path.name for path in SOURCE.glob("*.py") if past_the_door(path)} == {"progress_bar.py", "trainer.py"}


def test_the_pages_call_what_exists():
    calls = [call for call in all_calls() if call.words[:1] == ("train",)]

    assert len(calls) > 5
    for call in calls:
        name = call.words[1] if len(call.words) > 1 else ""
        assert not name or name.startswith("…") or {*name.split("|")} <= train.commands.keys(), call
        named = {option for word in call.words if word.startswith("-") for option in OPTION.findall(word)}
        assert named <= all_options(train), call


def test_every_command_is_on_the_page():
    named = {name for call in all_calls() if call.words[:1] == ("train",) for name in call.words[1:2]}

    assert isinstance(train, click.Group)
    assert train.commands.keys() <= {each for name in named for each in name.split("|")}
