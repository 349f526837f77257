"""Edits of files: the diff, the permission request, then one write by the editor or by the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_tests.test_talk import link, stop
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.edit.edit_intent import intent_from_command, intent_from_text
from specchat.edit.undo_store import undo_edit, user_undo_store
from specchat.errors import UsageError
from specchat_editors.acp import client_requests
from specchat_editors.acp.stored_sessions import LoggedEdit, attached_edits

ALLOW = {"outcome": {"outcome": "selected", "optionId": "allow"}}
ALWAYS = {"outcome": {"outcome": "selected", "optionId": "allow-always"}}
REJECT = {"outcome": {"outcome": "selected", "optionId": "reject"}}
WITHDRAWN = {"outcome": {"outcome": "cancelled"}}
QUESTION = "session/request_permission"


@pytest.fixture
def file(folder) -> Path:
    path = folder / "a.py"
    path.write_bytes(b"total = 1\r\nprint(total)\r\n")
    return path


def deciding(editor, outcome):
    editor.answers[QUESTION] = lambda _params: outcome
    return editor


def asked_of(editor, method):
    return [asked["params"] for asked in editor.asked if asked["method"] == method]


def test_an_edit_is_shown_permitted_and_written(editor, folder, file):
    end = deciding(editor, ALLOW).ask(editor.new(folder), "/edit a.py replace total amount")

    assert "end_turn" == end["stopReason"]
    assert b"amount = 1\r\nprint(amount)\r\n" == file.read_bytes()
    assert ["pending", "in_progress", "completed"] == editor.tools()["Edit a.py"]
    [offered] = [update for update in editor.of("tool_call") if update["kind"] == "edit"]
    diff = offered["content"][0]
    assert ("diff", str(file)) == (diff["type"], diff["path"])
    assert "total = 1\r\nprint(total)\r\n" == diff["oldText"]
    assert "amount = 1\r\nprint(amount)\r\n" == diff["newText"]
    assert [{"path": str(file), "line": 1}] == offered["locations"]
    [question] = asked_of(editor, QUESTION)
    assert offered["content"] == question["toolCall"]["content"]
    assert 1 == end["_meta"]["specchat"]["steps"]


def test_the_next_question_knows_what_an_edit_changed(editor, folder, file):
    session = deciding(editor, ALLOW).new(folder)
    editor.ask(session, "/edit a.py replace total amount")

    before = len(editor.said())
    editor.ask(session, "replace nothing nothing")  # says the text of the attached files
    known = editor.said()[before:]
    before = len(editor.said())
    editor.ask(session, "replace nothing nothing")

    assert "-total = 1\n-print(total)\n+amount = 1\n+print(amount)\n" in known
    assert "replace total amount" in known
    assert "amount" not in editor.said()[before:]


def test_an_edit_that_was_declined_is_not_told(editor, folder, file):
    session = deciding(editor, REJECT).new(folder)
    editor.ask(session, "/edit a.py replace total amount")

    before = len(editor.said())
    editor.ask(session, "replace nothing nothing")

    assert "amount" not in editor.said()[before:]


def test_a_change_that_is_too_long_to_show_is_told_without_its_lines():
    diff = {"type": "diff", "path": "/x/a.py", "oldText": "a\n" * 99, "newText": "b\n" * 99}
    edit = LoggedEdit("", "say b", "a.py: 1 change written.", {"status": "completed", "content": [diff]})

    [whole], [short] = attached_edits([edit], "", 9999), attached_edits([edit], "", 50)

    assert "+b\n" in whole.text
    assert "+b\n" not in short.text
    assert "say b" in short.text
    assert not attached_edits([edit], "a later turn", 9999)


def test_an_edit_written_by_the_agent_can_be_undone(editor, folder, file):
    deciding(editor, ALLOW).ask(editor.new(folder), "/edit a.py replace total amount")

    kept = user_undo_store().edits()[-1]
    assert [str(file)] == [each.path for each in kept.files]
    assert f"specchat undo {kept.number}" in editor.said()


def test_a_no_leaves_the_file_alone(editor, folder, file):
    end = deciding(editor, REJECT).ask(editor.new(folder), "/edit a.py replace total amount")

    assert "end_turn" == end["stopReason"]
    assert b"total = 1\r\nprint(total)\r\n" == file.read_bytes()
    assert ["pending", "failed"] == editor.tools()["Edit a.py"]
    assert "left as it was" in editor.said()


def test_a_way_that_fails_and_the_next_one_are_named(editor, folder, file):
    editor.ask(editor.new(folder), "/edit a.py write # ... rest of the code")

    assert "(omission): # ... rest of the code; now trying search/replace blocks" in editor.said("agent_thought_chunk")
    assert "unusable answer (omission)" in editor.said()
    assert b"total = 1\r\nprint(total)\r\n" == file.read_bytes()


def test_an_editor_writes_by_itself_and_we_do_not(full, folder, file):
    full.answers["fs/read_text_file"] = lambda _params: {"content": "total = 2\n"}
    full.answers["fs/write_text_file"] = lambda _params: None

    deciding(full, ALLOW).ask(full.new(folder), "/edit a.py replace total amount")

    assert b"total = 1\r\nprint(total)\r\n" == file.read_bytes()
    [written] = asked_of(full, "fs/write_text_file")
    assert (str(file), "amount = 2\n") == (written["path"], written["content"])


def test_a_file_that_is_not_there_is_created_after_the_same_question(editor, folder):
    end = deciding(editor, ALLOW).ask(editor.new(folder), "/edit new.txt write x = 2")

    assert "end_turn" == end["stopReason"]
    assert (folder / "new.txt").read_text().startswith("x = 2\n")
    assert ["pending", "in_progress", "completed"] == editor.tools()["Create new.txt"]
    [question] = asked_of(editor, QUESTION)
    assert "oldText" not in question["toolCall"]["content"][0]
    assert ["new.txt"] == [path.name for path in folder.iterdir()]


def test_a_file_that_we_created_is_removed_by_an_undo(editor, folder):
    deciding(editor, ALLOW).ask(editor.new(folder), "/edit new.txt write x = 2")
    edit = user_undo_store().edits()[-1]
    assert f"new.txt: created; `specchat undo {edit.number}` undoes it." in editor.said()

    undo_edit(user_undo_store(), edit, is_forced=False)

    assert [] == list(folder.iterdir())


def test_an_editor_creates_a_file_by_itself(full, folder):
    full.answers["fs/read_text_file"] = lambda _params: {"content": ""}
    full.answers["fs/write_text_file"] = lambda _params: None

    deciding(full, ALLOW).ask(full.new(folder), "write new.txt and so on")

    [written] = asked_of(full, "fs/write_text_file")
    assert str(folder / "new.txt") == written["path"]
    assert not (folder / "new.txt").exists()


def test_a_no_creates_nothing(editor, folder):
    deciding(editor, REJECT).ask(editor.new(folder), "/edit new.txt write x = 2")

    assert "not created" in editor.said()
    assert [] == list(folder.iterdir())


def test_a_block_of_code_that_does_not_end_is_no_file(editor, folder):
    deciding(editor, ALLOW).ask(editor.new(folder), "/edit new.txt write ```python\nx = 1")

    assert "code block within other text" in editor.said()
    assert [] == list(folder.iterdir())


def test_a_file_that_was_created_meanwhile_is_not_replaced(editor, folder):
    def make(_params):
        (folder / "new.txt").write_text("theirs")
        return ALLOW

    editor.answers[QUESTION] = make
    editor.ask(editor.new(folder), "/edit new.txt write x = 2")

    assert "changed meanwhile" in editor.said()
    assert "theirs" == (folder / "new.txt").read_text()


def test_some_lines_can_be_edited_alone(editor, folder):
    file = folder / "b.py"
    file.write_text("x = 1\nx = 1\nx = 1\n")

    deciding(editor, ALLOW).ask(editor.new(folder), "/edit b.py:2-2 replace x y")

    assert "x = 1\ny = 1\nx = 1\n" == file.read_text()


def test_text_typed_meanwhile_is_not_overwritten(full, folder, file):
    texts = iter(["total = 2\n", "total = 3\n"])
    full.answers["fs/read_text_file"] = lambda _params: {"content": next(texts)}

    deciding(full, ALLOW).ask(full.new(folder), "/edit a.py replace total amount")

    assert not asked_of(full, "fs/write_text_file")
    assert "changed meanwhile" in full.said()
    assert ["pending", "failed"] == full.tools()["Edit a.py"]


def test_an_editor_that_does_not_answer_keeps_its_unsaved_text(full, folder, file, monkeypatch):
    monkeypatch.setattr(client_requests, "FILE_TIMEOUT_SECONDS", 3.0)
    full.answers["fs/write_text_file"] = lambda _params: None

    deciding(full, ALLOW).ask(full.new(folder), "/edit a.py replace total amount")

    assert not asked_of(full, "fs/write_text_file")
    assert "a.py: the editor did not answer within" in full.said()
    assert b"total = 1\r\nprint(total)\r\n" == file.read_bytes()


def test_a_write_that_the_editor_refuses_is_not_done_behind_its_back(full, folder, file):
    def refuse(_params):
        raise LookupError("read-only")

    full.answers["fs/write_text_file"] = refuse
    full.answers["fs/read_text_file"] = lambda _params: {"content": "total = 1\n"}

    deciding(full, ALLOW).ask(full.new(folder), "/edit a.py replace total amount")

    assert b"total = 1\r\nprint(total)\r\n" == file.read_bytes()
    assert ["pending", "in_progress", "failed"] == full.tools()["Edit a.py"]


def test_allow_always_ends_the_questions_and_changes_the_mode(editor, folder, file):
    session = editor.new(folder)

    deciding(editor, ALWAYS).ask(session, "/edit a.py replace total amount")
    editor.ask(session, "/edit a.py replace amount sum_of_all")

    assert b"sum_of_all = 1\r\nprint(sum_of_all)\r\n" == file.read_bytes()
    assert 1 == len(asked_of(editor, QUESTION))
    assert "auto" == editor.of("current_mode_update")[-1]["currentModeId"]


def test_a_lost_statement_is_shown_and_asked_about_even_if_all_is_allowed(editor, folder, file):
    session = editor.new(folder)
    deciding(editor, ALWAYS).ask(session, "/edit a.py replace total amount")

    deciding(editor, REJECT).ask(session, "/edit a.py write amount = 1")

    assert b"amount = 1\r\nprint(amount)\r\n" == file.read_bytes()
    questions = asked_of(editor, QUESTION)
    assert 2 == len(questions)
    shown = questions[1]["toolCall"]["content"][1]["content"]["text"]
    assert "line 2: `print(amount)` would be lost, nothing asked for that" in shown


def test_in_mode_ask_no_file_is_changed(editor, folder, file):
    session = editor.new(folder)
    editor.request("session/set_mode", {"sessionId": session, "modeId": "ask"})

    editor.ask(session, "/edit a.py replace total amount")
    editor.ask(session, "replace total amount in", link(file))

    assert "no file is changed" in editor.said()
    assert not editor.asked
    assert b"total = 1\r\nprint(total)\r\n" == file.read_bytes()


def test_an_order_about_one_linked_file_is_an_edit(editor, folder):
    file = folder / "notes.txt"
    file.write_text("the total\n")

    deciding(editor, ALLOW).ask(editor.new(folder), "replace total", link(file))

    assert "the `notes.txt`\n" == file.read_text()


def test_an_order_about_one_file_named_in_plain_words_is_an_edit(editor, folder):
    file = folder / "notes.txt"
    file.write_text("the total\n")

    deciding(editor, ALLOW).ask(editor.new(folder), "replace total notes.txt")

    assert "the notes.txt\n" == file.read_text()


def test_an_order_that_names_two_files_is_a_question(editor, folder, file):
    (folder / "b.py").write_text("")

    editor.ask(editor.new(folder), "replace a.py b.py")

    assert b"total = 1\r\nprint(total)\r\n" == file.read_bytes()


def test_a_cancel_withdraws_an_open_permission_request(editor, folder, file):
    session = editor.new(folder)
    prompt = editor.send_prompt(session, "/edit a.py replace total amount")
    editor.until(lambda: asked_of(editor, QUESTION))

    stop(editor, session)

    assert "cancelled" == editor.wait(prompt)["result"]["stopReason"]
    assert ["pending", "failed"] == editor.tools()["Edit a.py"]
    withdrawn = [message["params"] for message in editor.heard if message.get("method") == "$/cancel_request"]
    assert [{"requestId": editor.asked[-1]["id"]}] == withdrawn
    assert b"total = 1\r\nprint(total)\r\n" == file.read_bytes()


def test_a_permission_request_cancelled_by_the_editor_cancels_the_turn(editor, folder, file):
    end = deciding(editor, WITHDRAWN).ask(editor.new(folder), "/edit a.py replace total amount")

    assert "cancelled" == end["stopReason"]
    assert ["pending", "failed"] == editor.tools()["Edit a.py"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../outside.py", "outside"),
        (".git/config", "git"),
        ("gone/none.py", "no folder"),
        ("none.py:1-2", "no such file"),
        ("leaving.py", "outside"),
    ],
)
def test_files_outside_the_workspace_are_refused(editor, folder, name, why):
    project = folder / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".git/config").write_text("x")
    (folder / "outside.py").write_text("x = 1\n")
    (project / "leaving.py").symlink_to(folder / "outside.py")

    editor.ask(editor.new(project), f"/edit {name} replace x y")

    assert why in editor.said()
    assert not editor.asked


def test_a_rewrite_that_loses_comments_needs_permission_in_mode_auto(editor, folder):
    file = folder / "b.py"
    file.write_text("# why this is so\n# and that\nx = 1\n")
    session = editor.new(folder)
    editor.request("session/set_mode", {"sessionId": session, "modeId": "auto"})

    deciding(editor, REJECT).ask(session, "/edit b.py write x = 2\n")

    assert 1 == len(asked_of(editor, QUESTION))
    assert file.read_text().endswith("x = 1\n")


@pytest.mark.parametrize(
    ("argument", "path", "lines", "wish"),
    [
        ("a.py add a docstring", "/p/a.py", "", "add a docstring"),
        ("`a b.py` shorten it", "/p/a b.py", "", "shorten it"),
        ("/q/a.py:3-9 shorten it", "/q/a.py", "3-9", "shorten it"),
        ("file:///q/a%20b.py:3 x", "/q/a b.py", "3", "x"),
    ],
)
def test_the_command_names_a_file_lines_and_a_wish(argument, path, lines, wish):
    wanted = intent_from_command(argument, WorkspaceRoots(Path("/p")))

    assert (Path(path), lines, wish) == (wanted.path, wanted.line_range, wanted.instruction)


@pytest.mark.parametrize("argument", ["", "a.py", "a.py   "])
def test_the_command_needs_both(argument):
    with pytest.raises(UsageError, match="INSTRUCTION"):
        intent_from_command(argument, WorkspaceRoots(Path("/p")))


@pytest.mark.parametrize(
    "text",
    [
        "rename total to amount in `a.py`",
        "Please fix the typo",
        "Can you add type hints?",
        "in `a.py`, sort the imports",
    ],
)
def test_an_order_with_one_file_is_an_edit(text):
    assert intent_from_text(text, [Path("/p/a.py")], WorkspaceRoots(Path("/p")))


@pytest.mark.parametrize(
    "text", ["what does `a.py` do?", "explain the fix in `a.py`", "why add this?", "is it used?", "write a test for it"]
)
def test_a_question_with_a_file_is_none(text):
    assert intent_from_text(text, [Path("/p/a.py")], WorkspaceRoots(Path("/p"))) is None


@pytest.mark.parametrize(
    "text", ["create new.py with a class", "Please write a new file `docs/new.md` about it", "make 'new.py', empty"]
)
def test_an_order_about_a_file_that_is_not_there_creates_it(tmp_path, text):
    assert intent_from_text(text, [], WorkspaceRoots(tmp_path)).path.is_relative_to(tmp_path)


@pytest.mark.parametrize(
    "text", ["write old.py again", "write a poem", "what would new.py do?", "create a class, e.g. B"]
)
def test_other_words_create_nothing(tmp_path, text):
    (tmp_path / "old.py").touch()

    assert intent_from_text(text, [], WorkspaceRoots(tmp_path)) is None


def test_an_order_about_several_files_or_none_is_talk():
    assert intent_from_text("rename x", [], WorkspaceRoots(Path("/p"))) is None
    assert intent_from_text("rename x", [Path("/p/a.py"), Path("/p/b.py")], WorkspaceRoots(Path("/p"))) is None
