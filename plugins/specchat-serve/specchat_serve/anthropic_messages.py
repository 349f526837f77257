"""Anthropic's `/v1/messages`: a body to a request, an answer to a message or its events. Knows no network and no model.

https://docs.anthropic.com/en/api/messages
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from specchat.chat.events import ThinkingDelta, ToolCallDelta
from specchat.chat.request import AnswerFormat
from specchat.chat.tools import ANY_TOOL, NO_TOOL, SOME_TOOL, Tool, ToolCall, ToolResult
from specchat.host.protocol import new_id
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import INTERNAL_SERVER_ERROR, ApiError, RequestError
from specchat_serve.engine_request import (
    ASSISTANT,
    GREETING,
    MESSAGE_SEPARATOR,
    SYSTEM,
    USER,
    AnswerOptions,
    EngineRequest,
    Message,
    build_engine_request,
    content_text,
    thought_text,
)
from specchat_serve.json_fields import (
    REPETITION_DETECTION,
    SAMPLING_FIELDS,
    Body,
    Border,
    JsonObject,
    checked_body,
    parse_json_format,
    parse_message_role,
)
from specchat_serve.replies import EVENT_STREAM, TranslatedRequest, sse_comment, sse_event
from specchat_serve.tool_fields import (
    TOOL_CHOICE,
    TOOLS,
    CallForm,
    ToolOptions,
    arguments_object,
    arguments_text,
    forced_tool,
    leave_out_tool,
    optional_tools,
    parse_call_id,
    parse_tool,
    tool_options,
)

MESSAGES = "messages"
ROLES = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM}
THOUGHTS = ("thinking", "redacted_thinking")  # of earlier answers; the second kind has no text
TEXT_BLOCK, THINKING, TOOL_USE, TOOL_RESULT = "text", "thinking", "tool_use", "tool_result"  # types of blocks
TOOL_CHOICES = {"auto": ANY_TOOL, "any": SOME_TOOL, "none": NO_TOOL}
NOT_PARALLEL = "disable_parallel_tool_use"
CLIENT_TOOLS = (None, "custom")  # types of tools that the client describes and runs
STORES_NOTHING = "this server stores nothing; send the whole conversation as messages"
THREAD = "thread"
NO_THREADS = {"error_code": "thread_unsupported_request", "unsupported": [THREAD]}  # clients then send everything
THINKING_MODES = {None: None, "adaptive": None, "between_tools": None, "disabled": "off", "enabled": "on"}
COMMANDS = ("view", "create", "str_replace", "insert")
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
# Tools that the client runs and the API describes, by their type without its date.
KNOWN_TOOLS: Mapping[str, tuple[str, JsonObject]] = {
    "bash": (
        "Run a command in a shell that stays open. `restart` starts a new shell.",
        {"type": "object", "properties": {"command": TEXT, "restart": {"type": "boolean"}}},
    ),
    "text_editor": (
        "View, create and edit files: show a file, write a new one, replace a text, put a text after a line.",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "enum": [*COMMANDS]}, "path": TEXT, "file_text": TEXT, "old_str": TEXT,
                "new_str": TEXT, "insert_line": NUMBER, "insert_text": TEXT,
                "view_range": {"type": "array", "items": NUMBER},
            },
            "required": ["command", "path"],
        },
    ),
}  # fmt: skip
DATE = re.compile(r"_\d{8}$")  # at the end of the type of a tool
BORDER = Border(
    used=frozenset([
        MESSAGES, "system", "stream", "max_tokens", "temperature", *SAMPLING_FIELDS, "stop_sequences",
        REPETITION_DETECTION, "output_config", THINKING, TOOLS, TOOL_CHOICE,
    ]),
    refused={
        "mcp_servers": (
            (), "this server calls no other one; give their tools as tools, and call them in the client"
        ),
        "container": ((), STORES_NOTHING),
        THREAD: ((), STORES_NOTHING),
    },
    left_out={"context_management": "the server stores no messages; the client shortens them"},
    silent=frozenset(["model", "metadata", "service_tier", "betas", "inference_geo", "cache_control", "speed"]),
)  # fmt: skip
ERROR_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    405: "invalid_request_error", 413: "request_too_large", 503: "overloaded_error",
}  # fmt: skip


@dataclass
class MessageReply:
    model: str
    answer: Answer
    content_type: str = EVENT_STREAM
    id: str = field(default_factory=lambda: f"msg_{new_id()}")
    _open_name: str = ""  # of the block that is being sent
    _block_count: int = 0

    def begin(self) -> bytes:
        prefill = self.answer.prefill
        prompt_tokens, cached = (prefill.prompt_tokens, prefill.cached_tokens) if prefill else (0, 0)
        return _event("message_start", message=self._message([], usage(prompt_tokens, cached, 0)))

    def delta(self, delta: Delta) -> bytes:
        if isinstance(delta, ToolCallDelta):
            opened = self._open_block(delta.id, _call_block(ToolCall(delta.id, delta.name, "")))
            changed = {"type": "input_json_delta", "partial_json": delta.arguments}
            return opened + (self._block_delta(changed) if delta.arguments else b"")
        kind = THINKING if isinstance(delta, ThinkingDelta) else TEXT_BLOCK
        return self._open_block(kind, _block(kind, "")) + self._block_delta({"type": f"{kind}_delta", kind: delta.text})

    def sign_of_life(self, stage: str) -> bytes:
        return sse_comment(stage)

    def end(self) -> bytes:
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": self.answer.stop_text}
        return b"".join([
            b"" if self.answer.tool_calls else self._open_block(TEXT_BLOCK, _block(TEXT_BLOCK, "")),
            self._close_block(),
            _event("message_delta", delta=delta, usage=self._usage()),
            _event("message_stop"),
        ])  # fmt: skip

    def _open_block(self, name: str, block: JsonObject) -> bytes:
        """The events between the last block and this one; none when it is open. A call's block has its id as name."""
        if self._open_name == name:
            return b""
        closed, self._open_name, self._block_count = self._close_block(), name, self._block_count + 1
        return closed + _event("content_block_start", index=self._block_count - 1, content_block=block)

    def _block_delta(self, changed: JsonObject) -> bytes:
        return _event("content_block_delta", index=self._block_count - 1, delta=changed)

    def _close_block(self) -> bytes:
        return _event("content_block_stop", index=self._block_count - 1) if self._open_name else b""

    def failure(self, api_error: ApiError) -> bytes:
        return sse_event(error_body(api_error), "error")

    def whole(self) -> JsonObject:
        thinking = [_block(THINKING, self.answer.thinking)] if self.answer.thinking else []
        calls = [_call_block(call) for call in self.answer.tool_calls]
        text = [_block(TEXT_BLOCK, self.answer.text)] if self.answer.text or not calls else []
        content = [*thinking, *text, *calls]
        ended = {"stop_reason": self._stop_reason(), "stop_sequence": self.answer.stop_text}
        return self._message(content, self._usage()) | ended

    def _message(self, content: list[JsonObject], counted: JsonObject) -> JsonObject:
        return {
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": None, "stop_sequence": None, "usage": counted,
        }  # fmt: skip

    def _stop_reason(self) -> str:
        if self.answer.is_truncated:
            return "max_tokens"
        if self.answer.tool_calls:
            return TOOL_USE
        return "end_turn" if self.answer.stop_text is None else "stop_sequence"

    def _usage(self) -> JsonObject:
        totals = self.answer.totals
        counted = usage(totals.prompt_tokens, totals.cached_tokens, totals.completion_tokens)
        return {**counted, "specchat": self.answer.speculation_stats()}


def _block(kind: str, text: str) -> JsonObject:
    """A block of content. The signature of a thought is for the servers of Anthropic."""
    signature = {"signature": ""} if kind == THINKING else {}
    return {"type": kind, kind: text, **signature}


def _call_block(call: ToolCall) -> JsonObject:
    return {"type": TOOL_USE, "id": call.id, "name": call.name, "input": arguments_object(call.arguments)}


def usage(prompt_tokens: int, cached_tokens: int, output_tokens: int) -> JsonObject:
    """The counts of tokens; `input_tokens` are those that were not cached."""
    return {
        "input_tokens": prompt_tokens - cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": output_tokens,
    }


def error_body(api_error: ApiError) -> JsonObject:
    default = "invalid_request_error" if api_error.status < INTERNAL_SERVER_ERROR else "api_error"
    error_type = ERROR_TYPES.get(api_error.status, default)
    details = {"details": NO_THREADS} if api_error.param == THREAD else {}
    return {"type": "error", "error": {"type": error_type, "message": api_error.message, **details}}


def models_body(models: Sequence[str], started_at: datetime) -> JsonObject:
    """The body of `/v1/models` for a client that sends the header anthropic-version."""
    listed = [model_body(model, started_at) for model in models]
    return {"data": listed, "has_more": False, "first_id": models[0], "last_id": models[-1]}


def model_body(model: str, started_at: datetime) -> JsonObject:
    created_at = started_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": model, "display_name": model, "created_at": created_at}


def translate_message(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/v1/messages`; RequestError for a wrong or unsupported field."""
    body = _checked_body(fields, served_models)
    max_tokens = body.number("max_tokens", int)
    if max_tokens is None:
        raise RequestError("max_tokens: give the most tokens of the answer", "max_tokens")
    request = _parse_conversation(body, max_tokens)
    is_parallel = not body.object(TOOL_CHOICE).flag(NOT_PARALLEL)
    answer = Answer(request.request.answer_prefix, request.request.stop, is_parallel, notices=body.notices)
    reply = MessageReply(served_models[0], answer)
    return TranslatedRequest(request, reply, body.flag("stream"))


def translate_count(fields: JsonObject, served_models: Sequence[str]) -> EngineRequest:
    """A body of `/v1/messages/count_tokens`: the request whose prompt is to be counted."""
    return _parse_conversation(_checked_body(fields, served_models), max_tokens=1)


def _checked_body(fields: JsonObject, served_models: Sequence[str]) -> Body:
    """The body, whose empty conversation begins with a greeting, as with llama-server; a missing one is an error."""
    is_empty = fields.get(MESSAGES) == []
    given = {**fields, MESSAGES: [{"role": USER, "content": GREETING}]} if is_empty else fields
    return checked_body(given, served_models, BORDER)


def _parse_conversation(body: Body, max_tokens: int) -> EngineRequest:
    options = AnswerOptions(
        max_tokens=max_tokens,
        temperature=body.number("temperature"),
        stop=body.stop("stop_sequences"),
        answer_format=_parse_format(body.object("output_config").object("format")),
        sampling=body.sampling(),
        thinking=_parse_thinking(body.object(THINKING).get("type")),
        tool_options=_parse_tools(body),
    )
    messages = body.filled_list(MESSAGES, "a list that begins with a message of the user")
    system = content_text(body.get("system"), "system", "system")
    parsed = [_parse_message(message, f"{MESSAGES}.{at}") for at, message in enumerate(messages)]
    return build_engine_request([Message(SYSTEM, system), *parsed], options, MESSAGES)


def _parse_thinking(mode: Any) -> str | None:
    """Whether the model thinks; without a word of the client, and for adaptive, as the profile says."""
    if mode is not None and (not isinstance(mode, str) or mode not in THINKING_MODES):
        raise RequestError("thinking: the type must be enabled, disabled or adaptive", THINKING)
    return THINKING_MODES[mode]


def _parse_tools(body: Body) -> ToolOptions:
    choice = body.object(TOOL_CHOICE)
    kind = choice.get("type", "auto")
    if kind == "tool":
        chosen = forced_tool(choice.get("name"))
    elif isinstance(kind, str) and kind in TOOL_CHOICES:
        chosen = TOOL_CHOICES[kind]
    else:
        raise RequestError(f"{TOOL_CHOICE}: the type must be auto, any, tool or none", TOOL_CHOICE)
    return tool_options(_parse_offered(body), chosen, is_parallel=not choice.flag(NOT_PARALLEL))


def _parse_offered(body: Body) -> Iterator[tuple[Tool, CallForm]]:
    for at, tool in enumerate(optional_tools(body)):
        field_path = f"{TOOLS}.{at}"
        if not isinstance(tool, dict):
            raise RequestError(f"{field_path}: a tool is an object with a name and an input_schema", TOOLS)
        tool = cast("JsonObject", tool)
        name, kind = tool.get("name"), tool.get("type")
        if kind in CLIENT_TOOLS:
            parsed = parse_tool(name, tool.get("description"), tool.get("input_schema"), field_path)
        elif (known := KNOWN_TOOLS.get(DATE.sub("", str(kind)))) is not None:
            parsed = parse_tool(name, *known, field_path)
        else:
            leave_out_tool(body, str(kind), field_path)
            continue
        yield parsed, CallForm(parsed.name)


def _parse_format(output_format: JsonObject) -> AnswerFormat | None:
    match output_format:
        case {"type": "json_schema", "schema": dict() as schema}:
            return parse_json_format(cast("JsonObject", schema))
        case _ if not output_format:
            return None
        case _:
            raise RequestError(
                "output_config: the type of the format must be json_schema, with a schema", "output_config"
            )


def _parse_message(message: Any, field_path: str) -> Message:
    message, role = parse_message_role(message, ROLES, field_path, MESSAGES)
    content = message.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    calls = [_parse_call(each, field_path) for each in blocks if _is_block(each, TOOL_USE)]
    results = [_parse_result(Body(each), field_path) for each in blocks if _is_block(each, TOOL_RESULT)]
    if (calls and role != "assistant") or (results and role != "user"):
        raise RequestError(f"{field_path}: tool_use is a block of the assistant, tool_result one of the user", MESSAGES)
    if blocks:
        content = [each for each in blocks if not _is_block(each, *THOUGHTS, TOOL_USE, TOOL_RESULT)]
    text = content_text(content, field_path, MESSAGES)
    thoughts = [thought_text(each, THINKING) for each in blocks if _is_block(each, THINKING)]
    return Message(ROLES[role], text, tuple(calls), tuple(results), field_path, MESSAGE_SEPARATOR.join(thoughts))


def _parse_call(block: JsonObject, field_path: str) -> ToolCall:
    match block:
        case {"id": str(call_id), "name": str(name), "input": dict() as arguments} if call_id and name:
            return ToolCall(call_id, name, arguments_text(cast("JsonObject", arguments)))
        case _:
            raise RequestError(f"{field_path}: a tool_use has an id, a name and an input, which is an object", MESSAGES)


def _parse_result(block: Body, field_path: str) -> ToolResult:
    call_id = parse_call_id(block, "tool_use_id", "a tool_result", field_path, MESSAGES)
    text = content_text(block.get("content"), field_path, MESSAGES)
    return ToolResult(call_id, "", text, block.flag("is_error"))


def _is_block(block: Any, *types: str) -> bool:
    return isinstance(block, dict) and cast("JsonObject", block).get("type") in types


def _event(name: str, **fields: Any) -> bytes:
    return sse_event({"type": name, **fields}, name)
