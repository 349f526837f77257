"""Rewrites a file for the tool `edit`: the task, the retries and the checks of `specchat edit`, without its review."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from specchat.app.agent.change_tools import Rewrite
from specchat.app.chat_state import ChatState
from specchat.app.file_edits import EditSession, EditUI
from specchat.edit.edit_plan import Region
from specchat.edit.source_text import Source


def session_rewrite(chat: ChatState, show: Callable[[str], None]) -> Rewrite:
    """Rewrites in a session of its own, beside this conversation, with the models that it has."""

    def rewrite(source: Source, instruction: str, region: Region | None, cancelled: threading.Event) -> tuple[str, str]:
        ui = EditUI(lambda _question: "", show, show, lambda _text, _suffix: None, show, cancelled=cancelled)
        with EditSession(chat, ui) as session:
            job = replace(session.make_job(source, instruction), region=region)
            result = session.generate(job, session.make_edit_run(source))
            return result.text, result.warnings.summary

    return rewrite
