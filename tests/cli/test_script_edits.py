"""Files that a program has edited over lines of JSON: the diff, and one write."""

from __future__ import annotations

import json

import pytest

from specchat.cli.script import JsonLinesWriter
from specchat.edit.undo_store import user_undo_store
from tests.cli.test_script import lines_of
from tests.front import command
from tests.host.conftest import runtime  # noqa: F401 (a fixture)

EDIT = "/edit a.txt replace total amount"
pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.txt"
    path.write_text("total = 1\n")
    return path


def updates(lines, kind):
    return [line["update"] for line in lines if line["type"] == "update" and line["update"]["sessionUpdate"] == kind]


def test_nothing_is_edited_unless_it_is_allowed(monkeypatch, file):
    lines = lines_of(command(monkeypatch, "-p", EDIT, "--json"))

    assert "you said" in lines[-1]["result"]
    assert "total = 1\n" == file.read_text()


def test_an_edit_is_shown_and_written_and_can_be_taken_back(monkeypatch, file):
    ran = command(monkeypatch, "-p", EDIT, "--json", "--edit", "auto")
    lines = lines_of(ran)

    assert "amount = 1\n" == file.read_text()
    [call] = updates(lines, "tool_call")
    assert ("Edit a.txt", "edit", "pending") == (call["title"], call["kind"], call["status"])
    assert ["amount = 1\n"] == [content["newText"] for content in call["content"]]
    assert ["completed"] == [update["status"] for update in updates(lines, "tool_call_update")]
    assert f"specchat undo {user_undo_store().edits()[-1].number}" in lines[-1]["result"]
    assert (False, "end_turn", 1) == (lines[-1]["is_error"], lines[-1]["stop_reason"], lines[-1]["spec"]["steps"])
    assert 0 == ran.code


def test_a_new_file_has_no_old_text(monkeypatch, tmp_path):
    lines = lines_of(command(monkeypatch, "-p", "/edit new.txt write x = 2", "--json", "--edit", "auto"))

    assert (tmp_path / "new.txt").read_text().startswith("x = 2\n")
    assert "oldText" not in updates(lines, "tool_call")[0]["content"][0]


@pytest.mark.parametrize(("text", "code"), [("/edit a.txt", "usage"), ("/edit gone/a.txt write it", "usage")])
def test_an_edit_that_cannot_be_is_a_result_that_says_why(monkeypatch, text, code):
    last = lines_of(command(monkeypatch, "-p", text, "--json", "--edit", "auto"))[-1]

    assert (True, code) == (last["is_error"], last["error"]["code"])


def test_a_loss_that_nobody_asked_for_is_refused_with_the_command_that_asks(monkeypatch, tmp_path):
    file = tmp_path / "b.py"
    file.write_text("total = 1\nprint(total)\n")

    last = lines_of(command(monkeypatch, "-p", "/edit b.py write total = 1", "--json", "--edit", "auto"))[-1]

    assert last["is_error"] and "'specchat edit' shows it and asks" in last["error"]["message"]
    assert "total = 1\nprint(total)\n" == file.read_text()


def test_a_model_that_is_missing_is_told_from_an_engine_that_failed(capsys):
    writer = JsonLinesWriter()

    writer.write_error("/gone: no such folder; give a model's folder", 7)
    writer.write_error("the engine process is gone: it hung up", 7)

    codes = [json.loads(line)["error"]["code"] for line in capsys.readouterr().out.splitlines()]
    assert ["model_missing", "engine"] == codes
