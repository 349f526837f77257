"""Code actions from the view of an editor; the fake engine replaces words."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from lsp_tests.driver import SERVED, URI

TEXT = "def add(a, b):\n    print(a)\n    return a < b\n\n\nlast = 1"


def span(first: int, end: int, column: int = 0) -> dict:
    return {"start": {"line": first, "character": 0}, "end": {"line": end, "character": column}}


def offers(editor, selection, **context):
    params = {"textDocument": {"uri": URI}, "range": selection, "context": {"diagnostics": [], **context}}
    return editor.result("textDocument/codeAction", params)


def titles(actions) -> list[str]:
    return [action["title"].removeprefix("specchat: ") for action in actions]


def wanted(instruction: str, first: int = 1, last: int = 6, version: int | None = 1) -> dict:
    return {"uri": URI, "version": version, "first": first, "last": last, "instruction": instruction}


def run(editor, data) -> dict:
    return editor.call("workspace/executeCommand", {"command": "specchat.edit", "arguments": [data]})


def applied(text: str, edits: list[dict]) -> str:
    lines = text.splitlines(keepends=True)
    for edit in sorted(edits, key=lambda each: each["range"]["start"]["line"], reverse=True):
        first, end = edit["range"]["start"], edit["range"]["end"]
        before = "".join(lines[: first["line"]]) + (
            lines[first["line"]][: first["character"]] if first["character"] else ""
        )
        after = lines[end["line"]][end["character"] :] if end["line"] < len(lines) else ""
        text = before + edit["newText"] + after + "".join(lines[end["line"] + 1 :])
        lines = text.splitlines(keepends=True)
    return text


def edits_of(edit: dict) -> list[dict]:
    (change,) = edit["documentChanges"]
    assert change["textDocument"] == {"uri": URI, "version": 1}
    return change["edits"]


def test_a_selection_is_offered_what_makes_sense_in_it(editor):
    editor.open(TEXT)

    assert titles(offers(editor, span(0, 3))) == [
        "add docstring", "add type hints", "fix comparison", "remove prints",
    ]  # fmt: skip
    assert titles(offers(editor, span(1, 2))) == ["remove prints"]
    assert titles(offers(editor, span(0, 3), only=["quickfix"])) == ["fix comparison"]
    assert titles(offers(editor, span(0, 3), only=["source"])) == []


def test_lines_are_explained_on_a_page_beside_the_text(start, fresh_world):
    editor = start(*SERVED, world=fresh_world)
    editor.begin(capabilities={"window": {"showDocument": {"support": True}}})
    editor.open(TEXT)

    [action] = [action for action in offers(editor, span(0, 3)) if "explain" in action["title"]]
    editor.result("workspace/executeCommand", action["command"])

    shown = editor.wait_for("window/showDocument")
    text = Path(url2pathname(urlsplit(shown["uri"]).path)).read_text()
    assert text.startswith("# shop.py, lines 1 to 3\n")
    assert "Explain what this code does." in text
    assert "explain" not in titles(offers(editor, span(0, 3), only=["refactor"]))


def test_an_editor_that_cannot_show_a_page_gets_no_explain_action(editor):
    editor.open(TEXT)

    assert "explain" not in titles(offers(editor, span(0, 3)))


def test_a_cursor_in_a_function_is_about_the_function(editor):
    editor.open(TEXT)

    (docstring, *_) = offers(editor, {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 4}})

    assert docstring["data"] == wanted("Add a docstring to add", 1, 3)


def test_a_comment_in_the_selection_is_an_instruction(editor):
    editor.open("# specchat: sort these\nb = 1\na = 2\n")

    assert titles(offers(editor, span(0, 3))) == ["sort these"]


def test_a_chosen_entry_brings_an_edit_of_that_version(editor):
    editor.open(TEXT)
    action = offers(editor, span(0, 3))[0]
    action["data"]["instruction"] = "replace add plus"

    edit = editor.result("codeAction/resolve", action)["edit"]

    assert applied(TEXT, edits_of(edit)) == TEXT.replace("add", "plus")
    assert [edit["range"]["start"]["line"] for edit in edits_of(edit)] == [0]


def test_the_command_has_the_editor_apply_it(editor):
    editor.open(TEXT)

    assert run(editor, wanted("replace last first"))["result"] is None

    edit = editor.wait_for("workspace/applyEdit")["edit"]
    assert applied(TEXT, edits_of(edit)) == TEXT.replace("last", "first")
    assert editor.wait_for("$/progress")["value"]["kind"] == "begin"


def test_only_the_selected_lines_change_and_line_ends_stay(editor):
    text = "x = 1\r\nx = 2\r\nx = 3\r\n"
    editor.open(text)

    run(editor, wanted("replace x y", 2, 2))

    (edit,) = edits_of(editor.wait_for("workspace/applyEdit")["edit"])
    assert edit["newText"] == "y = 2\r\n"
    assert edit["range"] == span(1, 2)


def test_a_text_that_changed_since_is_not_edited(editor):
    editor.open(TEXT)
    editor.type(0, 0, "# new\n")

    assert run(editor, wanted("replace add plus"))["result"] is None

    message = editor.wait_for("window/showMessage")
    assert message["type"] == 2
    assert "changed" in message["message"]


@pytest.mark.parametrize(
    ("instruction", "kind", "says"),
    [
        ("replace zzz y", 3, "changed nothing"),
        ("crash", 1, "out of memory"),
    ],
)
def test_an_unusable_edit_is_a_message_and_no_edit(editor, instruction, kind, says):
    editor.open(TEXT)

    assert run(editor, wanted(instruction))["result"] is None

    message = editor.wait_for("window/showMessage")
    assert message["type"] == kind
    assert says in message["message"]
    assert not [notice for notice in editor.notices if notice["method"] == "workspace/applyEdit"]


def test_an_edit_is_stopped_by_its_progress_bar(editor):
    editor.open(TEXT)
    request = editor.request(
        "workspace/executeCommand", {"command": "specchat.edit", "arguments": [wanted("read for ever")]}
    )
    bar = editor.wait_for("$/progress")

    editor.notify("window/workDoneProgress/cancel", token=bar["token"])

    assert editor.answer(request)["result"] is None
    assert not [notice for notice in editor.notices if notice["method"] == "window/showMessage"]


def test_an_editor_that_cannot_resolve_gets_commands_and_its_own_question(start):
    editor = start()
    editor.begin({"editCommand": "mine.ask"}, {"textDocument": {}, "workspace": {}})
    editor.open(TEXT)

    actions = offers(editor, span(1, 2))

    assert [action["command"]["command"] for action in actions] == ["specchat.edit", "mine.ask"]
    run(editor, wanted("replace last first"))
    assert list(editor.wait_for("workspace/applyEdit")["edit"]["changes"]) == [URI]
    assert editor.close() == 0
