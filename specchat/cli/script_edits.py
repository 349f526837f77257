"""`specchat script --edit`: edits files for a program, reported as updates of the Agent Client Protocol.

A question is an edit when it is `/edit FILE[:FIRST-LAST] INSTRUCTION`, or an unambiguous instruction. The diff comes
first, then the permission, then one write, which `specchat undo` takes back.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag

from specchat.app.consent import ANSWER_BY_OPTION, Answer, Decision, EditConsent
from specchat.app.edit import drive, edit
from specchat.app.edit_events import (
    AcceptedEdit,
    EditEvent,
    EditOrder,
    Proposed,
    RawChange,
    Rejected,
    Written,
    describe_written,
)  # fmt: skip
from specchat.app.edit_session import EditSession
from specchat.chat.events import Event, TextDelta, Totals
from specchat.chat.sum_totals import sum_totals
from specchat.edit.edit_intent import intent_from_command, intent_from_text
from specchat.edit.edit_plan import parse_line_range
from specchat.edit.edit_target import EditTarget
from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.errors import DeclinedError
from specchat.host.client import SessionRequest
from specchat.host.protocol import JsonObject, new_id

EDIT_COMMAND = re.compile(r"/edit\b\s*(?P<argument>.*)", re.DOTALL)
OPTION_NAMES = {
    "allow": ("Write it", "allow_once"),
    "allow-always": ("Write it, and all that follow", "allow_always"),
    "reject": ("Leave the file as it is", "reject_once"),
}
PERMISSION_OPTIONS = [{"optionId": id, "name": name, "kind": kind} for id, (name, kind) in OPTION_NAMES.items()]
NEXT_STEPS = "next: fewer lines (/edit FILE:FIRST-LAST ...), or another model (--target)"

SendUpdate = Callable[[JsonObject], None]
RequestPermission = Callable[[str, JsonObject, Flag], str]  # id, tool call, cancel flag -> one of the options


def always_reject(_id: str, _call: JsonObject, _stopped: Flag) -> str:
    return "reject"


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

    def __post_init__(self) -> None:
        is_asked, way_out = self.requires_permission, "use '--edit ask' to decide"
        self._consent = EditConsent(asks=is_asked, can_ask=is_asked, way_out=way_out)

    def is_edit_request(self, text: str) -> bool:
        return bool(EDIT_COMMAND.fullmatch(text.strip()) or intent_from_text(text, [], self.workspace_roots))

    def run(self, text: str, send_update: SendUpdate, on_event: Callable[[Event], None], stopped: Flag) -> EditOutcome:
        """Do one edit. SpecchatError says why the file did not change, or that the command is incomplete."""
        command = EDIT_COMMAND.fullmatch(text.strip())
        by_words = intent_from_text(text, [], self.workspace_roots)
        intent = by_words or intent_from_command(command["argument"] if command else "", self.workspace_roots)
        target = EditTarget(intent.path, self.workspace_roots)
        lines = parse_line_range(intent.line_range) if intent.line_range else None
        order = EditOrder(intent.instruction, (target,), lines, next_steps=NEXT_STEPS)
        updates = _Updates(target, send_update, on_event)

        def decide(proposed: Proposed) -> Decision:
            call = updates.start_call(proposed)
            answer = self.request_permission(str(call["toolCallId"]), call, stopped)
            return Decision(ANSWER_BY_OPTION.get(answer, Answer.NO))

        with EditSession(self.session_request, stopped) as session:
            try:
                drive(edit(order, session, self._consent), updates.on_event, decide)
            except DeclinedError as error:
                updates.message = str(error)
            finally:
                updates.end_call()
            return EditOutcome(
                updates.message, sum_totals([each for run in session.runs for each in run.finished_turns])
            )


@dataclass
class _Updates:
    """The updates of one edit: its tool call, what the model wrote in vain, and every other event."""

    target: EditTarget
    send: SendUpdate
    forward: Callable[[Event], None]
    message: str = ""
    _call_id: str = ""
    _is_written: bool = False

    def on_event(self, event: Event | EditEvent) -> None:
        match event:
            case AcceptedEdit():
                self.start_call(event)
            case Written(edits=[edit], undo_number=number):
                self._is_written, self.message = True, describe_written(edit, number)
            case Rejected(diff=diff):
                self.send({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": f"{diff}\n"}})
            case EditEvent() | TextDelta():
                pass  # the diff contains the text
            case _:
                self.forward(event)

    def start_call(self, edit: Proposed | AcceptedEdit) -> JsonObject:
        change, path = RawChange.of(edit), str(self.target.path)
        old = {} if change.old is None else {"oldText": change.old}
        content: list[JsonObject] = [{"type": "diff", "path": path, **old, "newText": change.new}]
        if warning := edit.result.warnings.summary:
            content.append({"type": "content", "content": {"type": "text", "text": f"look closely: {warning}"}})
        is_new_call, self._call_id = not self._call_id, self._call_id or f"edit-{new_id()}"
        call: JsonObject = {
            "toolCallId": self._call_id, "title": self.target.title, "kind": "edit", "status": "pending",
            "locations": [{"path": path, "line": change.line}], "content": content,
        }  # fmt: skip
        if is_new_call:
            self.send({"sessionUpdate": "tool_call", **call})
        return call

    def end_call(self) -> None:
        if self._call_id:
            status = "completed" if self._is_written else "failed"
            self.send({"sessionUpdate": "tool_call_update", "toolCallId": self._call_id, "status": status})
