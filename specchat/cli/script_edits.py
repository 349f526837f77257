"""`specchat script --edit`: edits files for a program, reported as updates of the Agent Client Protocol.

A question is an edit when it is `/edit FILE[:FIRST-LAST] INSTRUCTION`, or an unambiguous instruction. The diff comes
first, then the permission, then one write, which `specchat undo` takes back.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from typing import Any

from specchat.chat.events import Event, TextDelta, Totals
from specchat.chat.sum_totals import sum_totals
from specchat.edit.edit_intent import intent_from_command, intent_from_text
from specchat.edit.edit_target import EditTarget
from specchat.edit.edit_task import EditResult, run_edit
from specchat.edit.edit_turn import EditRun
from specchat.edit.hunks import diff_hunks
from specchat.edit.source_text import Source
from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.errors import CancelledError, DeclinedError
from specchat.host.client import Conversation, SessionRequest
from specchat.host.protocol import JsonObject, new_id

EDIT_COMMAND = re.compile(r"/edit\b\s*(?P<argument>.*)", re.DOTALL)
ALLOW, ALLOW_ALWAYS, REJECT = "allow", "allow-always", "reject"
PERMISSION_OPTIONS = [
    {"optionId": ALLOW, "name": "Write it", "kind": "allow_once"},
    {"optionId": ALLOW_ALWAYS, "name": "Write it, and all that follow", "kind": "allow_always"},
    {"optionId": REJECT, "name": "Leave the file as it is", "kind": "reject_once"},
]

SendUpdate = Callable[[JsonObject], None]
RequestPermission = Callable[[str, JsonObject, Flag], str]  # id, tool call, cancel flag -> one of the options


def always_reject(_id: str, _call: JsonObject, _stopped: Flag) -> str:
    return REJECT


@dataclass(frozen=True)
class EditOutcome:
    message: str
    totals: Totals


@dataclass
class EditRunner:
    session_request: SessionRequest
    requires_permission: bool
    request_permission: RequestPermission = always_reject
    workspace_roots: WorkspaceRoots = field(default_factory=lambda: WorkspaceRoots(Path.cwd()))
    _allows_all: bool = False

    def is_edit_request(self, text: str) -> bool:
        return bool(EDIT_COMMAND.fullmatch(text.strip()) or intent_from_text(text, [], self.workspace_roots))

    def run(self, text: str, send_update: SendUpdate, on_event: Callable[[Event], None], stopped: Flag) -> EditOutcome:
        """Do one edit. SpecchatError says why the file did not change, or that the command is incomplete."""
        command = EDIT_COMMAND.fullmatch(text.strip())
        by_words = intent_from_text(text, [], self.workspace_roots)
        argument = command["argument"] if command else ""
        intent = by_words or intent_from_command(argument, self.workspace_roots)
        file = EditTarget(intent, self.workspace_roots)
        source = file.read()
        file.check_writable()

        def forward_event(event: Event) -> None:
            if not isinstance(event, TextDelta):  # the diff contains the text
                on_event(event)

        with Conversation(self.session_request) as conversation:
            restart = lambda: conversation.switch_session(conversation.open_new_session())
            run = EditRun(conversation, stopped, forward_event, restart)
            result = run_edit(file.make_job(source, conversation.window_tokens), run)
        try:
            message = self._propose_and_write(file, source, result, send_update, stopped)
        except DeclinedError as error:
            message = str(error)
        return EditOutcome(message, sum_totals(run.finished_turns))

    def _propose_and_write(
        self, file: EditTarget, source: Source, result: EditResult, send_update: SendUpdate, stopped: Flag
    ) -> str:
        hunks = diff_hunks(source.text, result.text)
        new = source.encode(result.text)
        call = _tool_call(file, source, new.decode(source.codec), hunks[0].first + 1)
        if result.warnings.summary:
            warning = {"type": "text", "text": f"look closely: {result.warnings.summary}"}
            call["content"].append({"type": "content", "content": warning})
        send_update({"sessionUpdate": "tool_call", **call})
        status = "failed"
        try:
            self._check_permission(file, result, call, stopped)
            file.check_unchanged(source)
            hint = file.write(source, new)
            status = "completed"
        finally:
            send_update({"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": status})
        return file.written_message(len(hunks), result, hint)

    def _check_permission(self, file: EditTarget, result: EditResult, tool_call: JsonObject, stopped: Flag) -> None:
        """DeclinedError for a rejection. An edit that loses comments or many lines always needs a permission."""
        is_suspicious = result.warnings.worst_problem is not None
        if is_suspicious and not self.requires_permission:
            raise DeclinedError(f"{file.declined_message}: {result.warnings.summary}; use '--edit ask' to decide")
        must_ask = self.requires_permission and (is_suspicious or not self._allows_all)
        answer = self.request_permission(str(tool_call["toolCallId"]), tool_call, stopped) if must_ask else ALLOW
        if stopped.is_set():
            raise CancelledError("stopped; nothing is written")
        if answer not in (ALLOW, ALLOW_ALWAYS):
            raise DeclinedError(file.declined_message)
        self._allows_all = self._allows_all or answer == ALLOW_ALWAYS


def _tool_call(file: EditTarget, source: Source, new: str, line: int) -> dict[str, Any]:
    old = {} if file.is_new else {"oldText": source.raw.decode(source.codec)}
    return {
        "toolCallId": f"edit-{new_id()}",
        "title": file.title,
        "kind": "edit",
        "status": "pending",
        "locations": [{"path": str(file.path), "line": line}],
        "content": [{"type": "diff", "path": str(file.path), **old, "newText": new}],
    }
