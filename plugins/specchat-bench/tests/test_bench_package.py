"""The package itself: what it adds to specchat, what it takes from it, and what the pages say of it."""

from pathlib import Path

import specchat_bench
from specchat.cli.main import run
from specchat_bench.command import BenchGroup
from specchat_bench.gpu import sections
from tests.plugins.conftest import wrong_imports
from tests.test_docs import OPTION, all_calls, commands_of, options_of


def test_it_uses_public_names_of_specchat_and_no_front_end():
    assert wrong_imports(Path(specchat_bench.__file__).parent) == []


def test_the_list_of_plugins_has_its_command(capsys):
    assert 0 == run(["plugins"])

    printed = capsys.readouterr().out
    assert "specchat bench " in printed
    assert "specchat verify " in printed


def test_the_pages_call_what_exists():
    calls = [call for call in all_calls() if call.words[:1] in (("bench",), ("verify",))]

    assert len(calls) > 10
    for call in calls:
        known = set.union(*map(options_of, commands_of(call.words)))
        named = {option for word in call.words if word.startswith("-") for option in OPTION.findall(word)}
        names = {*call.words[1].split("|")} if call.words[0] == "bench" and call.words[1:] else set()
        assert names <= {*BenchGroup.lazy_commands}, call
        assert named <= known, call


def test_every_command_is_on_a_page():
    calls = [call for call in all_calls() if call.words[:1] == ("bench",)]
    named = {name for call in calls for word in call.words[1:2] for name in word.split("|")}

    assert set(BenchGroup.lazy_commands) <= named


def test_the_doctor_runs_it(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sections, "gpu_sections", lambda names: [*names])

    assert 0 == run(["doctor", "--gpu"])

    assert str(tmp_path / "specchat-gpu.json") in capsys.readouterr().err
