"""OpenAI's `/v1/chat/completions`: a body to a request, an answer to its objects. Knows no network and no model."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from specchat.chat.events import CommittedToken, ThinkingDelta, ToolCallDelta
from specchat.chat.request import AnswerFormat
from specchat.chat.tools import ToolCall, ToolResult
from specchat.host.protocol import new_id
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import ApiError, RequestError
from specchat_serve.engine_request import (
    ASSISTANT,
    SYSTEM,
    USER,
    AnswerOptions,
    Message,
    build_engine_request,
    content_text,
)
from specchat_serve.json_fields import (
    Body,
    JsonObject,
    UnsupportedFields,
    checked_body,
    parse_format,
    parse_message_role,
)
from specchat_serve.openai_objects import DONE_EVENT, FINGERPRINT, completion_usage, error_body
from specchat_serve.replies import EVENT_STREAM, TranslatedRequest, sse_event
from specchat_serve.tool_fields import FUNCTION, listed_calls, parse_call_id, parse_functions, parse_openai_tools

MESSAGES, TOOL = "messages", "tool"  # the field; the role of a result
ROLES = {"system": SYSTEM, "developer": SYSTEM, "user": USER, "assistant": ASSISTANT}
MAX_TOP_LOGPROBS = 4  # as many as the engine gives
SMALLEST_LOGPROB = -9999.0  # of a probability that is 0 when rounded, as OpenAI has it
THINKING_OPTIONS = ("enable_thinking", "thinking")  # of chat templates
FUNCTIONS_UNSUPPORTED = "OpenAI has replaced this field; use tools, tool_choice and messages with the role tool"
FORMAT_UNSUPPORTED = "use response_format for structured output"
UNSUPPORTED_FIELDS: UnsupportedFields = {
    "n": ((1,), "only one answer per request"),
    "best_of": ((1,), "only one answer per request"),
    "functions": (([],), FUNCTIONS_UNSUPPORTED),
    "function_call": (("none", "auto"), FUNCTIONS_UNSUPPORTED),
    "logit_bias": (({},), "not supported"),
    "modalities": ((["text"],), "only text is supported"),
    "audio": ((), "only text is supported"),
    "web_search_options": ((), "web search is not supported"),
    "grammar": (("",), FORMAT_UNSUPPORTED),
    "structured_outputs": (({},), FORMAT_UNSUPPORTED),
    "guided_json": ((), FORMAT_UNSUPPORTED),
    "guided_regex": ((), FORMAT_UNSUPPORTED),
    "guided_choice": ((), FORMAT_UNSUPPORTED),
}


@dataclass
class ChatReply:
    model: str
    answer: Answer = field(default_factory=Answer)
    includes_usage: bool = False  # in the last chunk of a stream
    top_logprobs: int = 0  # how many other tokens stand beside each token
    content_type: str = EVENT_STREAM
    id: str = field(default_factory=lambda: f"chatcmpl-{new_id()}")
    created_at: int = field(default_factory=lambda: int(time.time()))

    def begin(self) -> bytes:
        return sse_event(self._chunk({"role": "assistant", "content": ""}))

    def delta(self, delta: Delta) -> bytes:
        """Thinking is never part of the content: it has a field of its own, as with vLLM and DeepSeek."""
        if isinstance(delta, ToolCallDelta):
            return sse_event(self._chunk({"tool_calls": [_call_delta(delta)]}))
        name = "reasoning_content" if isinstance(delta, ThinkingDelta) else "content"
        return sse_event(self._chunk({name: delta.text}))

    def end(self) -> bytes:
        return b"".join([*map(sse_event, self._last_chunks()), DONE_EVENT])

    def failure(self, api_error: ApiError) -> bytes:
        return sse_event(error_body(api_error))

    def whole(self) -> JsonObject:
        thinking = {"reasoning_content": self.answer.thinking} if self.answer.thinking else {}
        calls = (
            {"tool_calls": [_call_object(call) for call in self.answer.tool_calls]} if self.answer.tool_calls else {}
        )
        content = self.answer.text or (None if calls else "")
        message = {"role": "assistant", "content": content, "refusal": None, **thinking, **calls}
        choice = {
            "index": 0, "message": message, "logprobs": self._logprobs(), "finish_reason": self.answer.finish_reason
        }  # fmt: skip
        usage = completion_usage(self.answer)
        return {**self._common_fields("chat.completion"), "choices": [choice], "usage": usage}

    def _last_chunks(self) -> Iterator[JsonObject]:
        """The chunk with the finish reason, and the one with the usage if the client requested it."""
        yield self._chunk({}, self.answer.finish_reason, self._logprobs())
        if self.includes_usage:
            usage = completion_usage(self.answer)
            yield {**self._common_fields("chat.completion.chunk"), "choices": [], "usage": usage}

    def _logprobs(self) -> JsonObject | None:
        if not self.answer.keeps_tokens:
            return None
        content = [_token_object(token, self.top_logprobs) for token in self.answer.text_tokens]
        return {"content": content, "refusal": None}

    def _chunk(self, delta: JsonObject, reason: str | None = None, logprobs: JsonObject | None = None) -> JsonObject:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        usage: JsonObject = {"usage": None} if self.includes_usage else {}
        return {**self._common_fields("chat.completion.chunk"), "choices": [choice], **usage}

    def _common_fields(self, object_type: str) -> JsonObject:
        return {
            "id": self.id, "object": object_type, "created": self.created_at, "model": self.model,
            "system_fingerprint": FINGERPRINT,
        }  # fmt: skip


def _token_object(token: CommittedToken, top_count: int) -> JsonObject:
    likeliest = [_logprob(each.token_bytes, each.probability) for each in token.likeliest[:top_count]]
    return {**_logprob(token.token_bytes, token.probability or 0.0), "top_logprobs": likeliest}


def _logprob(token_bytes: bytes, probability: float) -> JsonObject:
    logprob = math.log(probability) if probability else SMALLEST_LOGPROB
    return {"token": token_bytes.decode(errors="replace"), "logprob": logprob, "bytes": list(token_bytes)}


def _call_object(call: ToolCall) -> JsonObject:
    return {"id": call.id, "type": FUNCTION, FUNCTION: {"name": call.name, "arguments": call.arguments}}


def _call_delta(delta: ToolCallDelta) -> JsonObject:
    """A piece of a call: the first one of each call has its id and its name."""
    if delta.name:
        return {"index": delta.index, **_call_object(ToolCall(delta.id, delta.name, delta.arguments))}
    return {"index": delta.index, FUNCTION: {"arguments": delta.arguments}}


def translate_chat(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/v1/chat/completions`; RequestError for a wrong or unsupported field."""
    body = checked_body(fields, served_models, UNSUPPORTED_FIELDS)
    limit_name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    options = AnswerOptions(
        max_tokens=body.number(limit_name, int),
        seed=body.number("seed", int),
        temperature=body.number("temperature"),
        stop=body.stop(),
        answer_format=_parse_response_format(body.object("response_format")),
        sampling=body.sampling(),
        thinking=_parse_thinking(body),
        tool_options=parse_openai_tools(body, parse_functions(body)),
        wants_probabilities=body.flag("logprobs"),
    )
    messages = body.filled_list(MESSAGES, "a list that ends with a message of the user")
    parsed = (_parse_message(message, f"{MESSAGES}[{at}]") for at, message in enumerate(messages))
    request = build_engine_request(parsed, options, MESSAGES)
    includes_usage = body.object("stream_options").flag("include_usage")
    answer = Answer(
        request.request.answer_prefix, is_parallel=options.tool_options.is_parallel,
        keeps_tokens=options.wants_probabilities,
    )  # fmt: skip
    reply = ChatReply(served_models[0], answer, includes_usage, _parse_top_logprobs(body))
    return TranslatedRequest(request, reply, body.flag("stream"))


def _parse_top_logprobs(body: Body) -> int:
    count = body.number("top_logprobs", int) or 0
    if not 0 <= count <= MAX_TOP_LOGPROBS:
        raise RequestError(f"top_logprobs: give a number from 0 to {MAX_TOP_LOGPROBS}", "top_logprobs")
    if count and not body.get("logprobs"):
        raise RequestError("top_logprobs: set logprobs to true, too", "top_logprobs")
    return count


def _parse_message(message: Any, field_path: str) -> Message:
    message, role = parse_message_role(message, (*ROLES, TOOL, FUNCTION), field_path, MESSAGES)
    content = content_text(message.get("content"), field_path, MESSAGES)
    if role == FUNCTION or message.get("function_call"):
        raise RequestError(f"{field_path}: {FUNCTIONS_UNSUPPORTED}", MESSAGES, code="unsupported_parameter")
    if role == TOOL:
        call_id = parse_call_id(message, "tool_call_id", "a message with the role tool", field_path, MESSAGES)
        return Message(USER, "", tool_results=(ToolResult(call_id, "", content),))
    return Message(ROLES[role], content, tuple(_parse_calls(message, field_path)))


def _parse_calls(message: JsonObject, field_path: str) -> Iterator[ToolCall]:
    for call in listed_calls(message, field_path, MESSAGES):
        match call:
            case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}} if call_id and name:
                yield ToolCall(call_id, name, arguments)
            case _:
                message_text = "a tool call has an id, and a function with a name and arguments, which are a text"
                raise RequestError(f"{field_path}: {message_text}", MESSAGES)


def _parse_response_format(response_format: JsonObject) -> AnswerFormat | None:
    """As of the other endpoint, with the schema one level deeper."""
    if isinstance(nested := response_format.get("json_schema"), dict):
        response_format = {**cast("JsonObject", nested), "type": response_format.get("type")}
    hint = "type must be text, json_object, or json_schema with a json_schema.schema"
    return parse_format(response_format, "response_format", hint)


def _parse_thinking(body: Body) -> str | None:
    """Whether the model thinks: `chat_template_kwargs` as with vLLM, or `reasoning_effort` as with OpenAI."""
    options = body.object("chat_template_kwargs")
    if unknown := [name for name in options if name not in THINKING_OPTIONS]:
        raise RequestError(
            f"chat_template_kwargs: only {' and '.join(THINKING_OPTIONS)} are supported, not {unknown[0]}",
            "chat_template_kwargs", code="unsupported_parameter",
        )  # fmt: skip
    for value in options.values():
        if not isinstance(value, bool):
            raise RequestError("chat_template_kwargs: give true or false", "chat_template_kwargs")
        return "on" if value else "off"
    return "off" if body.get("reasoning_effort") == "none" else None
