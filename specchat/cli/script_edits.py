"""`specchat script --edit`: edits files for a program, reported as updates of the Agent Client Protocol.

A question is an edit when it is `/edit FILE[:FIRST-LAST] INSTRUCTION`, or an unambiguous instruction. The diff comes
first, then one write, which `specchat undo` takes back. The user cannot be asked: what
loses lines or comments is refused.
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
from specchat.host.client import SessionRequest
from specchat.host.protocol import JsonObject

EDIT_COMMAND = re.compile(r"/edit\b\s*(?P<argument>.*)", re.DOTALL)
NEXT_STEPS = "next: fewer lines (/edit FILE:FIRST-LAST ...), or another model (--target)"

SendUpdate = Callable[[JsonObject], None]


@dataclass(frozen=True)
class EditRunner:
    session_request: SessionRequest
    workspace_roots: WorkspaceRoots = field(default_factory=lambda: WorkspaceRoots(Path.cwd()))

    def is_edit_request(self, text: str) -> bool:
        return bool(EDIT_COMMAND.fullmatch(text.strip()) or intent_from_text(text, [], self.workspace_roots))

    def run(self, text: str, send: SendUpdate, on_event: Callable[[Event], None], stopped: Flag) -> tuple[str, Totals]:
        """Do one edit; returns what was done, and what it cost.

        SpecchatError says why the file did not change, or that the command is incomplete.
        """
        command = EDIT_COMMAND.fullmatch(text.strip())
        by_words = intent_from_text(text, [], self.workspace_roots)
        intent = by_words or intent_from_command(command["argument"] if command else "", self.workspace_roots)
        target = WorkspaceFile(intent.path, ProjectFiles(self.workspace_roots))

        def observe(event: Event | EditEvent) -> None:
            if not isinstance(event, EditEvent | TextDelta):  # the diff contains the text
                on_event(event)

        call = EditCall(intent, target, NEXT_STEPS, send, lambda _call: REJECT, observe)
        with EditSession(self.session_request, stopped) as session:
            call.run(session, EditConsent(can_ask=False, way_out="'specchat edit' shows it and asks"))
            return call.message, session.totals
