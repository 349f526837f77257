"""One edit of a file: the events of the verb as updates for the editor, and its consent as a permission request.

The editor writes the file if it can, so that its own review shows the change. Otherwise this process writes it, and
`specchat undo` can undo it. The text is that of the editor's buffer, saved or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from acp.schema import FileEditToolCallContent, PromptResponse, ToolCallStart

from specchat.acp.client_requests import (
    edit_tool_call,
    prompt_response,
    text_content,
    thought_chunk,
    tool_call_end,
    tool_call_progress,
    tool_call_start,
)
from specchat.acp.turn_reporter import TurnReporter, send_usage
from specchat.app.consent import ANSWER_BY_OPTION, Answer, Decision, EditConsent
from specchat.app.edit import drive, edit, write_files
from specchat.app.edit_events import (
    AcceptedEdit,
    EditEvent,
    EditOrder,
    Proposed,
    RawChange,
    Rejected,
    Rewriting,
    Written,
    describe_written,
)  # fmt: skip
from specchat.app.edit_session import EditSession
from specchat.chat.events import Event, Routed, TextDelta
from specchat.chat.sum_totals import sum_totals
from specchat.edit.edit_intent import EditIntent
from specchat.edit.edit_plan import parse_line_range
from specchat.edit.edit_target import EditTarget
from specchat.edit.rewrite_alignment import RewriteAlignment
from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.errors import CancelledError, SpecchatError
from specchat.host.client import SessionRequest

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
            self.reporter.send(tool_call_progress(self.tool_call_id, f"{self.title} ({percent} %)"))


@dataclass(frozen=True)
class FileEditSettings:
    workspace: WorkspaceRoots
    session_request: SessionRequest
    asks_permission: bool


class FileEdit:
    def __init__(self, intent: EditIntent, settings: FileEditSettings, reporter: TurnReporter) -> None:
        self.settings, self.reporter = settings, reporter
        self.client, self.turn = reporter.client, reporter.turn
        read_buffer = lambda path: self.client.read_file(self.turn, path)
        self.target = EditTarget(intent.path, settings.workspace, read_buffer, self.client.can_write_files)
        lines = parse_line_range(intent.line_range) if intent.line_range else None
        self._order = EditOrder(intent.instruction, (self.target,), lines, next_steps=NEXT_STEPS)
        self._consent = EditConsent(asks=settings.asks_permission)
        self.tool_call: ToolCallStart | None = None  # in its last state
        self.message = ""  # the result, for the user
        self._progress: RewriteProgress | None = None

    @property
    def allows_always(self) -> bool:
        """Whether the user permitted this edit and all later ones."""
        return self.settings.asks_permission and not self._consent.asks

    def run(self) -> PromptResponse:
        """Run the edit; a SpecchatError says why the file is unchanged."""
        with EditSession(self.settings.session_request, self.turn.cancelled, "acp") as session:
            try:
                drive(edit(self._order, session, self._consent, self._write), self._on_event, self._decide)
            except (SpecchatError, OSError) as error:
                self._end_progress(is_done=False)
                self._end_call("" if isinstance(error, CancelledError) else str(error))
                raise
            window = session.window_tokens
            totals = sum_totals([each for run in session.runs for each in run.finished_turns])
        self.reporter.send_text(self.message)
        send_usage(self.reporter, totals, window)
        return prompt_response("end_turn", totals)

    def _on_event(self, event: Event | EditEvent) -> None:
        match event:
            case Rewriting(source=source, is_new=is_new):
                id, title = f"writing-{uuid4().hex[:12]}", f"{'Writing' if is_new else 'Rewriting'} {source.name}"
                self._progress = RewriteProgress(self.reporter, id, title, source.text)
                self.reporter.send(tool_call_start(id, title, "think"))
            case Rejected(diff=diff):
                self.reporter.send(thought_chunk(f"{diff}\n"))
            case AcceptedEdit():
                self._start_call(event)
            case Written(edits=[written], undo_number=number):
                self.message = describe_written(written, number)
                self._end_call()
            case EditEvent():
                pass
            case _:
                if self._progress:
                    self._progress.on_event(event)

    def _decide(self, proposed: Proposed) -> Decision:
        option = self.client.request_permission(self.turn, self._start_call(proposed))
        return Decision(ANSWER_BY_OPTION.get(option, Answer.NO))

    def _start_call(self, edit: Proposed | AcceptedEdit) -> ToolCallStart:
        """Show the diff, and what to look at closely."""
        self._end_progress(is_done=True)
        if self.tool_call is None:
            change = RawChange.of(edit)
            diff = FileEditToolCallContent(
                type="diff", path=str(self.target.path), new_text=change.new, old_text=change.old
            )
            self.tool_call = edit_tool_call(f"edit-{uuid4().hex[:12]}", self.target.title, diff, change.line)
            if warning := edit.result.warnings.summary:
                self.tool_call.content = [diff, text_content(f"look closely: {warning}")]
            self.reporter.send(self.tool_call)
        return self.tool_call

    def _end_progress(self, *, is_done: bool) -> None:
        if progress := self._progress:
            self._progress = None
            self.reporter.send(tool_call_end(progress.tool_call_id, is_done=is_done, title=progress.title))

    def _end_call(self, error: str | None = None) -> None:
        """The end of the tool call, if it has begun; `error` says why nothing is written."""
        if call := self.tool_call:
            is_done = error is None
            self.tool_call = call.model_copy(update={"status": "completed" if is_done else "failed"})
            self.reporter.send(tool_call_end(call.tool_call_id, is_done=is_done, text=error or ""))

    def _write(self, instruction: str, edits: Sequence[AcceptedEdit]) -> int:
        """Write the file, by the editor, which has its own undo, or directly."""
        [accepted], target = edits, self.target
        target.check_unchanged(accepted.source)
        if self.tool_call:
            self.reporter.send(tool_call_progress(self.tool_call.tool_call_id))
        if self.turn.cancelled.is_set():
            raise CancelledError("stopped; nothing is written")
        if not target.is_written_by_editor:
            return write_files(instruction, edits)
        self.client.write_file(self.turn, target.path, accepted.new_bytes.decode(accepted.source.codec))
        return 0
