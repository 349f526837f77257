"""One edit through the servers of editors: as through every other front end, by the same table."""

from __future__ import annotations

from pathlib import Path
from threading import Event as Flag

import pytest

from acp_tests.conftest import Served
from specchat.edit.edit_turn import ignore_event
from specchat.errors import SpecchatError
from specchat.profile.settings import read_settings
from specchat_editors.lsp.code_actions import EditRequest
from specchat_editors.lsp.rewrite_edits import compute_rewrite
from specchat_editors.lsp.text_documents import Document
from tests.app.test_edits_of_every_front_end import OLD, Made, faults_of
from tests.edit.test_contract import INSTRUCTION, RUN
from tests.host.conftest import runtime  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("runtime")
ALLOWED = {"outcome": {"outcome": "selected", "optionId": "allow"}}


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


def test_servers_of_editors_take_refuse_and_show_what_every_front_end_does(tmp_path, monkeypatch):
    wrong = faults_of([in_editor], [by_language_server], tmp_path, monkeypatch)

    assert not wrong, "\n\n".join(wrong)


def test_a_code_action_refuses_a_lost_call_because_an_editor_applies_it_at_once():
    request = EditRequest("file:///a.py", 1, 1, 2, INSTRUCTION)

    with pytest.raises(SpecchatError, match=r"run\(start\)"):
        compute_rewrite(Document("file:///a.py", RUN, 1), request, lambda: read_settings("edit"), Flag(), ignore_event)
