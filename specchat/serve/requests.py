"""What a request wants: a body of JSON in, the conversation so far and a question out. Knows no network and no model.

The rule for fields: what we can do is done; what would change the answer and cannot be done is refused, unless its
value changes nothing; everything else is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from specchat.chat.answer_format import SCHEMA, AnswerFormat
from specchat.chat.request import Request
from specchat.chat.transcript import Exchange
from specchat.serve.api_errors import RequestError

JsonObject = dict[str, Any]

SYSTEM_ROLES = ("system", "developer")
MESSAGE_SEPARATOR = "\n\n"  # messages that become one
SAMPLING_FIELDS = ("top_p", "top_k", "min_p", "repetition_penalty")  # keys of a profile, by the same names
TOOLS_UNSUPPORTED = "no tools are called here; leave them out, or choose a mode of your program that needs none"
FORMAT_UNSUPPORTED = "the form of an answer is prescribed by response_format"
# Fields that would change the answer, the values that change nothing (None is one for all), and why others are refused.
UNSUPPORTED_FIELDS: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "n": ((1,), "one answer a request"),
    "best_of": ((1,), "one answer a request"),
    "tools": (([],), TOOLS_UNSUPPORTED),
    "functions": (([],), TOOLS_UNSUPPORTED),
    "tool_choice": (("none", "auto"), TOOLS_UNSUPPORTED),
    "function_call": (("none", "auto"), TOOLS_UNSUPPORTED),
    "frequency_penalty": ((0,), "only 0; repetition_penalty is known here"),
    "presence_penalty": ((0,), "only 0; repetition_penalty is known here"),
    "logit_bias": (({},), "tokens are not weighed here"),
    "logprobs": ((False,), "probabilities are not told"),
    "top_logprobs": ((0,), "probabilities are not told"),
    "modalities": ((["text"],), "text alone is written here"),
    "audio": ((), "text alone is written here"),
    "web_search_options": ((), "nothing is searched here"),
    "grammar": (("",), FORMAT_UNSUPPORTED),
    "structured_outputs": (({},), FORMAT_UNSUPPORTED),
    "guided_json": ((), FORMAT_UNSUPPORTED),
    "guided_regex": ((), FORMAT_UNSUPPORTED),
    "guided_choice": ((), FORMAT_UNSUPPORTED),
}


@dataclass(frozen=True)
class SessionSettings:
    """What is said to the model first, and how it draws: to the engine, another manner is another conversation."""

    system_prompt: str = ""  # "": what the profile says
    sampling: tuple[tuple[str, float], ...] = ()

    def overrides(self) -> JsonObject:
        """The same as keys of a profile."""
        system = {"prompt.system": self.system_prompt} if self.system_prompt else {}
        return system | {f"sampling.{name}": value for name, value in self.sampling}


@dataclass(frozen=True)
class ConversationHistory:
    """What was said before a question, and in which manner."""

    exchanges: tuple[Exchange, ...] = ()
    settings: SessionSettings = SessionSettings()


@dataclass(frozen=True)
class ChatCompletionRequest:
    """A question, what was said before it, and how its answer is to be told."""

    request: Request
    history: ConversationHistory = ConversationHistory()
    is_streamed: bool = False
    includes_usage: bool = False  # at the end of a stream


def parse_json_body(body: bytes) -> JsonObject:
    """A JSON object; RefusedError when it is none."""
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        raise RequestError("the body of the request is not JSON") from None
    if not isinstance(value, dict):
        raise RequestError("the body of the request must be a JSON object")
    return cast("JsonObject", value)


def parse_chat_completion_request(body: JsonObject, served_model: str) -> ChatCompletionRequest:
    """A request of `/v1/chat/completions` to the model of this name; RefusedError says what cannot be served."""
    check_model(body.get("model"), served_model)
    _reject_unsupported_fields(body)
    system, said, question = _parse_messages(body.get("messages"))
    options = _optional_object(body, "stream_options")
    request = Request(
        question,
        max_tokens=_optional_number(
            body, "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens", int
        ),
        seed=_optional_number(body, "seed", int),
        temperature=_optional_number(body, "temperature"),
        stop=_parse_stop(body.get("stop")),
        answer_format=_parse_response_format(_optional_object(body, "response_format")),
    )
    sampling = tuple((name, value) for name in SAMPLING_FIELDS if (value := _optional_number(body, name)) is not None)
    past = ConversationHistory(said, SessionSettings(system, sampling))
    return ChatCompletionRequest(request, past, body.get("stream") is True, options.get("include_usage") is True)


def check_model(requested_model: Any, served_model: str) -> None:
    """RefusedError for a name that is not ours; whoever gives none means ours."""
    if requested_model is not None and requested_model != served_model:
        message = f"there is no model {requested_model!r} here; there is {served_model!r}"
        raise RequestError(message, "model", status=404, code="model_not_found")


def _reject_unsupported_fields(body: JsonObject) -> None:
    for name, (neutral, why) in UNSUPPORTED_FIELDS.items():
        value = body.get(name)
        if value is not None and value not in neutral:
            raise RequestError(f"{name}: {why}", name, code="unsupported_parameter")


def _parse_messages(messages: Any) -> tuple[str, tuple[Exchange, ...], str]:
    """The system's words, questions with their answers, and the last question.

    Messages of one side in a row are one message; what the system says later on is said by the user.
    """
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages: give a list of them, the user's at its end", "messages")
    system: list[str] = []
    sides: list[list[str]] = []  # the user's and the assistant's, in turns
    for at, message in enumerate(cast("list[Any]", messages)):
        role, text = _parse_message(message, f"messages[{at}]")
        if role in SYSTEM_ROLES and not sides:
            system.append(text)
            continue
        side = int(role == "assistant")
        if side and not sides:
            raise RequestError(f"messages[{at}]: a conversation begins with the user", "messages")
        if not sides or len(sides) % 2 == side:
            sides.append([])
        sides[-1].append(text)
    if len(sides) % 2 == 0:
        raise RequestError("messages: the last one must be the user's; begun answers are not gone on with", "messages")
    said = [MESSAGE_SEPARATOR.join(side) for side in sides]
    if not all(text.strip() for text in said[::2]):
        raise RequestError("messages: one of the user's is empty", "messages")
    exchanges = tuple(Exchange(user, answer) for user, answer in zip(said[:-1:2], said[1::2], strict=True))
    return MESSAGE_SEPARATOR.join(system), exchanges, said[-1]


def _parse_message(message: Any, field_path: str) -> tuple[str, str]:
    """Who says it, and what."""
    if not isinstance(message, dict):
        raise RequestError(f"{field_path}: a message is an object with a role and a content", "messages")
    message = cast("JsonObject", message)
    role = message.get("role")
    if role in ("tool", "function") or message.get("tool_calls") or message.get("function_call"):
        raise RequestError(f"{field_path}: {TOOLS_UNSUPPORTED}", "messages", code="unsupported_parameter")
    if role not in (*SYSTEM_ROLES, "user", "assistant"):
        raise RequestError(f"{field_path}: the role {role!r} is not known", "messages")
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
            raise RequestError(f"{field_path}: a content is a text or a list of parts", "messages")


def _part_text(part: Any, field_path: str) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": kind}:
            raise RequestError(
                f"{field_path}: a part of type {kind!r} cannot be read here, only text",
                "messages",
                code="unsupported_content",
            )
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
            raise RequestError(
                "response_format: its type is text, json_object, or json_schema with a json_schema.schema",
                "response_format",
            )


def _parse_stop(stop: Any) -> tuple[str, ...]:
    stops: Sequence[Any] = [stop] if isinstance(stop, str) else stop or ()
    if not isinstance(stops, list | tuple) or not all(isinstance(each, str) and each for each in stops):
        raise RequestError("stop: give a text, or a list of texts", "stop")
    return tuple(stops)


def _optional_number(body: JsonObject, name: str, kind: type[float] = float) -> Any:
    """A number that is not there is None. Whole ones where `kind` is int."""
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
