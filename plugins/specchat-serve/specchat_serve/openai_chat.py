"""OpenAI's `/v1/chat/completions`: a body to a request, an answer to its objects. Knows no network and no model."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
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
    FORMAT_FIELDS,
    REPETITION_DETECTION,
    SAMPLING_FIELDS,
    STRUCTURED_OUTPUTS,
    Body,
    Border,
    JsonObject,
    checked_body,
    parse_format,
    parse_message_role,
)
from specchat_serve.openai_objects import DONE_EVENT, FINGERPRINT, completion_usage, error_body
from specchat_serve.replies import EVENT_STREAM, TranslatedRequest, sse_comment, sse_event
from specchat_serve.tool_fields import (
    CUSTOM,
    FUNCTION,
    PARALLEL,
    TOOL_CHOICE,
    TOOLS,
    CallForm,
    custom_arguments,
    custom_input,
    listed_calls,
    parse_call_id,
    parse_functions,
    parse_openai_tools,
)

MESSAGES, TOOL = "messages", "tool"  # the field; the role of a result
ROLES = {"system": SYSTEM, "developer": SYSTEM, "user": USER, "assistant": ASSISTANT}
MAX_TOP_LOGPROBS = 20  # as many as the engine gives
SMALLEST_LOGPROB = -9999.0  # of a probability that is 0 when rounded, as OpenAI has it
THINKING_OPTIONS = ("enable_thinking", "thinking")  # of chat templates
FUNCTIONS_UNSUPPORTED = "OpenAI has replaced this field; use tools, tool_choice and messages with the role tool"
ONLY_TEXT = "the model reads and writes text only"
SILENT_FIELDS = frozenset([  # of OpenAI, vLLM and llama.cpp, also in other endpoints
    "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prediction", "cache_prompt", "timings_per_token", "return_progress", "id_slot", "include", "include_reasoning",
    "client_metadata", "model",
])  # fmt: skip
BORDER = Border(
    used=frozenset([
        MESSAGES, "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", *SAMPLING_FIELDS,
        "seed", "stop", REPETITION_DETECTION, "chat_template_kwargs", "reasoning_effort", "response_format", "logprobs",
        "top_logprobs", TOOLS, TOOL_CHOICE, PARALLEL, *FORMAT_FIELDS, STRUCTURED_OUTPUTS,
    ]),
    refused={
        "n": ((1,), "only one answer per request"),
        "best_of": ((1,), "only one answer per request"),
        "functions": ((), FUNCTIONS_UNSUPPORTED),
        "function_call": (("none", "auto"), FUNCTIONS_UNSUPPORTED),
        "logit_bias": ((), "the logits of single tokens cannot be changed"),
        "grammar": ((), "grammars of llama.cpp are not read; give a schema in response_format"),
    },
    left_out={
        "modalities": ONLY_TEXT,
        "audio": ONLY_TEXT,
        "web_search_options": "the server does not search the web",
        "verbosity": "the model does not know it; ask in the messages",
    },
    silent=SILENT_FIELDS,
)  # fmt: skip


@dataclass
class ChatReply:
    model: str
    answer: Answer = field(default_factory=Answer)
    includes_usage: bool = False  # in the last chunk of a stream
    top_logprobs: int = 0  # how many other tokens stand beside each token
    forms: Mapping[str, CallForm] = field(default_factory=dict[str, CallForm])  # of custom tools
    _sent_logprobs: int = 0
    content_type: str = EVENT_STREAM
    id: str = field(default_factory=lambda: f"chatcmpl-{new_id()}")
    created_at: int = field(default_factory=lambda: int(time.time()))

    def begin(self) -> bytes:
        return sse_event(self._chunk({"role": "assistant", "content": ""}))

    def delta(self, delta: Delta) -> bytes:
        """Thinking is never part of the content: it has a field of its own, as with vLLM and DeepSeek."""
        if isinstance(delta, ToolCallDelta):
            if self.answer.called_name(delta) in self.forms:  # its input is known when its arguments have ended
                return b""
            return sse_event(self._chunk({"tool_calls": [_call_delta(delta)]}))
        if isinstance(delta, ThinkingDelta):
            return sse_event(self._chunk({"reasoning_content": delta.text}))
        return sse_event(self._chunk({"content": delta.text}, logprobs=self._new_logprobs()))

    def sign_of_life(self, stage: str) -> bytes:
        return sse_comment(stage)

    def end(self) -> bytes:
        return b"".join([*map(sse_event, self._last_chunks()), DONE_EVENT])

    def _call_object(self, call: ToolCall) -> JsonObject:
        if (form := self.forms.get(call.name)) is None:
            return _call_object(call)
        return {"id": call.id, "type": CUSTOM, CUSTOM: {"name": form.name, "input": custom_input(call.arguments)}}

    def failure(self, api_error: ApiError) -> bytes:
        return sse_event(error_body(api_error))

    def whole(self) -> JsonObject:
        thinking = {"reasoning_content": self.answer.thinking} if self.answer.thinking else {}
        objects = [self._call_object(call) for call in self.answer.tool_calls]
        calls = {"tool_calls": objects} if objects else {}
        content = self.answer.text or (None if calls else "")
        message = {"role": "assistant", "content": content, "refusal": None, **thinking, **calls}
        choice = {
            "index": 0, "message": message, "logprobs": self._logprobs(), "finish_reason": self.answer.finish_reason
        }  # fmt: skip
        usage = completion_usage(self.answer)
        return {**self._common_fields("chat.completion"), "choices": [choice], "usage": usage}

    def _last_chunks(self) -> Iterator[JsonObject]:
        """The chunk with the finish reason, and the one with the usage if the client requested it."""
        for index, call in enumerate(self.answer.tool_calls):
            if call.name in self.forms:
                yield self._chunk({"tool_calls": [{"index": index, **self._call_object(call)}]})
        yield self._chunk({}, self.answer.finish_reason, self._new_logprobs())
        if self.includes_usage:
            usage = completion_usage(self.answer)
            yield {**self._common_fields("chat.completion.chunk"), "choices": [], "usage": usage}

    def _logprobs(self, start: int = 0) -> JsonObject | None:
        """Of the tokens of the text from the one with this number; None for a client that wants none."""
        if not self.answer.keeps_tokens:
            return None
        content = [_token_object(token, self.top_logprobs) for token in self.answer.text_tokens[start:]]
        return {"content": content, "refusal": None}

    def _new_logprobs(self) -> JsonObject | None:
        """Of the tokens that no chunk has had; a token belongs to the chunk with the beginning of its text."""
        if (new := self._logprobs(self._sent_logprobs)) is not None:
            self._sent_logprobs += len(new["content"])
        return new

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
    body = checked_body(fields, served_models, BORDER)
    limit_name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    options = AnswerOptions(
        max_tokens=body.number(limit_name, int),
        seed=body.number("seed", int),
        temperature=body.number("temperature"),
        stop=body.stop(),
        answer_format=_parse_response_format(body.object("response_format")) or body.form_of_other_servers(),
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
        keeps_tokens=options.wants_probabilities, notices=body.notices,
    )  # fmt: skip
    top_logprobs, forms = _parse_top_logprobs(body), options.tool_options.forms
    reply = ChatReply(served_models[0], answer, includes_usage, top_logprobs, forms)
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
    return Message(ROLES[role], content, tuple(_parse_calls(message, field_path)), path=field_path)


def _parse_calls(message: JsonObject, field_path: str) -> Iterator[ToolCall]:
    for call in listed_calls(message, field_path, MESSAGES):
        match call:
            case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}} if call_id and name:
                yield ToolCall(call_id, name, arguments)
            case {"id": str(call_id), "custom": {"name": str(name), "input": str(text)}} if call_id and name:
                yield ToolCall(call_id, name, custom_arguments(text))
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
    options.check(Border(frozenset(THINKING_OPTIONS)), "chat_template_kwargs.")
    for name in THINKING_OPTIONS:
        if options.get(name) is not None:
            return "on" if options.flag(name) else "off"
    return "off" if body.get("reasoning_effort") == "none" else None
