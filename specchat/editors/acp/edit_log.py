"""Edits of a conversation, kept so that an editor can be told of them again: a file of JSON lines for each.

The history of the engine process holds what the model was asked and said; an edit is asked beside the conversation, and
its diff and what its user decided are known here alone. Files are whole in a diff, so only the last edits are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acp.schema import AgentMessageChunk, ToolCallStart, UserMessageChunk

from specchat.editors.acp.session_updates import answer_chunks, user_message_chunk
from specchat.host.spawn import history_path

MAX_EDITS = 50
MAX_EDIT_BYTES = 2**20  # of one edit; a larger one is told in words alone

ReplayUpdate = UserMessageChunk | AgentMessageChunk | ToolCallStart


@dataclass(frozen=True)
class LoggedEdit:
    """What was asked and said, behind which turn of the conversation ("" for none), and the diff, if there was one.

    `offer` is a `tool_call` of the protocol in its last state.
    """

    after_turn: str
    prompt: str
    answer: str
    tool_call: dict[str, Any] | None = None

    def replay(self) -> Iterator[ReplayUpdate]:
        """As it would have been heard."""
        yield user_message_chunk(self.prompt)
        if self.tool_call:
            yield ToolCallStart.model_validate(self.tool_call)
        yield from answer_chunks(self.answer)


def log_edit(session: str, edit: LoggedEdit) -> None:
    """Keep one edit. A disk that is full costs the memory of it, never the edit."""
    line = json.dumps(asdict(edit))
    if len(line) > MAX_EDIT_BYTES:
        line = json.dumps(asdict(LoggedEdit(edit.after_turn, edit.prompt, edit.answer)))
    with suppress(OSError):
        path = _log_path(session)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        new = path.with_suffix(f".{os.getpid()}")
        new.touch(mode=0o600)
        new.write_text("".join(f"{each}\n" for each in [*known, line][-MAX_EDITS:]), encoding="utf-8")
        new.replace(path)


def logged_edits(session: str) -> Sequence[LoggedEdit]:
    """All that is kept of a conversation, in order; what cannot be read is as if it had not been."""
    try:
        lines = _log_path(session).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [edit for line in lines if (edit := _parse_record(line))]


def _parse_record(line: str) -> LoggedEdit | None:
    try:
        edit = LoggedEdit(**json.loads(line))
        list(edit.replay())
    except (TypeError, ValueError):  # also what pydantic finds wrong
        return None
    return edit


def _log_path(session: str) -> Path:
    return history_path().parent / "acp-edits" / f"{session}.jsonl"
