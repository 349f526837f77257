"""The edit of one file as protocols show it: a tool call with its diff, a permission, and its end.

The updates are those of the Agent Client Protocol, as JSON. Knows no transport.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from specchat.app import updates
from specchat.app.consent import ANSWER_BY_OPTION, Answer, Decision, EditConsent
from specchat.app.edit import Write, drive, edit
from specchat.app.edit_events import AcceptedEdit, EditEvent, EditOrder, Proposed, Rejected, Written
from specchat.app.edit_session import EditSession
from specchat.app.edited_files import WorkspaceFile
from specchat.chat.events import Event
from specchat.edit.edit_intent import EditIntent
from specchat.edit.edit_plan import parse_line_range
from specchat.edit.hunks import diff_hunks
from specchat.errors import CancelledError, SpecchatError
from specchat.host.protocol import JsonObject


@dataclass
class EditCall:
    """One edit. `observe` gets every event before it is shown; `request_permission` returns the id of an option."""

    intent: EditIntent
    target: WorkspaceFile
    next_steps: str
    send: Callable[[JsonObject], None]
    request_permission: Callable[[JsonObject], str]
    observe: Callable[[Event | EditEvent], None]
    call: JsonObject | None = None  # in its last state
    message: str = ""  # what became of the file

    def __post_init__(self) -> None:
        lines = parse_line_range(self.intent.line_range) if self.intent.line_range else None
        self.order = EditOrder(self.intent.instruction, (self.target,), lines, next_steps=self.next_steps)

    def run(self, session: EditSession, consent: EditConsent, write: Write | None = None) -> None:
        """Run the edit; a SpecchatError says why the file is unchanged."""
        try:
            drive(edit(self.order, session, consent, write), self._on_event, self._decide)
        except (SpecchatError, OSError) as error:
            self._end(updates.FAILED, "" if isinstance(error, CancelledError) else str(error))
            raise

    def _on_event(self, event: Event | EditEvent) -> None:
        self.observe(event)
        match event:
            case AcceptedEdit():
                self._show(event)
            case Rejected(diff=diff):
                self.send(updates.chunk(updates.THOUGHT_CHUNK, f"{diff}\n"))
            case Written(edits=[written], undo_number=number):
                self.message = _describe(written, number)
                self._end(updates.COMPLETED)
            case _:
                pass

    def _decide(self, proposed: Proposed) -> Decision:
        self.observe(proposed)
        return Decision(ANSWER_BY_OPTION.get(self.request_permission(self._show(proposed)), Answer.NO))

    def _show(self, edit: Proposed | AcceptedEdit) -> JsonObject:
        """Send the diff, once, and what to look at closely. The texts have their own line ends."""
        if self.call is None:
            source, path = edit.source, str(self.target.path)
            new = source.encode(edit.new if isinstance(edit, Proposed) else edit.text).decode(source.codec)
            old = None if edit.file.is_new else source.raw.decode(source.codec)
            content = [updates.diff_content(path, old, new)]
            if warning := edit.result.warnings.summary:
                content.append(updates.text_content(f"look closely: {warning}"))
            line = diff_hunks(source.text, edit.result.text)[0].first + 1
            self.call = updates.tool_call(
                f"edit-{uuid4().hex[:12]}", self.target.title, "edit", "pending",
                locations=[{"path": path, "line": line}], content=content,
            )  # fmt: skip
            self.send(dict(self.call))
        return updates.permission_call(self.call)

    def _end(self, status: str, error: str = "") -> None:
        if self.call:
            self.call["status"] = status
            self.send(
                updates.tool_call_end(str(self.call["toolCallId"]), is_done=status == updates.COMPLETED, text=error)
            )


def _describe(edit: AcceptedEdit, undo_number: int) -> str:
    """What became of one file: "a.py: 2 changes written; `specchat undo 3` undoes it."."""
    count = f"{edit.total_hunks} change{'' if edit.total_hunks == 1 else 's'} written"
    undo = f"`specchat undo {undo_number}` undoes it" if undo_number else ""
    facts = ["created" if edit.file.is_new else count, edit.result.warnings.summary, undo]
    return f"{edit.source.name}: {'; '.join(filter(None, facts))}."
