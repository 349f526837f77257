"""One edit of a file: rewritten by the model, shown as a diff, permitted by the user, written once.

The editor writes the file if it can, so that its own review shows the change. Otherwise this process writes it, and
`specchat undo` can undo it. The text is that of the editor's buffer, saved or not.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from acp.schema import FileEditToolCallContent, PromptResponse, ToolCallStart

from specchat.acp.client_requests import (
    ALLOW,
    ALLOW_ALWAYS,
    edit_tool_call,
    prompt_response,
    text_content,
    tool_call_end,
    tool_call_progress,
    tool_call_start,
)
from specchat.acp.turn_reporter import TurnReporter, send_usage
from specchat.chat.events import Event, Routed, TextDelta
from specchat.chat.sum_totals import sum_totals
from specchat.edit.edit_intent import EditIntent
from specchat.edit.edit_target import EditTarget
from specchat.edit.edit_task import EditJob, EditResult, run_edit
from specchat.edit.edit_turn import EditRun
from specchat.edit.hunks import diff_hunks
from specchat.edit.rewrite_alignment import RewriteAlignment
from specchat.edit.source_text import Source
from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.errors import CancelledError, DeclinedError, SpecchatError
from specchat.host.client import Conversation, SessionRequest

MIN_PERCENT_STEP = 10  # editors draw every update


@dataclass
class RewriteProgress:
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


def rewrite_with_progress(
    job: EditJob, conversation: Conversation, reporter: TurnReporter
) -> tuple[EditResult, EditRun]:
    """The new text and its run; an EditError says why there is none."""
    tool_call_id = f"writing-{uuid4().hex[:12]}"
    title = f"{'Writing' if job.first_request else 'Rewriting'} {job.source.name}"
    progress = RewriteProgress(reporter, tool_call_id, title, job.source.text)
    edit_run = EditRun(
        conversation,
        reporter.turn.cancelled,
        progress.on_event,
        lambda: conversation.switch_session(conversation.open_new_session()),
    )
    reporter.send(tool_call_start(tool_call_id, title, "think"))
    is_done = False
    try:
        result = run_edit(job, edit_run)
        is_done = True
        return result, edit_run
    finally:
        reporter.send(tool_call_end(tool_call_id, is_done=is_done, title=title))


@dataclass(frozen=True)
class FileEditSettings:
    workspace: WorkspaceRoots
    session_request: SessionRequest
    asks_permission: bool


class FileEdit:
    def __init__(self, intent: EditIntent, settings: FileEditSettings, reporter: TurnReporter) -> None:
        self.settings, self.reporter = settings, reporter
        self.client, self.turn = reporter.client, reporter.turn
        self.target = EditTarget(intent, settings.workspace, lambda path: self.client.read_file(self.turn, path))
        self.allows_always = False  # the user permits this edit and all later ones
        self.tool_call: ToolCallStart | None = None  # in its last state
        self.message = ""  # the result, for the user

    def run(self) -> PromptResponse:
        """Run the edit; a SpecchatError says why the file is unchanged."""
        source = self.target.read()
        if not self.client.can_write_files:
            self.target.check_writable()
        with Conversation(self.settings.session_request, "acp") as conversation:
            window = conversation.window_tokens
            result, edit_run = rewrite_with_progress(self.target.make_job(source, window), conversation, self.reporter)
        self.message = self._review_and_write(source, result)
        self.reporter.send_text(self.message)
        totals = sum_totals(edit_run.finished_turns)
        send_usage(self.reporter, totals, window)
        return prompt_response("end_turn", totals)

    def _review_and_write(self, source: Source, result: EditResult) -> str:
        """Show the diff, ask for permission if required, and write. Returns the message for the user."""
        hunks = diff_hunks(source.text, result.text)
        new = source.encode(result.text)
        diff = FileEditToolCallContent(
            type="diff", path=str(self.target.path), new_text=new.decode(source.codec),
            old_text=None if self.target.is_new else source.raw.decode(source.codec),
        )  # fmt: skip
        tool_call = edit_tool_call(f"edit-{uuid4().hex[:12]}", self.target.title, diff, hunks[0].first + 1)
        if result.warnings.summary:
            tool_call.content = [diff, text_content(f"look closely: {result.warnings.summary}")]
        with self._reported_tool_call(tool_call):
            is_suspicious = result.warnings.worst_problem is not None
            self._ask_permission(tool_call, asks_permission=self.settings.asks_permission or is_suspicious)
            self.target.check_unchanged(source)
            self.reporter.send(tool_call_progress(tool_call.tool_call_id))
            hint = self._write(source, new)
        return self.target.written_message(len(hunks), result, hint)

    @contextmanager
    def _reported_tool_call(self, tool_call: ToolCallStart) -> Generator[None]:
        self.reporter.send(tool_call)
        self.tool_call = tool_call.model_copy(update={"status": "failed"})
        try:
            yield
        except (SpecchatError, OSError) as error:
            message = "" if isinstance(error, CancelledError) else str(error)
            self.reporter.send(tool_call_end(tool_call.tool_call_id, is_done=False, text=message))
            raise
        self.tool_call = tool_call.model_copy(update={"status": "completed"})
        self.reporter.send(tool_call_end(tool_call.tool_call_id, is_done=True))

    def _ask_permission(self, tool_call: ToolCallStart, *, asks_permission: bool) -> None:
        """DeclinedError when the user declines."""
        option = self.client.request_permission(self.turn, tool_call) if asks_permission else ALLOW
        if option not in (ALLOW, ALLOW_ALWAYS):
            raise DeclinedError(self.target.declined_message)
        self.allows_always = option == ALLOW_ALWAYS

    def _write(self, source: Source, new: bytes) -> str:
        """Write the file, by the editor or directly. Returns a hint how to undo it, unless the editor wrote."""
        if self.turn.cancelled.is_set():
            raise CancelledError("stopped; nothing is written")
        if self.client.can_write_files:
            self.client.write_file(self.turn, self.target.path, new.decode(source.codec))
            return ""
        return self.target.write(source, new)
