"""One prompt: events of the engine in, updates for the editor out, and in the end why it ended and what it cost."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from acp.schema import PromptResponse, SessionInfoUpdate, UsageUpdate

from specchat.chat.events import Event, Failed, Finished, Loading, Text, Totals
from specchat.editors.acp.client_requests import Editor, Turn
from specchat.editors.acp.updates import StopReason, ended, message, speculation, work_begins, work_ends
from specchat.errors import HostError, failure

STOP_REASONS: dict[str, StopReason] = {"stop": "end_turn", "length": "max_tokens", "cancelled": "cancelled"}


@dataclass
class Telling:
    """Tells the editor of one turn. Every piece of work that is begun is also ended."""

    editor: Editor
    turn: Turn
    message_id: str = field(default_factory=lambda: uuid4().hex)
    _loading: str = ""  # the piece of work that is under way
    _loaded: int = 0

    def tell(self, *updates: Any) -> None:
        """Updates of the protocol, in order."""
        self.editor.tell(self.turn, *updates)

    def say(self, text: str) -> None:
        """Words of the answer, or about it."""
        self.tell(*message(text, self.message_id))

    def hear(self, event: Event) -> None:
        """What concerns the editor of an event."""
        if isinstance(event, Loading):
            self._note_loading(event)
            return
        self.end_loading(is_done=not isinstance(event, Failed))
        if isinstance(event, Text):
            self.say(event.text)

    def end_loading(self, *, is_done: bool) -> None:
        """The models are there, or never will be."""
        if self._loading:
            self.tell(work_ends(self._loading, is_done=is_done))
            self._loading = ""

    def _note_loading(self, event: Loading) -> None:
        if not self._loading:
            self._loaded += 1
            self._loading = f"loading-{self.message_id[:8]}-{self._loaded}"
            self.tell(work_begins(self._loading, f"Loading the {event.what} model", "other"))


def answer(events: Iterable[Event], telling: Telling, window: int) -> PromptResponse:
    """Hear all events. A model that cannot answer says so in words; only a dead engine is an error."""
    end: Event | None = None
    try:
        for event in events:
            telling.hear(event)
            end = event
    finally:
        with suppress(ConnectionError):
            telling.end_loading(is_done=False)
    match end:
        case Finished(reason=reason, totals=totals):
            tell_usage(telling, totals, window)
            return ended(STOP_REASONS[reason], totals)
        case Failed(message=why, exit_code=HostError.exit_code) if why.startswith("the engine process"):
            raise HostError(why)
        case Failed(message=why, exit_code=code):
            raise failure(why, code)
        case _:
            raise HostError("the answer did not end")


def tell_usage(telling: Telling, totals: Totals, window: int) -> None:
    """How full the window is, and what guessing brought."""
    used = totals.prompt_tokens + totals.tokens
    meta = {"specchat": dict(speculation(totals))}
    update = UsageUpdate(session_update="usage_update", used=used, size=max(window, used), field_meta=meta)
    telling.tell(update)


def title(name: str) -> SessionInfoUpdate:
    """What the conversation is called from now on."""
    return SessionInfoUpdate(session_update="session_info_update", title=name)
