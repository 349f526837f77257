"""Stores the edits of a conversation for its replay: one file of JSON lines for each conversation.

The history of the engine process holds requests and answers. An edit runs in a session of its own, so its diff and the
user's decision are stored here. A diff holds whole files, so only the last edits are stored.
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
MAX_EDIT_BYTES = 2**20  # a larger edit is stored without its diff

OLD_FIELDS = {"after": "after_turn", "asked": "prompt", "said": "answer", "offer": "tool_call"}  # of earlier versions

ReplayUpdate = UserMessageChunk | AgentMessageChunk | ToolCallStart


@dataclass(frozen=True)
class LoggedEdit:
    """The prompt and the answer of an edit, the turn before it ("" for none), and the diff, if there was one.

    `tool_call` is a `tool_call` of the protocol in its last state.
    """

    after_turn: str
    prompt: str
    answer: str
    tool_call: dict[str, Any] | None = None

    def replay(self) -> Iterator[ReplayUpdate]:
        yield user_message_chunk(self.prompt)
        if self.tool_call:
            yield ToolCallStart.model_validate(self.tool_call)
        yield from answer_chunks(self.answer)


def log_edit(session: str, edit: LoggedEdit) -> None:
    """Store one edit. A full disk loses the log entry, never the edit."""
    line = json.dumps(asdict(edit))
    if len(line) > MAX_EDIT_BYTES:
        line = json.dumps(asdict(LoggedEdit(edit.after_turn, edit.prompt, edit.answer)))
    with suppress(OSError):
        path = _log_path(session)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        new = path.with_suffix(f".{os.getpid()}")
        new.touch(mode=0o600)
        new.write_text("".join(f"{each}\n" for each in [*lines, line][-MAX_EDITS:]), encoding="utf-8")
        new.replace(path)


def logged_edits(session: str) -> Sequence[LoggedEdit]:
    """All stored edits of a conversation, in order; unreadable ones are skipped."""
    try:
        lines = _log_path(session).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [edit for line in lines if (edit := _parse_record(line))]


def _parse_record(line: str) -> LoggedEdit | None:
    try:
        record: dict[str, Any] = json.loads(line)
        edit = LoggedEdit(**{OLD_FIELDS.get(name, name): value for name, value in record.items()})
        list(edit.replay())
    except (AttributeError, TypeError, ValueError):  # including pydantic's ValidationError
        return None
    return edit


def _log_path(session: str) -> Path:
    return history_path().parent / "acp-edits" / f"{session}.jsonl"
