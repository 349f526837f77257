"""Calls of tools in an editor: updates with kind, file and diff, and the permission of the user for each that acts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from acp import schema

from specchat.acp.client_requests import (
    NOT_ASKED,
    EditorClient,
    PromptTurn,
    text_content,
    thought_chunk,
    tool_call_end,
    tool_call_start,
)
from specchat.acp.turn_reporter import TurnReporter
from specchat.app.agent.agent_loop import AgentEvent, CallFinished, CallStarted, LoopEnded
from specchat.app.agent.call_consent import ConsentQuestion
from specchat.app.agent.call_lines import call_kind
from specchat.app.agent.project_agent import AgentUI
from specchat.app.consent import ALLOW, ALLOW_ALWAYS, ANSWER_BY_OPTION, REJECT, Answer, PlannedChange
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.errors import CancelledError, InputError

STOP = "stop"
ANSWERS = {**ANSWER_BY_OPTION, NOT_ASKED: Answer.NO}
CONFIRM_OPTIONS = [
    schema.PermissionOption(option_id=ALLOW, name="Yes", kind="allow_once"),
    schema.PermissionOption(option_id=REJECT, name="No", kind="reject_once"),
]


@dataclass(frozen=True)
class EditorBuffers:
    """The texts of an editor as the tools see them during one prompt: what is in its buffers, saved or not."""

    client: EditorClient
    turn: PromptTurn

    @property
    def can_write(self) -> bool:
        return self.client.can_write_files

    def read(self, path: Path) -> str | None:
        return self.client.read_file(self.turn, path)

    def write(self, path: Path, text: str) -> None:
        self.client.write_file(self.turn, path, text)


class ToolCallReporter:
    """Reports the calls of one prompt. `shown` are all so far, in their last state."""

    def __init__(self, reporter: TurnReporter, workspace: WorkspaceRoots) -> None:
        self._reporter, self._workspace = reporter, workspace
        self.shown: dict[str, schema.ToolCallStart] = {}

    @property
    def ui(self) -> AgentUI:
        client, turn = self._reporter.client, self._reporter.turn
        buffers = EditorBuffers(client, turn) if client.can_read_files else None
        return AgentUI(self.ask_consent, self.confirm, buffers=buffers)

    def on_event(self, event: AgentEvent) -> None:
        match event:
            case CallStarted(call=call, summary=summary, path=path):
                start = tool_call_start(call.id, summary, call_kind(call))
                if path:
                    start.locations = [schema.ToolCallLocation(path=str(self._workspace.path_of(path)))]
                self.shown[call.id] = start
                self._reporter.send(start)
            case CallFinished(call=call, outcome=outcome, change=change):
                end = tool_call_end(call.id, is_done=not outcome.is_error, text=outcome.text)
                if change:
                    end.content = [self._diff(change), *(end.content or ())]
                changed = {"status": end.status, "content": end.content}
                self.shown[call.id] = self.shown[call.id].model_copy(update=changed)
                self._reporter.send(end)
            case LoopEnded(reason=reason):
                self._reporter.send(thought_chunk(f"the work ended early: {reason}\n"))
            case _:
                pass

    def ask_consent(self, question: ConsentQuestion) -> Answer:
        """Show the diff or the command, and ask; an editor that withdraws the question stops the work."""
        tool_call = tool_call_start(question.call.id, question.summary, call_kind(question.call))
        tool_call.status = "pending"
        shown: Any = text_content(question.summary)
        if change := question.change:
            shown = self._diff(change)
            tool_call.locations = [schema.ToolCallLocation(path=shown.path)]
        tool_call.content = [shown]
        options = [
            schema.PermissionOption(option_id=ALLOW, name="Allow it", kind="allow_once"),
            schema.PermissionOption(option_id=ALLOW_ALWAYS, name=question.always.capitalize(), kind="allow_always"),
            schema.PermissionOption(option_id=REJECT, name="No", kind="reject_once"),
            schema.PermissionOption(option_id=STOP, name="No, and stop", kind="reject_always"),
        ]
        try:
            chosen = self._reporter.client.request_permission(self._reporter.turn, tool_call, options)
        except CancelledError:
            return Answer.STOP
        return ANSWERS.get(chosen, Answer.STOP)

    def confirm(self, question: str) -> bool:
        """Whether the user says yes to the first line; the rest is what it is about. InputError without an answer."""
        title, _, text = question.partition("\n")
        tool_call = tool_call_start(f"question-{uuid4().hex[:12]}", f"{title[0].upper()}{title[1:]}", "other")
        tool_call.status, tool_call.content = "pending", [text_content(text)]
        self._reporter.send(tool_call)
        chosen = NOT_ASKED
        try:
            chosen = self._reporter.client.request_permission(self._reporter.turn, tool_call, CONFIRM_OPTIONS)
        finally:
            self._reporter.send(tool_call_end(tool_call.tool_call_id, is_done=chosen == ALLOW))
        if chosen == NOT_ASKED:
            raise InputError("the editor cannot ask you; accept it once in 'specchat chat'")
        return chosen == ALLOW

    def _diff(self, change: PlannedChange) -> schema.FileEditToolCallContent:
        path = str(self._workspace.path_of(change.path))
        return schema.FileEditToolCallContent(type="diff", path=path, old_text=change.old, new_text=change.new)
