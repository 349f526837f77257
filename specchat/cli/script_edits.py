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

from specchat.chat.events import Event, Text, Totals
from specchat.edit.edit_task import Edited, edit
from specchat.edit.edit_turn import Talk, sum_of
from specchat.edit.hunks import hunks_between
from specchat.edit.source_text import Source
from specchat.editors.acp.client_files import File
from specchat.editors.acp.edit_intent import wanted_by_command, wanted_by_words
from specchat.editors.acp.workspace_roots import Places
from specchat.errors import CancelledError, NotTakenError
from specchat.host.client import Conversation, Wish
from specchat.host.protocol import Json, new_id
from specchat.profile import load_profile

COMMAND = re.compile(r"/edit\b\s*(?P<argument>.*)", re.DOTALL)
ALLOW, ALLOW_ALWAYS, REJECT = "allow", "allow-always", "reject"
OPTIONS = [
    {"optionId": ALLOW, "name": "Write it", "kind": "allow_once"},
    {"optionId": ALLOW_ALWAYS, "name": "Write it, and all that follow", "kind": "allow_always"},
    {"optionId": REJECT, "name": "Leave the file as it is", "kind": "reject_once"},
]

Tell = Callable[[Json], None]
Permission = Callable[[str, Json, Flag], str]  # id, tool call, what ends the waiting -> one of the options


def never(_id: str, _call: Json, _stopped: Flag) -> str:
    """The answer of nobody."""
    return REJECT


@dataclass(frozen=True)
class Done:
    """What became of an edit, and what it cost."""

    text: str
    totals: Totals


@dataclass
class Edits:
    """The edits of one program."""

    wish: Wish
    is_asking: bool
    permission: Permission = never
    places: Places = field(default_factory=lambda: Places(Path.cwd()))
    _is_always: bool = False

    def are_wanted(self, text: str) -> bool:
        """Is this an edit, and no question?"""
        return bool(COMMAND.fullmatch(text.strip()) or wanted_by_words(text, [], self.places))

    def run(self, text: str, tell: Tell, hear: Callable[[Event], None], stopped: Flag) -> Done:
        """One edit to its end; a SpecchatError says why the file is as it was, or that the command is not whole."""
        command = COMMAND.fullmatch(text.strip())
        by_words = wanted_by_words(text, [], self.places)
        file = File(by_words or wanted_by_command(command["argument"] if command else "", self.places), self.places)
        source = file.read()
        file.check_writable()

        def hear_all_but_text(event: Event) -> None:
            if not isinstance(event, Text):  # the diff says it better
                hear(event)

        with Conversation(self.wish) as conversation:
            talk = Talk(conversation, stopped, hear_all_but_text, lambda: conversation.switch(conversation.fresh()))
            window = conversation.window or load_profile(self.wish.profile).limits.context  # 0: not known yet
            edited = edit(file.job(source, window), talk)
        try:
            return Done(self._offered(file, source, edited, tell, stopped), sum_of(talk.finished))
        except NotTakenError as error:
            return Done(str(error), sum_of(talk.finished))

    def _offered(self, file: File, source: Source, edited: Edited, tell: Tell, stopped: Flag) -> str:
        hunks = hunks_between(source.text, edited.text)
        new = source.encode(edited.text)
        call = _call(file, source, new.decode(source.codec), hunks[0].first + 1)
        tell({"sessionUpdate": "tool_call", **call})
        status = "failed"
        try:
            self._decide(file, edited, call, stopped)
            file.check_unchanged(source)
            hint = file.write(source, new)
            status = "completed"
        finally:
            tell({"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": status})
        return file.when_written(len(hunks), edited, hint)

    def _decide(self, file: File, edited: Edited, call: Json, stopped: Flag) -> None:
        """NotTakenError for a no. What loses comments or many lines is asked for even when nothing else is."""
        is_grave = edited.flags.verdict is not None
        if is_grave and not self.is_asking:
            raise NotTakenError(f"{file.when_not_taken}: {edited.flags.words}; '--edit ask' lets somebody decide")
        must_ask = self.is_asking and (is_grave or not self._is_always)
        answer = self.permission(str(call["toolCallId"]), call, stopped) if must_ask else ALLOW
        if stopped.is_set():
            raise CancelledError("stopped; nothing is written")
        if answer not in (ALLOW, ALLOW_ALWAYS):
            raise NotTakenError(file.when_not_taken)
        self._is_always = self._is_always or answer == ALLOW_ALWAYS


def _call(file: File, source: Source, new: str, line: int) -> dict[str, Any]:
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
