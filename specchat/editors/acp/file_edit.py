"""One file as somebody wants it: written by the model, shown as a diff, and after a yes written once.

The editor writes where it can, because its own review is made of that; else we do, and `specchat undo` takes it back.
The text is that of the editor's buffer, saved or not.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from acp.schema import FileEditToolCallContent, PromptResponse, ToolCallStart

from specchat.edit.edit_intent import EditIntent
from specchat.edit.edit_target import EditTarget
from specchat.edit.edit_task import EditResult
from specchat.edit.edit_turn import sum_totals
from specchat.edit.hunks import diff_hunks
from specchat.edit.source_text import Source
from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.editors.acp.rewrite_progress import rewrite_with_progress
from specchat.editors.acp.session_updates import (
    ALLOW,
    ALLOW_ALWAYS,
    edit_tool_call,
    prompt_response,
    tool_call_end,
    tool_call_progress,
)
from specchat.editors.acp.turn_reporter import TurnReporter, send_usage
from specchat.errors import CancelledError, DeclinedError, SpecchatError
from specchat.host.client import Conversation, SessionRequest


@dataclass(frozen=True)
class FileEditSettings:
    """Under what terms files are edited: where, by whom, in how large a window, and whether somebody is asked."""

    workspace: WorkspaceRoots
    session_request: SessionRequest
    window_tokens: int
    asks_permission: bool


class FileEdit:
    """One edit from the wish to the file, which need not be there yet."""

    def __init__(self, intent: EditIntent, settings: FileEditSettings, reporter: TurnReporter) -> None:
        self.settings, self.reporter = settings, reporter
        self.client, self.turn = reporter.client, reporter.turn
        self.target = EditTarget(intent, settings.workspace, lambda path: self.client.read_file(self.turn, path))
        self.allows_always = False  # the user wants no more questions
        self.tool_call: ToolCallStart | None = None  # as it was shown last
        self.message = ""  # what became of it

    def run(self) -> PromptResponse:
        """All of it; a SpecchatError says why the file is as it was."""
        source = self.target.read()
        if not self.client.can_write_files:
            self.target.check_writable()
        with Conversation(self.settings.session_request, "acp") as conversation:
            window = conversation.context_window or self.settings.window_tokens
            edited, talk = rewrite_with_progress(self.target.make_job(source, window), conversation, self.reporter)
        self.message = self._review_and_write(source, edited)
        self.reporter.send_text(self.message)
        totals = sum_totals(talk.finished_turns)
        send_usage(self.reporter, totals, window)
        return prompt_response("end_turn", totals)

    def _review_and_write(self, source: Source, edited: EditResult) -> str:
        """Show it, ask if that is wanted or wise, write it; what became of it, in words."""
        hunks = diff_hunks(source.text, edited.text)
        new = source.encode(edited.text)
        diff = FileEditToolCallContent(
            type="diff", path=str(self.target.path), new_text=new.decode(source.codec),
            old_text=None if self.target.is_new else source.raw.decode(source.codec),
        )  # fmt: skip
        offer = edit_tool_call(f"edit-{uuid4().hex[:12]}", self.target.title, diff, hunks[0].first + 1)
        with self._reported_tool_call(offer):
            self._ask_permission(
                offer, asks_permission=self.settings.asks_permission or edited.warnings.worst_problem is not None
            )
            self.target.check_unchanged(source)
            self.reporter.send(tool_call_progress(offer.tool_call_id))
            hint = self._write(source, new)
        return self.target.written_message(len(hunks), edited, hint)

    @contextmanager
    def _reported_tool_call(self, tool_call: ToolCallStart) -> Generator[None]:
        """A piece of work for the editor, with how it ended."""
        self.reporter.send(tool_call)
        self.tool_call = tool_call.model_copy(update={"status": "failed"})
        try:
            yield
        except (SpecchatError, OSError) as error:
            why = "" if isinstance(error, CancelledError) else str(error)
            self.reporter.send(tool_call_end(tool_call.tool_call_id, is_done=False, text=why))
            raise
        self.tool_call = tool_call.model_copy(update={"status": "completed"})
        self.reporter.send(tool_call_end(tool_call.tool_call_id, is_done=True))

    def _ask_permission(self, tool_call: ToolCallStart, *, asks_permission: bool) -> None:
        """NotTakenError for a no."""
        answer = self.client.request_permission(self.turn, tool_call) if asks_permission else ALLOW
        if answer not in (ALLOW, ALLOW_ALWAYS):
            raise DeclinedError(self.target.declined_message)
        self.allows_always = answer == ALLOW_ALWAYS

    def _write(self, source: Source, new: bytes) -> str:
        """One of the two, once. Returns how it can be taken back, if not in the editor."""
        if self.turn.cancelled.is_set():
            raise CancelledError("stopped; nothing is written")
        if self.client.can_write_files:
            self.client.write_file(self.turn, self.target.path, new.decode(source.codec))
            return ""
        return self.target.write(source, new)
