"""What MCP servers answer, as text for a model: bounded, with a word for what is left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from specchat.app.agent.agent_tool import ToolOutcome
from specchat.chat.shortened_text import bounded
from specchat.errors import InputError

if TYPE_CHECKING:
    from mcp_types import CallToolResult, GetPromptResult, ReadResourceResult

MAX_RESULT_CHARACTERS = 30_000


def outcome(result: CallToolResult) -> ToolOutcome:
    text = "\n".join(filter(None, map(_content_text, result.content)))
    if result.structured_content is not None and not any(each.type == "text" for each in result.content):
        text = "\n".join(filter(None, [text, json.dumps(result.structured_content, ensure_ascii=False)]))
    return ToolOutcome(bounded(text, MAX_RESULT_CHARACTERS) or "(no output)", bool(result.is_error))


def prompt_text(result: GetPromptResult) -> str:
    """The messages of a prompt as one request; with several roles, each message names its own."""
    roles = {message.role for message in result.messages}
    texts = [_content_text(message.content) for message in result.messages]
    if roles <= {"user"}:
        return "\n\n".join(filter(None, texts))
    pairs = zip(result.messages, texts, strict=True)
    return "\n\n".join(f"{message.role}: {text}" for message, text in pairs if text)


def resource_text(name: str, result: ReadResourceResult) -> str:
    texts = [getattr(each, "text", None) for each in result.contents]
    if not texts or None in texts:
        raise InputError(f"{name}: is not text, and only text can be attached")
    return "\n".join(map(str, texts))


def _content_text(content: Any) -> str:
    match content.type:
        case "text":
            return content.text
        case "image" | "audio":
            return f"[{content.type} ({content.mime_type}) left out]"
        case "resource_link":
            return f"[resource {content.uri}]"
        case "resource":
            text = getattr(content.resource, "text", None)
            return f"[resource {content.resource.uri}: binary, left out]" if text is None else text
        case other:
            return f"[{other} left out]"
