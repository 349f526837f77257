"""One edit through each front end, over the fake engine: what becomes of the text, and what the user is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag

import pytest

from specchat.errors import SpecchatError
from specchat.lsp.code_actions import EditRequest
from specchat.lsp.rewrite_edits import compute_rewrite
from specchat.lsp.text_documents import Document
from specchat.profile.settings import read_settings
from tests.acp.conftest import Served
from tests.front import command

pytestmark = pytest.mark.usefixtures("runtime")
OLD = "total = 1\nprint(total)\n"
ALLOWED = {"outcome": {"outcome": "selected", "optionId": "allow"}}


@dataclass(frozen=True)
class Made:
    """The text after an edit, and all that was shown."""

    text: str
    shown: str


def by_command(file: Path, instruction: str, patch: pytest.MonkeyPatch) -> Made:
    ran = command(patch, "edit", file.name, instruction, "-y")
    return Made(file.read_text(), ran.err)


def by_filter(file: Path, instruction: str, patch: pytest.MonkeyPatch) -> Made:
    ran = command(patch, "edit", "-", instruction, "--stderr", "--lang", "py", stdin=OLD.encode())
    return Made(ran.out.decode(), ran.err)


def by_line_mode(file: Path, instruction: str, patch: pytest.MonkeyPatch) -> Made:
    ran = command(patch, "chat", stdin=f"/edit {file.name} {instruction}\na\n".encode())
    return Made(file.read_text(), ran.out.decode() + ran.err)


def by_program(file: Path, instruction: str, patch: pytest.MonkeyPatch) -> Made:
    ran = command(patch, "-p", f"/edit {file.name} {instruction}", "--json", "--edit", "auto")
    return Made(file.read_text(), ran.out.decode().replace("\\n", "\n"))


def in_editor(file: Path, instruction: str, patch: pytest.MonkeyPatch) -> Made:
    served = Served()
    try:
        editor = served.editor
        editor.initialize()
        editor.answers["session/request_permission"] = lambda _params: ALLOWED
        editor.ask(editor.new(file.parent), f"/edit {file.name} {instruction}")
        return Made(file.read_text(), f"{editor.said('agent_thought_chunk')}\n{editor.said()}\n{editor.asked}")
    finally:
        served.end()


def by_language_server(file: Path, instruction: str, patch: pytest.MonkeyPatch) -> Made:
    document, request = Document(file.as_uri(), OLD, 1, "python"), EditRequest(file.as_uri(), 1, 1, 2, instruction)
    lines = OLD.splitlines(keepends=True)
    try:
        edits = compute_rewrite(document, request, lambda: read_settings("edit"), Flag(), lambda _event: None)
    except SpecchatError as error:
        return Made(OLD, str(error))
    for each in reversed(edits):
        lines[each.range.start.line : each.range.end.line] = [each.new_text]
    return Made("".join(lines), "")


FRONT_ENDS: tuple[Callable[[Path, str, pytest.MonkeyPatch], Made], ...] = (
    by_command, by_filter, by_line_mode, by_program, in_editor, by_language_server,
)  # fmt: skip
REFUSING = (by_command, by_filter, by_program, by_language_server)  # where no person decides about this text
# the instruction, the text afterwards, what is shown, and by whom
TABLE = [
    ("replace total amount", "amount = 1\nprint(amount)\n", "", FRONT_ENDS),
    ("write total = (", OLD, "does not parse", FRONT_ENDS),
    ("write total = (", OLD, "+total = (", FRONT_ENDS),
    ("write I cannot do that", OLD, "refusal", FRONT_ENDS),
    ("replace absent other", OLD, "changed nothing", FRONT_ENDS),
    ("write total = 1", OLD, "`print(total)` would be lost, nothing asked for that", REFUSING),
    (
        "write total = 1",
        "total = 1\n",
        "`print(total)` would be lost, nothing asked for that",
        (by_line_mode, in_editor),
    ),
]


def test_every_front_end_takes_refuses_and_shows_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file, wrong = tmp_path / "a.py", list[str]()
    for instruction, text, shown, front_ends in TABLE:
        for front_end in front_ends:
            file.write_text(OLD)
            made = front_end(file, instruction, monkeypatch)
            if text != made.text or shown not in made.shown:
                wrong.append(f"{front_end.__name__}: {instruction}: {made}")
    assert not wrong, "\n\n".join(wrong)
