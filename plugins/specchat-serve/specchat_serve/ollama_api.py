"""The API of Ollama: `/api/chat` and `/api/generate` to requests, answers to lines of JSON, and facts of the model.

https://github.com/ollama/ollama/blob/main/docs/api.md. Knows no network and no model.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, cast

from specchat.chat.events import ThinkingDelta, ToolCallDelta
from specchat.chat.fim_request import MAX_FIM_TOKENS, FimRequest
from specchat.chat.request import AnswerFormat, Request
from specchat.chat.tools import ANY_TOOL, ToolCall, ToolResult
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import ApiError, RequestError
from specchat_serve.engine_request import (
    ASSISTANT,
    GREETING,
    SYSTEM,
    USER,
    AnswerOptions,
    EngineRequest,
    Message,
    build_engine_request,
    thought_text,
)
from specchat_serve.json_fields import (
    Body,
    Border,
    JsonObject,
    check_model,
    parse_json_format,
    parse_message_role,
)
from specchat_serve.model_facts import ModelFacts
from specchat_serve.openai_completions import completion_request
from specchat_serve.replies import TranslatedRequest
from specchat_serve.token_logprobs import LOGPROBS, TOP_LOGPROBS, parse_top_logprobs, token_objects
from specchat_serve.tool_fields import (
    TOOLS,
    arguments_object,
    arguments_text,
    listed_calls,
    parse_functions,
    tool_options,
)

API_VERSION = "0.12.6"  # the release of Ollama whose API this is; clients compare it
JSON_LINES = "application/x-ndjson"
NANOSECONDS = 1e9
KEPT_FOR = timedelta(minutes=5)  # of a model that is in use now
MESSAGES, PROMPT = "messages", "prompt"
ROLES = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
TOOL = "tool"  # the role of a result
SAMPLING_OPTIONS = {
    "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repetition_penalty",
    "frequency_penalty": "frequency_penalty", "presence_penalty": "presence_penalty",
}  # fmt: skip
BORDER = Border(
    used=frozenset([
        "model", "name", MESSAGES, PROMPT, "system", "suffix", "raw", "stream", "options", "format", "think",
        "keep_alive", TOOLS, LOGPROBS, TOP_LOGPROBS,
    ]),
    refused={
        "images": ((), "the model reads text only"),
        "template": ((), "the chat template is that of the model"),
        "context": ((), "tokens of earlier answers are not supported; send the messages to /api/chat"),
    },
)  # fmt: skip
OPTIONS_BORDER = Border(
    used=frozenset(["temperature", *SAMPLING_OPTIONS, "seed", "num_predict", "stop"]),
    left_out=dict.fromkeys(
        ["num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread", "num_keep", "numa", "low_vram"],
        "the settings of specchat decide it",
    ),
)  # fmt: skip
UNLOAD_UNSUPPORTED = "other programs use the models, too; 'specchat host stop' ends the engine process"


@dataclass
class LinesReply:
    """An answer as lines of JSON; `text_field` is "response", or "message" for a chat."""

    model: str
    text_field: str
    answer: Answer = field(default_factory=Answer)
    top_logprobs: int = 0  # how many likely tokens stand beside each token
    is_loading: bool = False  # the client asked for the models only
    content_type: str = JSON_LINES

    def begin(self) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        """Tool calls are whole in this API, and stand before the last line."""
        if self.is_loading or isinstance(delta, ToolCallDelta):
            return b""
        is_thinking = isinstance(delta, ThinkingDelta)
        text, thinking = ("", delta.text) if is_thinking else (delta.text, "")
        known = {} if is_thinking else self._logprobs()
        return _line({**self._common_fields(text, thinking), **known, "done": False})

    def sign_of_life(self, stage: str) -> bytes:
        """An empty text: this API has no place for a stage, and its clients read each line."""
        return b"" if self.is_loading else _line({**self._common_fields(""), "done": False})

    def end(self) -> bytes:
        calls = _line({**self._common_fields("", calls=True), "done": False}) if self.answer.tool_calls else b""
        return calls + _line(self._last(""))

    def failure(self, api_error: ApiError) -> bytes:
        return _line(error_body(api_error))

    def whole(self) -> JsonObject:
        return self._last(self.answer.text, self.answer.thinking, calls=True)

    def _last(self, text: str, thinking: str = "", *, calls: bool = False) -> JsonObject:
        if self.is_loading:
            stats = {"notices": list(self.answer.notices)}
            return {**self._common_fields(""), "done": True, "done_reason": "load", "specchat": stats}
        totals = self.answer.totals
        return {
            **self._common_fields(text, thinking, calls=calls),
            **self._logprobs(),
            "done": True,
            "done_reason": "length" if self.answer.is_truncated else "stop",
            "total_duration": _nanoseconds(self.answer.elapsed_seconds),
            "load_duration": _nanoseconds(self.answer.load_seconds),
            "prompt_eval_count": totals.prompt_tokens,
            "prompt_eval_duration": _nanoseconds(totals.prefill_seconds),
            "eval_count": totals.completion_tokens,
            "eval_duration": _nanoseconds(self.answer.generation_seconds),
            "specchat": self.answer.speculation_stats(),
        }

    def _logprobs(self) -> JsonObject:
        """Of the tokens of the text that no line has had; nothing for a client that wants none."""
        tokens = self.answer.new_tokens() if self.answer.keeps_tokens else ()
        return {LOGPROBS: token_objects(tokens, self.top_logprobs)} if tokens else {}

    def _common_fields(self, text: str, thinking: str = "", *, calls: bool = False) -> JsonObject:
        fields: JsonObject = {"model": self.model, "created_at": timestamp(datetime.now(UTC))}
        thought = {"thinking": thinking} if thinking else {}
        if self.text_field == "message":
            objects = [_call_object(index, call) for index, call in enumerate(self.answer.tool_calls)] if calls else []
            called = {"tool_calls": objects} if objects else {}
            return {**fields, "message": {"role": "assistant", "content": text, **thought, **called}}
        return {**fields, self.text_field: text, **thought}


def error_body(api_error: ApiError) -> JsonObject:
    return {"error": api_error.message}


def _call_object(index: int, call: ToolCall) -> JsonObject:
    function = {"index": index, "name": call.name, "arguments": arguments_object(call.arguments)}
    return {"id": call.id, "function": function}


def translate_ollama_chat(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/api/chat`; RequestError for a wrong or unsupported field."""
    body = Body(fields)
    _check_body(body, served_models)
    messages = body.get(MESSAGES)
    if messages is not None and not isinstance(messages, list):
        raise RequestError(f"{MESSAGES}: give a list that ends with a message of the user", MESSAGES)
    if not messages:
        return _load_models(body, LinesReply(served_models[0], "message"))
    parsed = (_parse_message(message, f"{MESSAGES}[{at}]") for at, message in enumerate(cast("list[Any]", messages)))
    offered = tool_options(parse_functions(body), ANY_TOOL, is_parallel=True)
    options = replace(_parse_options(body), tool_options=offered)
    request = build_engine_request(parsed, options, MESSAGES)
    return _translated(body, request, LinesReply(served_models[0], "message", Answer(request.request.answer_prefix)))


def translate_generate(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/api/generate`; RequestError for a wrong or unsupported field."""
    body = Body(fields)
    _check_body(body, served_models)
    reply = LinesReply(served_models[0], "response")
    prompt, system = body.text(PROMPT), body.text("system")
    if not prompt:
        return _load_models(body, reply)
    if body.flag("raw") or body.text("suffix"):
        return _translated(body, _parse_completion(body, prompt), reply)
    messages = [*([Message(SYSTEM, system)] if system else []), Message(USER, prompt)]
    return _translated(body, build_engine_request(messages, _parse_options(body), PROMPT), reply)


def version_body() -> JsonObject:
    return {"version": API_VERSION}


def tags_body(models: Iterable[tuple[str, ModelFacts]]) -> JsonObject:
    """The body of `/api/tags`: the served models."""
    return {"models": [{**_listed(name, facts), "modified_at": timestamp(facts.modified_at)} for name, facts in models]}


def running_body(name: str, facts: ModelFacts, context_window: int, *, is_loaded: bool) -> JsonObject:
    """The body of `/api/ps`: the first model while the engine has it. The engine decides when it is unloaded."""
    if not is_loaded:
        return {"models": []}
    until = timestamp(datetime.now(UTC) + KEPT_FOR)
    gpu_bytes = 0  # how the model is divided is not known here
    return {
        "models": [
            {**_listed(name, facts), "expires_at": until, "size_vram": gpu_bytes, "context_length": context_window}
        ]
    }


def pull_body(body: JsonObject, served_models: Sequence[str]) -> JsonObject:
    """The body of `/api/pull`: the served model is there; RequestError for another one, as nothing is downloaded."""
    _check_model(Body(body), served_models)
    return {"status": "success"}


def _listed(name: str, facts: ModelFacts) -> JsonObject:
    """What lists say of a model. The digest is of these facts, as no registry has one, and tells models apart."""
    digest = sha256(f"{name} {facts}".encode()).hexdigest()
    return {"name": name, "model": name, "size": facts.bytes, "digest": digest, "details": _details(facts)}


def show_body(body: JsonObject, served_models: Sequence[str], facts: ModelFacts, context_window: int) -> JsonObject:
    """The body of `/api/show`. A `context_window` of 0 is unknown."""
    _check_model(Body(body), served_models)
    family = facts.family or "unknown"
    info: JsonObject = {"general.architecture": family, "general.parameter_count": facts.parameters}
    if context_window:
        info[f"{family}.context_length"] = context_window
    return {
        "modelfile": "", "parameters": "", "template": "", "details": _details(facts), "model_info": info,
        "capabilities": ["completion", "tools"], "modified_at": timestamp(facts.modified_at),
    }  # fmt: skip


def timestamp(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _check_body(body: Body, served_models: Sequence[str]) -> None:
    _check_model(body, served_models)
    body.check(BORDER)
    body.object("options").check(OPTIONS_BORDER, "options.")


def _check_model(body: Body, served_models: Sequence[str]) -> None:
    """Ollama's own clients need a name; `name` is the field of older ones."""
    name = body.get("model") or body.get("name")
    if not name:
        raise RequestError("model: give the name of the model", "model")
    check_model(name, served_models)


def _translated(body: Body, request: EngineRequest | FimRequest, reply: LinesReply) -> TranslatedRequest:
    reply.answer.notices, reply.answer.keeps_tokens = body.notices, body.flag(LOGPROBS)
    reply.top_logprobs = parse_top_logprobs(body)
    return TranslatedRequest(request, reply, body.flag("stream", default=True))


def _load_models(body: Body, reply: LinesReply) -> TranslatedRequest:
    """A request without a question: Ollama loads the model, or unloads it, which is left to the engine here."""
    if body.get("keep_alive") in (0, "0", "0s", "0m"):
        body.leave_out("keep_alive", UNLOAD_UNSUPPORTED)
    reply.is_loading = True
    return _translated(body, EngineRequest(Request(GREETING, max_tokens=1)), reply)


def _parse_completion(body: Body, prompt: str) -> FimRequest:
    if body.text("system"):
        raise RequestError("a raw or suffix request has no system prompt; leave it out", PROMPT)
    options = body.object("options")
    limit = _token_limit(options)
    most = MAX_FIM_TOKENS if limit is None else limit
    form = _parse_format(body.get("format"))
    request = completion_request(prompt, most, body, options, SAMPLING_OPTIONS, answer_format=form)
    return replace(request, wants_probabilities=body.flag(LOGPROBS))


def _parse_options(body: Body) -> AnswerOptions:
    options = body.object("options")
    seed = options.number("seed", int)
    return AnswerOptions(
        max_tokens=_token_limit(options),
        seed=None if seed is not None and seed < 0 else seed,
        temperature=options.number("temperature"),
        stop=options.stop(),
        answer_format=_parse_format(body.get("format")),
        sampling=options.sampling(SAMPLING_OPTIONS),
        thinking=_parse_think(body.get("think")),
        wants_probabilities=body.flag(LOGPROBS),
    )


def _parse_think(think: Any) -> str | None:
    """Whether the model thinks; a level is as good as true."""
    match think:
        case None:
            return None
        case bool():
            return "on" if think else "off"
        case "low" | "medium" | "high" | "max":
            return "on"
        case _:
            raise RequestError("think: give true or false", "think")


def _token_limit(options: Body) -> int | None:
    """The most tokens of an answer; None for num_predict -1 (no limit) and -2 (until the context window is full)."""
    limit = options.number("num_predict", int)
    return None if limit is not None and limit < 0 else limit


def _parse_format(answer_format: Any) -> AnswerFormat | None:
    match answer_format:
        case None:
            return None
        case "json":
            return parse_json_format(None)
        case dict():
            return parse_json_format(cast("JsonObject", answer_format))
        case _:
            raise RequestError('format: give "json" or a JSON schema', "format")


def _parse_message(message: Any, field_path: str) -> Message:
    message, role = parse_message_role(message, (*ROLES, TOOL), field_path, MESSAGES)
    content = message.get("content")
    if message.get("images"):
        raise RequestError(f"{field_path}: images are not supported", MESSAGES)
    if content is not None and not isinstance(content, str):
        raise RequestError(f"{field_path}: content must be a text", MESSAGES)
    if role == TOOL:
        result = _parse_result(message, content or "", field_path)
        return Message(USER, "", tool_results=(result,), path=field_path)
    calls, thinking = tuple(_parse_calls(message, field_path)), thought_text(message, "thinking")
    return Message(ROLES[role], content or "", calls, path=field_path, thinking=thinking)


def _parse_calls(message: JsonObject, field_path: str) -> Iterator[ToolCall]:
    """The calls of a message; those of older clients have no id, and get one by their place."""
    for at, call in enumerate(listed_calls(message, field_path, MESSAGES)):
        match call:
            case {"function": {"name": str(name), **function}} if name:
                arguments = Body(function).object("arguments")
                call_id = Body(call).text("id")
                yield ToolCall(call_id or f"{field_path}.tool_calls[{at}]", name, arguments_text(arguments))
            case _:
                raise RequestError(f"{field_path}: a tool call has a function with a name and arguments", MESSAGES)


def _parse_result(message: JsonObject, content: str, field_path: str) -> ToolResult:
    """A result; those of older clients name the tool, or nothing, and belong to the next call."""
    names = ("tool_call_id", "tool_name", "name")
    if wrong := next((name for name in names if not isinstance(message.get(name), str | None)), None):
        raise RequestError(f"{field_path}: {wrong} must be a text", MESSAGES)
    call_id, tool_name, name = (message.get(each) or "" for each in names)
    return ToolResult(call_id, tool_name or name, content)


def _details(facts: ModelFacts) -> JsonObject:
    return {
        "parent_model": "",
        "format": facts.file_format,
        "family": facts.family,
        "families": [facts.family] if facts.family else [],
        "parameter_size": _parameter_size(facts.parameters),
        "quantization_level": facts.quantization,
    }


def _parameter_size(parameters: int) -> str:
    """As Ollama writes it: "134.5M", "3.2B"; "" when it is unknown."""
    units: Mapping[str, float] = {"B": 1e9, "M": 1e6, "K": 1e3}
    return next((f"{parameters / size:.1f}{unit}" for unit, size in units.items() if parameters >= size), "")


def _nanoseconds(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


def _line(payload: JsonObject) -> bytes:
    return json.dumps(payload).encode() + b"\n"
