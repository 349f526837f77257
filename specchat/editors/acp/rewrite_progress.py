"""Runs a rewrite and reports its progress to the editor. Writes no file."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from specchat.chat.events import Event, TextDelta
from specchat.edit.edit_task import EditJob, EditResult, run_edit
from specchat.edit.edit_turn import EditRun
from specchat.edit.rewrite_alignment import RewriteAlignment
from specchat.editors.acp.session_updates import tool_call_end, tool_call_progress, tool_call_start
from specchat.editors.acp.turn_reporter import TurnReporter
from specchat.host.client import Conversation

MIN_PERCENT_STEP = 10  # editors draw every update


@dataclass
class RewriteProgress:
    reporter: TurnReporter
    tool_call_id: str
    title: str
    alignment: RewriteAlignment
    _reported_percent: int = 0

    def on_event(self, event: Event) -> None:
        """Update the progress; the text itself is not sent, the diff will show it."""
        if not isinstance(event, TextDelta):
            self.reporter.on_event(event)
            return
        self.alignment.feed(event.text)
        percent = int(100 * self.alignment.fraction_done)
        if percent >= self._reported_percent + MIN_PERCENT_STEP:
            self._reported_percent = percent
            self.reporter.send(tool_call_progress(self.tool_call_id, f"{self.title} ({percent} %)"))


def rewrite_with_progress(
    job: EditJob, conversation: Conversation, reporter: TurnReporter
) -> tuple[EditResult, EditRun]:
    """The new text and its run; an EditError says why there is none."""
    tool_call_id = f"writing-{uuid4().hex[:12]}"
    title = f"{'Writing' if job.first_request else 'Rewriting'} {job.source.name}"
    progress = RewriteProgress(reporter, tool_call_id, title, RewriteAlignment(job.source.text))
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
