"""One edit of a file: its tool call is that of `app/edit_call.py`, and this adds the progress and the editor's write.

The editor writes the file if it can, so that its own review shows the change. Otherwise this process writes it, and
`specchat undo` can undo it. The text is that of the editor's buffer, saved or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from specchat.app import updates
from specchat.app.consent import ALLOW, ALLOW_ALWAYS, REJECT, EditConsent
from specchat.app.edit_call import EditCall
from specchat.app.edit_events import AcceptedEdit, EditEvent, Proposed, Rewriting
from specchat.app.edit_progress import RewriteAlignment
from specchat.app.edit_session import EditSession
from specchat.app.edited_files import WorkspaceFile
from specchat.app.project_files import ProjectFiles
from specchat.chat.events import Event, Routed, TextDelta
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.edit.edit_intent import EditIntent
from specchat.errors import CancelledError
from specchat.host.client import SessionRequest
from specchat.host.protocol import JsonObject
from specchat_editors.acp.agent_calls import EditorBuffers
from specchat_editors.acp.client_requests import prompt_response
from specchat_editors.acp.turn_reporter import TurnReporter, send_usage

PERMISSION_OPTIONS: Sequence[JsonObject] = (
    {"optionId": ALLOW, "name": "Write the file", "kind": "allow_once"},
    {"optionId": ALLOW_ALWAYS, "name": "Write it and allow all later edits", "kind": "allow_always"},
    {"optionId": REJECT, "name": "Do not change the file", "kind": "reject_once"},
)
MIN_PERCENT_STEP = 10  # editors draw every update
NEXT_STEPS = "next: fewer lines (/edit FILE:FIRST-LAST ...), or another model (/model NAME)"


@dataclass
class RewriteProgress:
    """A tool call whose title says how much of the original is rewritten."""

    reporter: TurnReporter
    tool_call_id: str
    title: str
    original: str
    _alignment: RewriteAlignment = field(init=False)
    _reported_percent: int = 0

    def __post_init__(self) -> None:
        self._alignment = RewriteAlignment(self.original)

    def on_event(self, event: Event) -> None:
        """Update the progress; the text itself is not sent, the diff will show it."""
        if isinstance(event, Routed):  # another answer begins
            self._alignment, self._reported_percent = RewriteAlignment(self.original), 0
        if not isinstance(event, TextDelta):
            self.reporter.on_event(event)
            return
        self._alignment.feed(event.text)
        percent = int(100 * self._alignment.fraction_done)
        if percent >= self._reported_percent + MIN_PERCENT_STEP:
            self._reported_percent = percent
            self.reporter.send(updates.tool_call_update(self.tool_call_id, title=f"{self.title} ({percent} %)"))


@dataclass(frozen=True)
class FileEditSettings:
    workspace: WorkspaceRoots
    session_request: SessionRequest
    asks_permission: bool


class FileEdit:
    def __init__(self, intent: EditIntent, settings: FileEditSettings, reporter: TurnReporter) -> None:
        self.settings, self.reporter = settings, reporter
        self.client, self.turn = reporter.client, reporter.turn
        buffers = EditorBuffers(self.client, self.turn) if self.client.can_read_files else None
        self.target = WorkspaceFile(intent.path, ProjectFiles(settings.workspace, buffers))
        self.call = EditCall(intent, self.target, NEXT_STEPS, reporter.send, self._ask_permission, self._observe)
        self._consent = EditConsent(asks=settings.asks_permission)
        self._progress: RewriteProgress | None = None

    @property
    def allows_always(self) -> bool:
        """Whether the user permitted this edit and all later ones."""
        return self.settings.asks_permission and not self._consent.asks

    def run(self) -> JsonObject:
        """Run the edit; a SpecchatError says why the file is unchanged."""
        with EditSession(self.settings.session_request, self.turn.cancelled, "acp") as session:
            try:
                self.call.run(session, self._consent, self._write)
            finally:
                self._end_progress(is_done=False)
            window, totals = session.window_tokens, session.totals
        self.reporter.send_text(self.call.message)
        send_usage(self.reporter, totals, window)
        return prompt_response("end_turn", totals)

    def _observe(self, event: Event | EditEvent) -> None:
        match event:
            case Rewriting(source=source, is_new=is_new):
                id, title = f"writing-{uuid4().hex[:12]}", f"{'Writing' if is_new else 'Rewriting'} {source.name}"
                self._progress = RewriteProgress(self.reporter, id, title, source.text)
                self.reporter.send(updates.tool_call(id, title, "think"))
            case Proposed() | AcceptedEdit():
                self._end_progress(is_done=True)
            case EditEvent():
                pass
            case _:
                if self._progress:
                    self._progress.on_event(event)

    def _ask_permission(self, call: JsonObject) -> str:
        return self.client.request_permission(self.turn, call, PERMISSION_OPTIONS)

    def _end_progress(self, *, is_done: bool) -> None:
        if progress := self._progress:
            self._progress = None
            self.reporter.send(updates.tool_call_end(progress.tool_call_id, is_done=is_done, title=progress.title))

    def _write(self, instruction: str, edits: Sequence[AcceptedEdit]) -> int:
        """Write the file, by the editor, which has its own undo, or directly."""
        [accepted], target = edits, self.target
        target.files.check_unchanged(target.path, accepted.source, is_new=target.is_new)
        if self.call.call:
            self.reporter.send(updates.tool_call_update(str(self.call.call["toolCallId"])))
        if self.turn.cancelled.is_set():
            raise CancelledError("stopped; nothing is written")
        return target.files.write(target.path, accepted.source, accepted.text, instruction, is_new=target.is_new)
