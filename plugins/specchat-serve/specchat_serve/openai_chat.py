"""OpenAI's `/v1/chat/completions`: a body to a request, an answer to its objects. Knows no network and no model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from specchat.chat.events import ThinkingDelta, ToolCallDelta
from specchat.chat.request import AnswerFormat
from specchat.chat.tools import ToolCall, ToolResult
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import RequestError
from specchat_serve.choices import ChoicesReply, parse_choice_count, with_other_seeds
from specchat_serve.engine_request import (
    ASSISTANT,
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
    FORMAT_FIELDS,
    IGNORE_EOS,
    LOGIT_BIAS,
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
from specchat_serve.llama_server_objects import RETURN_PROGRESS, TIMINGS_PER_TOKEN
from specchat_serve.replies import TranslatedRequest, sse_event, translated
from specchat_serve.token_logprobs import LOGPROBS, TOP_LOGPROBS, parse_top_logprobs, token_objects
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

VERBOSE = "verbose"  # of llama-server: the answer has the prompt, too
MESSAGES, TOOL = "messages", "tool"  # the field; the role of a result
ROLES = {"system": SYSTEM, "developer": SYSTEM, "user": USER, "assistant": ASSISTANT}
THINKING_OPTIONS = ("enable_thinking", "thinking")  # of chat templates
FUNCTIONS_UNSUPPORTED = "OpenAI has replaced this field; use tools, tool_choice and messages with the role tool"
THOUGHTS = ("reasoning_content", "reasoning")  # the thinking in a message, by the names of several servers
NO_GRAMMAR = "grammars of llama.cpp are not read; give a schema"
ONLY_TEXT = "the model reads and writes text only"
SILENT_FIELDS = frozenset([  # of OpenAI, vLLM and llama.cpp, also in other endpoints
    "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prediction", "cache_prompt", "id_slot", "include", "include_reasoning",
    "client_metadata", "model",
])  # fmt: skip
BORDER = Border(
    used=frozenset([
        MESSAGES, "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", *SAMPLING_FIELDS,
        "seed", "stop", REPETITION_DETECTION, "chat_template_kwargs", "reasoning_effort", "response_format", LOGPROBS,
        TOP_LOGPROBS, LOGIT_BIAS, "n", "best_of", TOOLS, TOOL_CHOICE, PARALLEL, *FORMAT_FIELDS, STRUCTURED_OUTPUTS,
        RETURN_PROGRESS, TIMINGS_PER_TOKEN, VERBOSE,
    ]),
    refused={
        "functions": ((), FUNCTIONS_UNSUPPORTED),
        "function_call": (("none", "auto"), FUNCTIONS_UNSUPPORTED),
        "grammar": ((), NO_GRAMMAR),
    },
    left_out={
        "modalities": ONLY_TEXT,
        "audio": ONLY_TEXT,
        "web_search_options": "the server does not search the web",
        IGNORE_EOS: "an answer of a chat ends where the model ends it; /v1/completions goes on to its limit",
        "verbosity": "the model does not know it; ask in the messages",
    },
    silent=SILENT_FIELDS,
)  # fmt: skip


@dataclass
class ChatReply(ChoicesReply):
    forms: Mapping[str, CallForm] = field(default_factory=dict[str, CallForm])  # of custom tools
    id_prefix: ClassVar[str] = "chatcmpl"
    object_type: ClassVar[str] = "chat.completion"
    chunk_type: ClassVar[str] = "chat.completion.chunk"

    def begin(self) -> bytes:
        first = {"role": "assistant", "content": None}  # no text: it is the role
        return b"".join(sse_event(self._delta(index, first)) for index in range(len(self.answers)))

    def delta(self, delta: Delta) -> bytes:
        """Thinking is never part of the content: it has a field of its own, as with vLLM and DeepSeek."""
        if isinstance(delta, ToolCallDelta):
            if self.answer.called_name(delta) in self.forms:  # its input is known when its arguments have ended
                return b""
            return sse_event(self._delta(self.index, {"tool_calls": [_call_delta(delta)]}))
        if isinstance(delta, ThinkingDelta):
            return sse_event(self._delta(self.index, {"reasoning_content": delta.text}))
        chunk = self._delta(self.index, {"content": delta.text}, logprobs=self._logprobs(self.index))
        return sse_event(self.with_timings(chunk))

    def empty_chunk(self) -> JsonObject:
        return self._delta(self.index, {})

    def whole_choice(self, index: int) -> JsonObject:
        answer = self.answers[index]
        thinking = {"reasoning_content": answer.thinking} if answer.thinking else {}
        objects = [self._call_object(call) for call in answer.tool_calls]
        calls = {"tool_calls": objects} if objects else {}
        content = answer.text or (None if calls else "")
        message = {"role": "assistant", "content": content, "refusal": None, **thinking, **calls}
        reason = answer.finish_reason
        return {"index": index, "message": message, "logprobs": self._logprobs(index), "finish_reason": reason}

    def last_chunks(self, index: int) -> Iterator[JsonObject]:
        answer = self.answers[index]
        for number, call in enumerate(answer.tool_calls):
            if call.name in self.forms:
                yield self._delta(index, {"tool_calls": [{"index": number, **self._call_object(call)}]})
        yield self._delta(index, {}, answer.finish_reason, self._logprobs(index))

    def _call_object(self, call: ToolCall) -> JsonObject:
        if (form := self.forms.get(call.name)) is None:
            return _call_object(call)
        return {"id": call.id, "type": CUSTOM, CUSTOM: {"name": form.name, "input": custom_input(call.arguments)}}

    def _logprobs(self, index: int) -> JsonObject | None:
        """Of the tokens of the text that no chunk has had; None for a client that wants none."""
        if not self.answers[index].keeps_tokens:
            return None
        return {"content": token_objects(self.answers[index].new_tokens(), self.top_logprobs), "refusal": None}

    def _delta(
        self, index: int, delta: JsonObject, reason: str | None = None, logprobs: JsonObject | None = None
    ) -> JsonObject:
        return self.chunk({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason})


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
        answer_format=parse_response_format(body.object("response_format")) or body.form_of_other_servers(),
        sampling=body.sampling(),
        thinking=_parse_thinking(body),
        tool_options=parse_openai_tools(body, parse_functions(body)),
        wants_probabilities=body.flag(LOGPROBS),
        logit_bias=body.logit_bias(),
    )
    messages = body.filled_list(MESSAGES, "a list that ends with a message of the user")
    parsed = (_parse_message(message, f"{MESSAGES}[{at}]") for at, message in enumerate(messages))
    request, count = build_engine_request(parsed, options, MESSAGES), parse_choice_count(body)
    requests = list(with_other_seeds(request, count))
    includes_usage = body.object("stream_options").flag("include_usage")
    answers = [
        Answer(
            request.request.answer_prefix, is_parallel=options.tool_options.is_parallel,
            keeps_tokens=options.wants_probabilities, notices=body.notices,
        )
        for _ in range(count)
    ]  # fmt: skip
    top_logprobs, forms = parse_top_logprobs(body), options.tool_options.forms
    reply = ChatReply(
        served_models[0], answers, includes_usage, top_logprobs, count, body.flag(TIMINGS_PER_TOKEN), forms=forms
    )
    return translated(body, reply, requests, rendered(request) if body.flag(VERBOSE) else None)


def rendered(request: EngineRequest) -> EngineRequest:
    """A request whose answer is the prompt of this one."""
    return replace(request, request=replace(request.request, only_renders=True))


def _parse_message(message: Any, field_path: str) -> Message:
    message, role = parse_message_role(message, (*ROLES, TOOL, FUNCTION), field_path, MESSAGES)
    content = content_text(message.get("content"), field_path, MESSAGES)
    if role == FUNCTION or message.get("function_call"):
        raise RequestError(f"{field_path}: {FUNCTIONS_UNSUPPORTED}", MESSAGES, code="unsupported_parameter")
    if role == TOOL:
        call_id = parse_call_id(message, "tool_call_id", "a message with the role tool", field_path, MESSAGES)
        return Message(USER, "", tool_results=(ToolResult(call_id, "", content),), path=field_path)
    calls, thinking = tuple(_parse_calls(message, field_path)), thought_text(message, *THOUGHTS)
    return Message(ROLES[role], content, calls, path=field_path, thinking=thinking)


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


def parse_response_format(response_format: JsonObject) -> AnswerFormat | None:
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
