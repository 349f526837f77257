"""Parses request bodies: JSON in, a conversation history and a request out. Knows no network and no model.

Supported fields have their effect. A field that would change the answer and is not supported is an error, unless its
value has no effect. All other fields are ignored.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from specchat.chat.request import SCHEMA, AnswerFormat, Request
from specchat.chat.transcript import Exchange
from specchat.serve.responses import RequestError

JsonObject = dict[str, Any]

SYSTEM_ROLES = ("system", "developer")
MESSAGE_SEPARATOR = "\n\n"  # between merged messages
GREETING = "Hello"  # stands before a conversation that the assistant begins: chat templates want the user first
# profile keys have the same names
SAMPLING_FIELDS = ("top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
THINKING_OPTIONS = ("enable_thinking", "thinking")  # of chat templates
TOOLS_UNSUPPORTED = "tools are not supported; use a mode of your program without tools"
FORMAT_UNSUPPORTED = "use response_format for structured output"
# Unsupported fields: the values without effect (None always is one), and the error message for other values.
UNSUPPORTED_FIELDS: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "n": ((1,), "only one answer per request"),
    "best_of": ((1,), "only one answer per request"),
    "tools": (([],), TOOLS_UNSUPPORTED),
    "functions": (([],), TOOLS_UNSUPPORTED),
    "tool_choice": (("none", "auto"), TOOLS_UNSUPPORTED),
    "function_call": (("none", "auto"), TOOLS_UNSUPPORTED),
    "logit_bias": (({},), "not supported"),
    "logprobs": ((False,), "probabilities are not available"),
    "top_logprobs": ((0,), "probabilities are not available"),
    "modalities": ((["text"],), "only text is supported"),
    "audio": ((), "only text is supported"),
    "web_search_options": ((), "web search is not supported"),
    "grammar": (("",), FORMAT_UNSUPPORTED),
    "structured_outputs": (({},), FORMAT_UNSUPPORTED),
    "guided_json": ((), FORMAT_UNSUPPORTED),
    "guided_regex": ((), FORMAT_UNSUPPORTED),
    "guided_choice": ((), FORMAT_UNSUPPORTED),
}


@dataclass(frozen=True)
class SessionSettings:
    """The system prompt and the sampling. The engine needs another session for other settings."""

    system_prompt: str = ""  # "": the one of the profile
    sampling: tuple[tuple[str, float], ...] = ()

    def overrides(self) -> JsonObject:
        system_prompt = {"prompt.system": self.system_prompt} if self.system_prompt else {}
        return system_prompt | {f"sampling.{name}": value for name, value in self.sampling}


@dataclass(frozen=True)
class ConversationHistory:
    exchanges: tuple[Exchange, ...] = ()
    settings: SessionSettings = SessionSettings()


@dataclass(frozen=True)
class ChatCompletionRequest:
    request: Request
    history: ConversationHistory = ConversationHistory()
    is_streamed: bool = False
    includes_usage: bool = False  # in the last chunk of a stream


def parse_json_body(body: bytes) -> JsonObject:
    """The JSON object of a body; RequestError for anything else."""
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # rejects lone surrogates
    except (ValueError, RecursionError):
        raise RequestError("the body of the request is not JSON") from None
    if not isinstance(value, dict):
        raise RequestError("the body of the request must be a JSON object")
    return cast("JsonObject", value)


def parse_chat_completion_request(body: JsonObject, served_models: Sequence[str]) -> ChatCompletionRequest:
    """A body of `/v1/chat/completions`; RequestError for a wrong or unsupported field."""
    check_model(body.get("model"), served_models)
    _reject_unsupported_fields(body)
    messages = _parse_messages(body.get("messages"))
    options = _optional_object(body, "stream_options")
    limit_name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    request = Request(
        messages.question,
        max_tokens=_optional_number(body, limit_name, int),
        seed=_optional_number(body, "seed", int),
        temperature=_optional_number(body, "temperature"),
        stop=_parse_stop(body.get("stop")),
        answer_format=_parse_response_format(_optional_object(body, "response_format")),
        answer_prefix=messages.answer_prefix,
        thinking=_parse_thinking(body),
    )
    if request.answer_prefix and request.answer_format:
        raise RequestError("messages: a begun answer cannot have a response_format; leave one of them out", "messages")
    sampling = tuple((name, value) for name in SAMPLING_FIELDS if (value := _optional_number(body, name)) is not None)
    history = ConversationHistory(messages.exchanges, SessionSettings(messages.system_prompt, sampling))
    return ChatCompletionRequest(request, history, body.get("stream") is True, options.get("include_usage") is True)


def check_model(requested_model: Any, served_models: Sequence[str]) -> None:
    """RequestError for a name that is not one of the served model; None is its first name."""
    if requested_model is not None and requested_model not in served_models:
        message = f"there is no model {requested_model!r}; this server has {served_models[0]!r}"
        raise RequestError(message, "model", status=404, code="model_not_found")


def _reject_unsupported_fields(body: JsonObject) -> None:
    for name, (neutral_values, reason) in UNSUPPORTED_FIELDS.items():
        value = body.get(name)
        if value is not None and value not in neutral_values:
            raise RequestError(f"{name}: {reason}", name, code="unsupported_parameter")


@dataclass(frozen=True)
class ParsedMessages:
    system_prompt: str
    exchanges: tuple[Exchange, ...]
    question: str
    answer_prefix: str = ""  # the last message, when it is the assistant's: the answer continues it


def _parse_messages(messages: Any) -> ParsedMessages:
    """The messages of a conversation.

    Consecutive messages of one side become one message. A system message after the beginning counts as the user's.
    """
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages: give a list that ends with a message of the user", "messages")
    system: list[str] = []
    sides: list[list[str]] = []  # texts of user and assistant, alternating
    for at, message in enumerate(cast("list[Any]", messages)):
        role, text = _parse_message(message, f"messages[{at}]")
        if role in SYSTEM_ROLES and not sides:
            system.append(text)
            continue
        side = int(role == "assistant")
        if side and not sides:
            sides.append([GREETING])
        if not sides or len(sides) % 2 == side:
            sides.append([])
        sides[-1].append(text)
    texts = [MESSAGE_SEPARATOR.join(side) for side in sides]
    answer_prefix = texts.pop() if texts and len(texts) % 2 == 0 else ""
    if not texts:
        raise RequestError("messages: there is no message of the user", "messages")
    if not all(text.strip() for text in texts[::2]):
        raise RequestError("messages: a message of the user is empty", "messages")
    exchanges = tuple(Exchange(user, answer) for user, answer in zip(texts[:-1:2], texts[1::2], strict=True))
    return ParsedMessages(MESSAGE_SEPARATOR.join(system), exchanges, texts[-1], answer_prefix)


def _parse_message(message: Any, field_path: str) -> tuple[str, str]:
    if not isinstance(message, dict):
        raise RequestError(f"{field_path}: a message is an object with a role and a content", "messages")
    message = cast("JsonObject", message)
    role = message.get("role")
    if role in ("tool", "function") or message.get("tool_calls") or message.get("function_call"):
        raise RequestError(f"{field_path}: {TOOLS_UNSUPPORTED}", "messages", code="unsupported_parameter")
    if role not in (*SYSTEM_ROLES, "user", "assistant"):
        raise RequestError(f"{field_path}: unknown role {role!r}", "messages")
    return str(role), _content_text(message.get("content"), field_path)


def _content_text(content: Any, field_path: str) -> str:
    match content:
        case str():
            return content
        case None:
            return ""
        case list():
            return "\n".join(_part_text(part, field_path) for part in cast("list[Any]", content))
        case _:
            raise RequestError(f"{field_path}: content must be a text or a list of parts", "messages")


def _part_text(part: Any, field_path: str) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": kind}:
            message = f"{field_path}: parts of type {kind!r} are not supported, only text"
            raise RequestError(message, "messages", code="unsupported_content")
        case _:
            raise RequestError(f"{field_path}: a part is an object with a type and a text", "messages")


def _parse_response_format(response_format: JsonObject) -> AnswerFormat | None:
    match response_format:
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return AnswerFormat.parse(SCHEMA, schema)
        case {"type": "json_object"}:
            return AnswerFormat.parse(SCHEMA, {"type": "object"})
        case {"type": "text"}:
            return None
        case _ if not response_format:
            return None
        case _:
            message = "response_format: type must be text, json_object, or json_schema with a json_schema.schema"
            raise RequestError(message, "response_format")


def _parse_thinking(body: JsonObject) -> str | None:
    """Whether the model thinks: `chat_template_kwargs` as with vLLM, or `reasoning_effort` as with OpenAI."""
    options = _optional_object(body, "chat_template_kwargs")
    if unknown := [name for name in options if name not in THINKING_OPTIONS]:
        raise RequestError(
            f"chat_template_kwargs: only {' and '.join(THINKING_OPTIONS)} are supported, not {unknown[0]}",
            "chat_template_kwargs", code="unsupported_parameter",
        )  # fmt: skip
    for value in options.values():
        if not isinstance(value, bool):
            raise RequestError("chat_template_kwargs: give true or false", "chat_template_kwargs")
        return "on" if value else "off"
    effort = body.get("reasoning_effort")
    return "off" if effort == "none" else None


def _parse_stop(stop: Any) -> tuple[str, ...]:
    stops: Sequence[Any] = [stop] if isinstance(stop, str) else stop or ()
    if not isinstance(stops, list | tuple) or not all(isinstance(each, str) and each for each in stops):
        raise RequestError("stop: give a text, or a list of texts", "stop")
    return tuple(stops)


def _optional_number(body: JsonObject, name: str, kind: type[float] = float) -> Any:
    """A number, or None when it is missing. With `kind` int, an integer."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        raise RequestError(f"{name}: give a {'whole ' if kind is int else ''}number", name)
    return value


def _optional_object(body: JsonObject, name: str) -> JsonObject:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise RequestError(f"{name}: give an object", name)
    return cast("JsonObject", value or {})
