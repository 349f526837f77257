"""Calls of tools in an editor: updates with kind, file and diff, and the permission of the user for each that acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from specchat.app import updates
from specchat.app.agent.agent_loop import AgentEvent, CallFinished, CallProgressed, CallStarted, LoopEnded
from specchat.app.agent.call_consent import ConsentQuestion
from specchat.app.agent.project_agent import AgentUI
from specchat.app.consent import ALLOW, ALLOW_ALWAYS, ANSWER_BY_OPTION, REJECT, Answer
from specchat.app.updates import call_kind
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.errors import CancelledError, InputError
from specchat.host.protocol import JsonObject
from specchat_editors.acp.client_requests import (
    NOT_ASKED,
    EditorClient,
    PromptTurn,
)
from specchat_editors.acp.turn_reporter import TurnReporter

STOP = "stop"
ANSWERS = {**ANSWER_BY_OPTION, NOT_ASKED: Answer.NO}
CONFIRM_OPTIONS: Sequence[JsonObject] = (
    {"optionId": ALLOW, "name": "Yes", "kind": "allow_once"},
    {"optionId": REJECT, "name": "No", "kind": "reject_once"},
)


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
        self.shown: dict[str, JsonObject] = {}

    @property
    def ui(self) -> AgentUI:
        client, turn = self._reporter.client, self._reporter.turn
        buffers = EditorBuffers(client, turn) if client.can_read_files else None
        return AgentUI(self.ask_consent, self.confirm, buffers=buffers)

    def on_event(self, event: AgentEvent) -> None:
        match event:
            case CallStarted() | CallProgressed() | CallFinished():
                update = updates.call_update(event, self._workspace.path_of)
                self.shown[event.call.id] = {**update, **self.shown.get(event.call.id, {}), **_changing(update)}
                self._reporter.send(update)
            case LoopEnded(reason=reason):
                self._reporter.send(updates.chunk(updates.THOUGHT_CHUNK, f"the work ended early: {reason}\n"))
            case _:
                pass

    def ask_consent(self, question: ConsentQuestion) -> Answer:
        """Show the diff or the command, and ask; an editor that withdraws the question stops the work."""
        shown, locations = updates.text_content(question.summary), list[JsonObject]()
        if change := question.change:
            shown = updates.planned_diff(change, self._workspace.path_of)
            locations = [{"path": shown["path"]}]
        call = updates.tool_call(
            question.call.id,
            question.summary,
            call_kind(question.call),
            "pending",
            content=[shown],
            locations=locations,
        )
        options = [
            {"optionId": ALLOW, "name": "Allow it", "kind": "allow_once"},
            {"optionId": ALLOW_ALWAYS, "name": question.always.capitalize(), "kind": "allow_always"},
            {"optionId": REJECT, "name": "No", "kind": "reject_once"},
            {"optionId": STOP, "name": "No, and stop", "kind": "reject_always"},
        ]
        try:
            chosen = self._ask(call, options)
        except CancelledError:
            return Answer.STOP
        return ANSWERS.get(chosen, Answer.STOP)

    def confirm(self, question: str) -> bool:
        """Whether the user says yes to the first line; the rest is what it is about. InputError without an answer."""
        title, _, text = question.partition("\n")
        id, name = f"question-{uuid4().hex[:12]}", f"{title[0].upper()}{title[1:]}"
        call = updates.tool_call(id, name, "other", "pending", content=[updates.text_content(text)])
        self._reporter.send(call)
        chosen = NOT_ASKED
        try:
            chosen = self._ask(call, CONFIRM_OPTIONS)
        finally:
            self._reporter.send(updates.tool_call_end(id, is_done=chosen == ALLOW))
        if chosen == NOT_ASKED:
            raise InputError("the editor cannot ask you; accept it once in 'specchat chat'")
        return chosen == ALLOW

    def _ask(self, call: JsonObject, options: Sequence[JsonObject]) -> str:
        return self._reporter.client.request_permission(self._reporter.turn, updates.permission_call(call), options)


def _changing(update: JsonObject) -> JsonObject:
    """What the end of a call changes of its begin."""
    return {name: update[name] for name in ("status", "content") if name in update}
