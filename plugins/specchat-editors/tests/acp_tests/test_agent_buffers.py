"""Tools of the agent and texts that an editor has not saved: they are read, changed through the editor, never lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acp_tests.driver import FULL
from acp_tests.test_agent_mode import chosen, deciding, in_mode, script
from acp_tests.test_file_edit import QUESTION
from specchat.edit.undo_store import undo_edit, user_undo_store

READ_ONLY = {"fs": {"readTextFile": True, "writeTextFile": False}}
WRITE_ONLY = {"fs": {"readTextFile": False, "writeTextFile": True}}
EDIT = ("edit", {"path": "a.txt", "first_line": 1, "last_line": 1, "new_text": "ONE\n"})


class Buffers:
    """The open files of an editor, which saves what it is asked to write unless `saves` is False."""

    def __init__(self, **texts: str) -> None:
        self.texts, self.saves = texts, True

    def read(self, params):
        path = Path(params["path"])
        return {"content": self.texts[path.name] if path.name in self.texts else self.saved(path)}

    def saved(self, path):
        if not path.exists():
            raise LookupError("no such file")
        return path.read_text()

    def write(self, params):
        path = Path(params["path"])
        self.texts[path.name] = params["content"]
        if self.saves:
            path.write_text(params["content"])


def editing(editor, capabilities, **texts: str) -> Buffers:
    """An editor with these buffers that allows every call."""
    editor.initialize(capabilities)
    buffers = Buffers(**{name.replace("_", "."): text for name, text in texts.items()})
    editor.answers |= {"fs/read_text_file": buffers.read, "fs/write_text_file": buffers.write}
    deciding(editor, chosen("allow"))
    return buffers


@pytest.fixture
def file(folder):
    path = folder / "a.txt"
    path.write_text("one\ntwo\n")
    return path


def work(editor, folder, *calls):
    """What the model was told of each call, and the state of it."""
    editor.ask(in_mode(editor, folder, "agent"), script(*calls))
    ends = [each for each in editor.of("tool_call_update") if each["status"] in ("completed", "failed")]
    return [(each["status"], each["content"][-1]["content"]["text"]) for each in ends]


@pytest.mark.parametrize("capabilities", [FULL, READ_ONLY])
def test_what_is_not_saved_is_read(stranger, folder, file, capabilities):
    editing(stranger, capabilities, a_txt="one\nand more\n")

    assert [("completed", "one\nand more\n")] == work(stranger, folder, ("read", {"path": "a.txt"}))


def test_a_change_keeps_what_is_not_saved_and_is_written_by_the_editor(stranger, folder, file):
    buffers = editing(stranger, FULL, a_txt="one\nand more\n")
    buffers.saves = False

    assert [("completed", "a.txt: 1 change written (in the editor, which has not saved it)")] == work(
        stranger, folder, EDIT
    )
    assert "ONE\nand more\n" == buffers.texts["a.txt"]
    assert "one\ntwo\n" == file.read_text()
    [diff, _text] = stranger.of("tool_call_update")[-1]["content"]
    assert ("one\nand more\n", "ONE\nand more\n") == (diff["oldText"], diff["newText"])


def test_undo_restores_what_was_not_saved_before_the_change(stranger, folder, file):
    editing(stranger, FULL, a_txt="one\nand more\n")

    [(status, text)] = work(stranger, folder, EDIT)

    store = user_undo_store()
    edit = store.edits()[-1]
    assert ("completed", f"a.txt: 1 change written (edit {edit.number})") == (status, text)
    assert "ONE\nand more\n" == file.read_text()
    undo_edit(store, edit, is_forced=False)
    assert "one\nand more\n" == file.read_text()


def test_a_new_file_is_written_by_the_editor_and_removed_by_an_undo(stranger, folder):
    editing(stranger, FULL)

    [(status, _text)] = work(stranger, folder, ("write", {"path": "new.txt", "content": "new\n"}))

    assert ("completed", "new\n") == (status, (folder / "new.txt").read_text())
    store = user_undo_store()
    undo_edit(store, store.edits()[-1], is_forced=False)
    assert not (folder / "new.txt").exists()


@pytest.mark.parametrize("call", [EDIT, ("write", {"path": "a.txt", "content": "all new\n"})])
def test_nothing_is_written_below_changes_that_the_editor_has_not_saved(stranger, folder, file, call):
    buffers = editing(stranger, READ_ONLY, a_txt="one\nand more\n")

    [(status, text)] = work(stranger, folder, call)

    assert "failed" == status
    assert "a.txt: the editor has changes that the user has not saved" in text
    assert ("one\ntwo\n", "one\nand more\n") == (file.read_text(), buffers.texts["a.txt"])
    assert QUESTION not in [each["method"] for each in stranger.asked]


def test_a_saved_file_is_written_by_us_where_the_editor_writes_none(stranger, folder, file):
    editing(stranger, READ_ONLY, a_txt="one\ntwo\n")

    [(status, _text)] = work(stranger, folder, EDIT)

    assert ("completed", "ONE\ntwo\n") == (status, file.read_text())


def test_a_file_is_written_by_us_where_the_editor_does_not_give_its_texts(stranger, folder, file):
    buffers = editing(stranger, WRITE_ONLY, a_txt="one\nand more\n")

    [(status, _text)] = work(stranger, folder, EDIT)

    assert ("completed", "ONE\ntwo\n") == (status, file.read_text())
    assert "one\nand more\n" == buffers.texts["a.txt"]


@pytest.mark.parametrize("capabilities", [FULL, READ_ONLY])
def test_a_text_that_changes_while_the_user_decides_is_kept(stranger, folder, file, capabilities):
    buffers = editing(stranger, capabilities, a_txt="one\ntwo\n")

    def type_and_allow(_params):
        buffers.texts["a.txt"] = "one\ntyped\n"
        return chosen("allow")

    stranger.answers[QUESTION] = type_and_allow

    [(status, text)] = work(stranger, folder, EDIT)

    assert "failed" == status
    assert "changed meanwhile" in text or "not saved" in text
    assert ("one\ntwo\n", "one\ntyped\n") == (file.read_text(), buffers.texts["a.txt"])


def test_a_new_file_that_the_editor_has_not_saved_is_not_written_over(stranger, folder):
    buffers = editing(stranger, FULL, new_txt="typed\n")

    [(status, text)] = work(stranger, folder, ("write", {"path": "new.txt", "content": "new\n"}))

    assert "failed" == status
    assert "not saved" in text
    assert ("typed\n", []) == (buffers.texts["new.txt"], list(folder.iterdir()))


def test_a_file_whose_text_the_editor_does_not_say_is_not_changed(stranger, folder, file):
    def refuse(_params):
        raise LookupError("not now")

    buffers = editing(stranger, FULL)
    stranger.answers["fs/read_text_file"] = refuse

    [(status, text)] = work(stranger, folder, EDIT)

    assert "failed" == status
    assert "the editor does not say its text" in text
    assert ("one\ntwo\n", {}) == (file.read_text(), buffers.texts)


def test_a_refusal_of_the_editor_to_write_is_told_and_nothing_is_written(stranger, folder, file):
    def refuse(_params):
        raise LookupError("read-only")

    editing(stranger, FULL)
    stranger.answers["fs/write_text_file"] = refuse

    [(status, text)] = work(stranger, folder, EDIT)

    assert "failed" == status
    assert "the editor did not write the file" in text
    assert "one\ntwo\n" == file.read_text()


def test_the_editor_knows_a_file_below_a_linked_folder_by_its_own_name(stranger, folder, file):
    link = folder.parent / f"{folder.name}-link"
    link.symlink_to(folder)
    editing(stranger, FULL)

    assert [("completed", "one\ntwo\n")] == work(stranger, link, ("read", {"path": "a.txt"}))
    asked = {each["params"]["path"] for each in stranger.asked if each["method"] == "fs/read_text_file"}
    assert {str(link / "a.txt")} == asked
    assert json.dumps(str(link / "a.txt")) in json.dumps(stranger.of("tool_call")[0]["locations"])
