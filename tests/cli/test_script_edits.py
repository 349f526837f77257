"""Files that a program has edited over lines of JSON: the diff, the permission, one write."""

from __future__ import annotations

import json
import os

import pytest

from specchat.cli.question_options import command_chat
from specchat.cli.script import InputLoop, JsonLinesWriter, _edit_runner
from specchat.edit.undo_store import user_undo_store
from specchat.host.client import Conversation, SessionRequest
from specchat.profile import AGENT_OFF
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


def asked(text):
    return json.dumps({"type": "user", "text": text}).encode() + b"\n"


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


def test_to_ask_somebody_needs_lines_of_input(monkeypatch):
    ran = command(monkeypatch, "-p", EDIT, "--json", "--edit", "ask")

    assert 2 == ran.code
    assert "--input jsonl" in ran.err


def test_once_nobody_can_answer_nothing_is_written(monkeypatch, file):
    lines = lines_of(command(monkeypatch, "--input", "jsonl", "--edit", "ask", stdin=asked(EDIT)))

    assert "left as it was" in lines[-1]["result"]
    assert "total = 1\n" == file.read_text()


class Program:
    """A caller that answers each permission with the next of its answers, then hangs up."""

    def __init__(self, questions, *answers):
        self._answers, self.lines = list(answers), []
        incoming, outgoing = os.pipe()
        self._to_script, self._from = os.fdopen(outgoing, "w"), os.fdopen(incoming)
        self._left = len(questions)
        for question in questions:
            self._say({"type": "user", "text": question})

    def _say(self, line):
        self._to_script.write(json.dumps(line) + "\n")
        self._to_script.flush()

    def write(self, line, *, is_last=False):
        self.lines.append(line)
        if line["type"] == "permission":
            for answer in self._answers.pop(0):
                self._say({"type": "permission", "id": line["id"], "option": answer} if answer else {"type": "cancel"})
        self._left -= line["type"] == "result"
        if not self._left and line["type"] == "result":
            self._to_script.close()

    def run(self):
        with self._from, Conversation(SessionRequest()) as conversation:
            writer = JsonLinesWriter(edit_runner=_edit_runner("ask", conversation))
            writer.write = self.write
            InputLoop(command_chat(conversation, AGENT_OFF, ()), writer).run(self._from)
        return self.lines


def results(lines):
    return [line["result"] for line in lines if line["type"] == "result"]


def test_a_program_that_allows_it_gets_it_written(file):
    lines = Program([EDIT], ["allow"]).run()

    [asked] = [line for line in lines if line["type"] == "permission"]
    assert ["allow", "allow-always", "reject"] == [option["optionId"] for option in asked["options"]]
    assert asked["toolCall"]["content"] == updates(lines, "tool_call")[0]["content"]
    assert "1 change written" in results(lines)[0]
    assert "amount = 1\n" == file.read_text()


def test_a_program_that_rejects_it_goes_on(file):
    lines = Program([EDIT, "count 1"], ["reject"]).run()

    assert "left as it was" in results(lines)[0]
    assert ["failed"] == [update["status"] for update in updates(lines, "tool_call_update")]
    assert 2 == len(results(lines))
    assert "total = 1\n" == file.read_text()


def test_an_edit_that_cannot_be_ends_no_dialogue():
    lines = Program(["/edit a.txt", "count 1"]).run()

    assert [True, False] == [line["is_error"] for line in lines if line["type"] == "result"]


def test_always_asks_no_more(file):
    lines = Program([EDIT, "/edit a.txt replace amount sum"], ["allow-always"]).run()

    assert 1 == len([line for line in lines if line["type"] == "permission"])
    assert "sum = 1\n" == file.read_text()


def test_an_answer_that_was_not_offered_is_a_bad_line_and_the_question_stands(file):
    lines = Program([EDIT], ["perhaps", "allow"]).run()

    assert ["bad_input"] == [line["code"] for line in lines if line["type"] == "error"]
    assert "amount = 1\n" == file.read_text()


def test_a_cancel_while_the_question_stands_writes_nothing(file):
    lines = Program([EDIT], [None]).run()

    [last] = [line for line in lines if line["type"] == "result"]
    assert "cancelled" == last["error"]["code"]
    assert "total = 1\n" == file.read_text()


def test_a_model_that_is_missing_is_told_from_an_engine_that_failed(capsys):
    writer = JsonLinesWriter()

    writer.write_error("/gone: no such folder; give a model's folder", 7)
    writer.write_error("the engine process is gone: it hung up", 7)

    codes = [json.loads(line)["error"]["code"] for line in capsys.readouterr().out.splitlines()]
    assert ["model_missing", "engine"] == codes
