"""`specchat script --edit`: files that a program has edited, told in the words of the Agent Client Protocol.

A question is an edit when it is `/edit FILE[:FIRST-LAST] INSTRUCTION`, or an order that can mean nothing else. The diff
comes first, then the permission, then one write, which `specchat undo` takes back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from typing import Any

from specchat.chat.events import Event, TextDelta, Totals
from specchat.edit.edit_intent import intent_from_command, intent_from_text
from specchat.edit.edit_target import EditTarget
from specchat.edit.edit_task import EditResult, run_edit
from specchat.edit.edit_turn import EditRun, sum_totals
from specchat.edit.hunks import diff_hunks
from specchat.edit.source_text import Source
from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.errors import CancelledError, DeclinedError
from specchat.host.client import Conversation, SessionRequest
from specchat.host.protocol import JsonObject, new_id
from specchat.profile import load_profile

EDIT_COMMAND = re.compile(r"/edit\b\s*(?P<argument>.*)", re.DOTALL)
ALLOW, ALLOW_ALWAYS, REJECT = "allow", "allow-always", "reject"
PERMISSION_OPTIONS = [
    {"optionId": ALLOW, "name": "Write it", "kind": "allow_once"},
    {"optionId": ALLOW_ALWAYS, "name": "Write it, and all that follow", "kind": "allow_always"},
    {"optionId": REJECT, "name": "Leave the file as it is", "kind": "reject_once"},
]

SendUpdate = Callable[[JsonObject], None]
RequestPermission = Callable[[str, JsonObject, Flag], str]  # id, tool call, what ends the waiting -> one of the options


def always_reject(_id: str, _call: JsonObject, _stopped: Flag) -> str:
    """The answer of nobody."""
    return REJECT


@dataclass(frozen=True)
class EditOutcome:
    """What became of an edit, and what it cost."""

    message: str
    totals: Totals


@dataclass
class EditRunner:
    """The edits of one program."""

    session_request: SessionRequest
    requires_permission: bool
    request_permission: RequestPermission = always_reject
    workspace_roots: WorkspaceRoots = field(default_factory=lambda: WorkspaceRoots(Path.cwd()))
    _allows_all: bool = False

    def is_edit_request(self, text: str) -> bool:
        """Is this an edit, and no question?"""
        return bool(EDIT_COMMAND.fullmatch(text.strip()) or intent_from_text(text, [], self.workspace_roots))

    def run(self, text: str, send_update: SendUpdate, on_event: Callable[[Event], None], stopped: Flag) -> EditOutcome:
        """One edit to its end; a SpecchatError says why the file is as it was, or that the command is not whole."""
        command = EDIT_COMMAND.fullmatch(text.strip())
        by_words = intent_from_text(text, [], self.workspace_roots)
        file = EditTarget(
            by_words or intent_from_command(command["argument"] if command else "", self.workspace_roots),
            self.workspace_roots,
        )
        source = file.read()
        file.check_writable()

        def hear_all_but_text(event: Event) -> None:
            if not isinstance(event, TextDelta):  # the diff says it better
                on_event(event)

        with Conversation(self.session_request) as conversation:
            talk = EditRun(
                conversation,
                stopped,
                hear_all_but_text,
                lambda: conversation.switch_session(conversation.open_new_session()),
            )
            window = (
                conversation.context_window or load_profile(self.session_request.profile).limits.context
            )  # 0: not known yet
            edited = run_edit(file.make_job(source, window), talk)
        try:
            return EditOutcome(
                self._propose_and_write(file, source, edited, send_update, stopped), sum_totals(talk.finished_turns)
            )
        except DeclinedError as error:
            return EditOutcome(str(error), sum_totals(talk.finished_turns))

    def _propose_and_write(
        self, file: EditTarget, source: Source, edited: EditResult, send_update: SendUpdate, stopped: Flag
    ) -> str:
        hunks = diff_hunks(source.text, edited.text)
        new = source.encode(edited.text)
        call = _tool_call(file, source, new.decode(source.codec), hunks[0].first + 1)
        send_update({"sessionUpdate": "tool_call", **call})
        status = "failed"
        try:
            self._check_permission(file, edited, call, stopped)
            file.check_unchanged(source)
            hint = file.write(source, new)
            status = "completed"
        finally:
            send_update({"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": status})
        return file.written_message(len(hunks), edited, hint)

    def _check_permission(self, file: EditTarget, edited: EditResult, tool_call: JsonObject, stopped: Flag) -> None:
        """NotTakenError for a no. What loses comments or many lines is asked for even when nothing else is."""
        is_grave = edited.warnings.worst_problem is not None
        if is_grave and not self.requires_permission:
            raise DeclinedError(
                f"{file.declined_message}: {edited.warnings.summary}; '--edit ask' lets somebody decide"
            )
        must_ask = self.requires_permission and (is_grave or not self._allows_all)
        answer = self.request_permission(str(tool_call["toolCallId"]), tool_call, stopped) if must_ask else ALLOW
        if stopped.is_set():
            raise CancelledError("stopped; nothing is written")
        if answer not in (ALLOW, ALLOW_ALWAYS):
            raise DeclinedError(file.declined_message)
        self._allows_all = self._allows_all or answer == ALLOW_ALWAYS


def _tool_call(file: EditTarget, source: Source, new: str, line: int) -> dict[str, Any]:
    """A `tool_call` without its kind of update."""
    old = {} if file.is_new else {"oldText": source.raw.decode(source.codec)}
    return {
        "toolCallId": f"edit-{new_id()}",
        "title": file.title,
        "kind": "edit",
        "status": "pending",
        "locations": [{"path": str(file.path), "line": line}],
        "content": [{"type": "diff", "path": str(file.path), **old, "newText": new}],
    }
