"""Rewrites a file for the tool `edit`: the verb without its review, because the consent of the call decides."""

from __future__ import annotations

import threading
from collections.abc import Callable

from specchat.app.agent.change_tools import Rewrite
from specchat.app.chat_state import ChatState
from specchat.app.consent import EditConsent
from specchat.app.edit import drive, edit
from specchat.app.edit_events import AcceptedEdit, EditEvent, EditOrder, Rejected, Rewriting
from specchat.app.file_edits import open_edit_session
from specchat.chat.events import Event, Notice
from specchat.edit.edit_plan import Region
from specchat.edit.edit_target import HeldText
from specchat.edit.edit_turn import ignore_event
from specchat.edit.rewrite_alignment import ProgressLine
from specchat.edit.source_text import Source
from specchat.errors import EditError


def session_rewrite(chat: ChatState, show: Callable[[str], None]) -> Rewrite:
    """Rewrites in a session of its own, beside this conversation, with the models that it has."""

    def rewrite(source: Source, instruction: str, region: Region | None, cancelled: threading.Event) -> tuple[str, str]:
        rewritten, rejected = list[AcceptedEdit](), list[Rejected]()
        on_answer: Callable[[Event], None] = ignore_event

        def on_event(event: Event | EditEvent) -> None:
            nonlocal on_answer
            match event:
                case Rewriting():
                    on_answer = ProgressLine(source.text, show).on_event
                case Notice(text=text):
                    show(text)
                case AcceptedEdit():
                    rewritten.append(event)
                case Rejected():
                    rejected.append(event)
                case EditEvent():
                    pass
                case _:
                    on_answer(event)

        order = EditOrder(instruction, (HeldText(source),), region, writes=False)
        with open_edit_session(chat, cancelled) as session:
            try:
                drive(edit(order, session, EditConsent(can_ask=False, allows_loss=True)), on_event)
            except EditError as error:  # the model that called sees what was written
                error.args = ("\n".join([str(error), *(each.diff for each in rejected)]),)
                raise
        return rewritten[0].text, rewritten[0].result.warnings.summary

    return rewrite
