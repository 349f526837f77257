"""`specchat script --edit`: edits files for a program, reported as updates of the Agent Client Protocol.

A question is an edit when it is `/edit FILE[:FIRST-LAST] INSTRUCTION`, or an unambiguous instruction. The diff comes
first, then the permission, then one write, which `specchat undo` takes back.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag

from specchat.app.consent import REJECT, EditConsent
from specchat.app.edit_call import EditCall
from specchat.app.edit_events import EditEvent
from specchat.app.edit_session import EditSession
from specchat.app.edited_files import WorkspaceFile
from specchat.app.project_files import ProjectFiles
from specchat.chat.events import Event, TextDelta, Totals
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.edit.edit_intent import intent_from_command, intent_from_text
from specchat.errors import DeclinedError
from specchat.host.client import SessionRequest
from specchat.host.protocol import JsonObject

EDIT_COMMAND = re.compile(r"/edit\b\s*(?P<argument>.*)", re.DOTALL)
NEXT_STEPS = "next: fewer lines (/edit FILE:FIRST-LAST ...), or another model (--target)"

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

    def __post_init__(self) -> None:
        is_asked, way_out = self.requires_permission, "use '--edit ask' to decide"
        self._consent = EditConsent(asks=is_asked, can_ask=is_asked, way_out=way_out)

    def is_edit_request(self, text: str) -> bool:
        return bool(EDIT_COMMAND.fullmatch(text.strip()) or intent_from_text(text, [], self.workspace_roots))

    def run(self, text: str, send: SendUpdate, on_event: Callable[[Event], None], stopped: Flag) -> EditOutcome:
        """Do one edit. SpecchatError says why the file did not change, or that the command is incomplete."""
        command = EDIT_COMMAND.fullmatch(text.strip())
        by_words = intent_from_text(text, [], self.workspace_roots)
        intent = by_words or intent_from_command(command["argument"] if command else "", self.workspace_roots)
        target = WorkspaceFile(intent.path, ProjectFiles(self.workspace_roots))
        ask = lambda call: self.request_permission(str(call["toolCallId"]), call, stopped)

        def observe(event: Event | EditEvent) -> None:
            if not isinstance(event, EditEvent | TextDelta):  # the diff contains the text
                on_event(event)

        call = EditCall(intent, target, NEXT_STEPS, send, ask, observe)
        with EditSession(self.session_request, stopped) as session:
            try:
                call.run(session, self._consent)
            except DeclinedError as error:
                call.message = str(error)
            return EditOutcome(call.message, session.totals)
