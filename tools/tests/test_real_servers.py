"""The table of real servers: a row for each check, and no fault ends the others."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

pytest.importorskip("specchat_fleet", reason="the plugin specchat-fleet is not installed")

from tools import real_servers
from tools.real_servers_checks import Failure
from tools.real_servers_starts import SERVERS, planned_command


def test_a_check_that_fails_is_a_cell_and_the_next_one_runs(monkeypatch, tmp_path):
    @contextmanager
    def running(*_arguments):
        yield None

    def fails(_trial):
        raise Failure("two\nlines | here")

    checks = {"one": lambda _trial: "", "two": lambda _trial: "7 of 9", "three": lambda _trial: None, "four": fails}
    monkeypatch.setattr(real_servers, "running", running)
    monkeypatch.setattr(real_servers, "make_own_environment", lambda _folder: tmp_path)
    monkeypatch.setattr(real_servers, "CHECKS", checks | {"five": lambda _trial: {}["none"]})

    cells = real_servers.run_checks(SERVERS["llama.cpp"], tmp_path)

    assert {"one": "yes", "two": "yes, 7 of 9", "three": "", "four": "failed: two lines / here"} == dict(
        list(cells.items())[:4]
    )
    assert cells["five"].startswith("failed: ")


def test_every_check_is_a_row_and_every_server_a_column():
    lines = real_servers.table({"a": {"one": "yes"}, "b": {"two": "failed: no"}}).splitlines()

    assert ["|  | a | b |", "| --- | --- | --- |", "| one | yes |  |", "| two |  | failed: no |"] == lines


def test_a_server_is_started_by_the_line_of_the_plan(monkeypatch, tmp_path):
    monkeypatch.setattr("specchat_fleet.launch_plan.find_model", lambda _name: tmp_path)
    monkeypatch.setattr("specchat_fleet.launch_plan.safetensors_folder", lambda folder: folder)

    command = planned_command("vllm", "eagle3", 4711)

    assert ["vllm", "serve", str(tmp_path)] == command[:3]
    assert "4711" == command[command.index("--port") + 1] and "eagle3" in " ".join(command)


def test_an_unknown_name_is_one_line_with_those_that_exist(capsys):
    with pytest.raises(SystemExit) as ended:
        real_servers.main(["nothing"])

    line = f"'nothing' is not the beginning of one name; the names are {'; '.join(SERVERS)}\n"
    assert (2, ("", line)) == (ended.value.code, capsys.readouterr())
