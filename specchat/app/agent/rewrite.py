"""Rewrites a file for the tool `edit`: the verb without its review, because the consent of the call decides."""

from __future__ import annotations

import threading
from collections.abc import Callable

from specchat.app.agent.change_tools import Rewrite
from specchat.app.chat_state import ChatState
from specchat.app.consent import EditConsent
from specchat.app.edit import rewrite_text
from specchat.app.edit_events import EditOrder
from specchat.app.edit_progress import ProgressLine
from specchat.app.edited_files import HeldText
from specchat.app.file_edits import open_edit_session
from specchat.edit.edit_plan import Region
from specchat.edit.source_text import Source


def session_rewrite(chat: ChatState, show: Callable[[str], None]) -> Rewrite:
    """Rewrites in a session of its own, beside this conversation, with the models that it has."""

    def rewrite(source: Source, instruction: str, region: Region | None, cancelled: threading.Event) -> tuple[str, str]:
        on_answer = ProgressLine(source.text, show).on_event
        order = EditOrder(instruction, (HeldText(source),), region, writes=False)
        with open_edit_session(chat, cancelled) as session:
            accepted = rewrite_text(order, session, EditConsent(can_ask=False, allows_loss=True), on_answer)
        return accepted.text, accepted.result.warnings.summary

    return rewrite
