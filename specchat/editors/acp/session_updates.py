"""Constructors for the protocol values that the agent sends. Knows no session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from acp import schema

from specchat.chat.events import Totals

MAX_CHUNK_CHARS = 4096
ALLOW, ALLOW_ALWAYS, REJECT = "allow", "allow-always", "reject"
PERMISSION_OPTIONS = [
    schema.PermissionOption(option_id=ALLOW, name="Write the file", kind="allow_once"),
    schema.PermissionOption(option_id=ALLOW_ALWAYS, name="Write it and allow all later edits", kind="allow_always"),
    schema.PermissionOption(option_id=REJECT, name="Do not change the file", kind="reject_once"),
]

ToolKind = Literal["edit", "other", "think"]
StopReason = Literal["end_turn", "max_tokens", "cancelled"]


def text_block(text: str) -> schema.TextContentBlock:
    return schema.TextContentBlock(type="text", text=text)


def answer_chunks(text: str, message_id: str | None = None) -> Iterator[schema.AgentMessageChunk]:
    """An answer or a part of it; a long one in several chunks."""
    for first in range(0, len(text), MAX_CHUNK_CHARS):
        block = text_block(text[first : first + MAX_CHUNK_CHARS])
        yield schema.AgentMessageChunk(session_update="agent_message_chunk", content=block, message_id=message_id)


def user_message_chunk(text: str, message_id: str | None = None) -> schema.UserMessageChunk:
    return schema.UserMessageChunk(session_update="user_message_chunk", content=text_block(text), message_id=message_id)


def thought_chunk(text: str) -> schema.AgentThoughtChunk:
    return schema.AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))


def tool_call_start(id: str, title: str, kind: ToolKind) -> schema.ToolCallStart:
    return schema.ToolCallStart(
        session_update="tool_call", tool_call_id=id, title=title, kind=kind, status="in_progress"
    )


def tool_call_progress(id: str, title: str | None = None) -> schema.ToolCallProgress:
    return schema.ToolCallProgress(
        session_update="tool_call_update", tool_call_id=id, status="in_progress", title=title
    )


def tool_call_end(id: str, *, is_done: bool, text: str = "", title: str | None = None) -> schema.ToolCallProgress:
    """The end of a longer operation; `text` is the error if it failed."""
    status = "completed" if is_done else "failed"
    update = schema.ToolCallProgress(session_update="tool_call_update", tool_call_id=id, status=status, title=title)
    if text:
        update.content = [schema.ContentToolCallContent(type="content", content=text_block(text))]
    return update


def edit_tool_call(id: str, title: str, diff: schema.FileEditToolCallContent, line: int) -> schema.ToolCallStart:
    """A proposed edit. Editors look for the diff first."""
    return schema.ToolCallStart(
        session_update="tool_call", tool_call_id=id, title=title, kind="edit", status="pending",
        content=[diff], locations=[schema.ToolCallLocation(path=diff.path, line=line)],
    )  # fmt: skip


def permission_tool_call(tool_call: schema.ToolCallStart) -> schema.ToolCallUpdate:
    """The tool call in a permission request, complete: some editors do not look up the earlier one."""
    return schema.ToolCallUpdate(
        tool_call_id=tool_call.tool_call_id, title=tool_call.title, kind=tool_call.kind, status=tool_call.status,
        content=tool_call.content, locations=tool_call.locations,
    )  # fmt: skip


def prompt_response(reason: StopReason, totals: Totals | None = None) -> schema.PromptResponse:
    if totals is None:
        return schema.PromptResponse(stop_reason=reason)
    usage = schema.Usage(
        input_tokens=totals.prompt_tokens, output_tokens=totals.completion_tokens,
        cached_read_tokens=totals.cached_tokens,
        total_tokens=totals.prompt_tokens + totals.completion_tokens,
    )  # fmt: skip
    meta = {"specchat": dict(speculation_stats(totals))}
    return schema.PromptResponse(stop_reason=reason, usage=usage, field_meta=meta)


def speculation_stats(totals: Totals) -> Mapping[str, Any]:
    return {
        "draftTokens": totals.draft_tokens,
        "acceptedTokens": sum(totals.accepted_by_drafter.values()),
        "steps": totals.steps,
        "ttftMs": round(1000 * totals.ttft_seconds),
        "tokensPerSecond": round(totals.tokens_per_second, 1),
        "speedup": None if totals.speedup is None else round(totals.speedup, 2),
    }
