"""Updates of the Agent Client Protocol as JSON: for editors, and for programs that read JSON lines.

Knows no transport, and no SDK: its tests and its clients check the form.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from specchat.app.agent.agent_loop import CallFinished, CallProgressed, CallStarted
from specchat.app.consent import PlannedChange
from specchat.chat.events import REPETITION, TOOL_CALLS
from specchat.chat.tools import ToolCall
from specchat.host.protocol import JsonObject

ANSWER_CHUNK, THOUGHT_CHUNK, USER_CHUNK = "agent_message_chunk", "agent_thought_chunk", "user_message_chunk"
IN_PROGRESS, COMPLETED, FAILED = "in_progress", "completed", "failed"  # states of a tool call

StopReason = Literal["end_turn", "max_tokens", "cancelled"]
STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn", "length": "max_tokens", REPETITION: "max_tokens", "cancelled": "cancelled",
    TOOL_CALLS: "end_turn",  # the calls were the last of the loop
}  # fmt: skip
CallKind = Literal["read", "search", "edit", "execute", "other"]
KINDS: dict[str, CallKind] = {
    "read": "read", "list": "search", "search": "search", "edit": "edit", "write": "edit", "run": "execute",
}  # fmt: skip

PathOf = Callable[[str], Path]  # of the name of a file in a project


def stop_reason(finish_reason: str) -> StopReason:
    """In the words of the protocol; a server may have ends of its own."""
    return STOP_REASONS.get(finish_reason, "end_turn")


def chunk(kind: str, text: str, message_id: str | None = None) -> JsonObject:
    """A piece of a message."""
    return {"sessionUpdate": kind, "content": _text_block(text), **({"messageId": message_id} if message_id else {})}


def tool_call(id: str, title: str, kind: str, status: str = IN_PROGRESS, **fields: Any) -> JsonObject:
    return {"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind, "status": status, **fields}


def tool_call_update(id: str, status: str = IN_PROGRESS, *, title: str | None = None, **fields: Any) -> JsonObject:
    named = {} if title is None else {"title": title}
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, **named, **fields}


def tool_call_end(id: str, *, is_done: bool, text: str = "", title: str | None = None) -> JsonObject:
    """The end of a longer operation; `text` is the error if it failed."""
    content = {"content": [text_content(text)]} if text else {}
    return tool_call_update(id, COMPLETED if is_done else FAILED, title=title, **content)


def permission_call(call: JsonObject) -> JsonObject:
    """A tool call in a request for permission, complete: some editors do not look up the earlier one."""
    return {name: value for name, value in call.items() if name != "sessionUpdate"}


def text_content(text: str) -> JsonObject:
    """A text in a tool call."""
    return {"type": "content", "content": _text_block(text)}


def diff_content(path: str, old: str | None, new: str) -> JsonObject:
    """A change in a tool call; without an old text, of a new file."""
    return {"type": "diff", "path": path, **({} if old is None else {"oldText": old}), "newText": new}


def planned_diff(change: PlannedChange, path_of: PathOf) -> JsonObject:
    return diff_content(str(path_of(change.path)), change.old, change.new)


def call_kind(call: ToolCall) -> CallKind:
    return KINDS.get(call.name, "other")


def call_update(event: CallStarted | CallProgressed | CallFinished, path_of: PathOf) -> JsonObject:
    """The begin or the end of a call that a model makes, or how far it is."""
    if isinstance(event, CallStarted):
        locations = [{"path": str(path_of(event.path))}] if event.path else []
        return tool_call(event.call.id, event.summary, call_kind(event.call), locations=locations)
    if isinstance(event, CallProgressed):
        return tool_call_update(event.call.id, content=[text_content(event.line)])
    diff = [planned_diff(event.change, path_of)] if event.change else []
    status = FAILED if event.outcome.is_error else COMPLETED
    return tool_call_update(event.call.id, status, content=[*diff, text_content(event.outcome.text)])


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}
