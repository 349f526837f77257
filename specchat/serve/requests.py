"""What a request wants: a body of JSON in, the conversation so far and a question out. Knows no network and no model.

The rule for fields: what we can do is done; what would change the answer and cannot be done is refused, unless its
value changes nothing; everything else is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from specchat.chat.answer_format import SCHEMA, Structure
from specchat.chat.request import Request
from specchat.chat.transcript import Exchange
from specchat.serve.api_errors import RefusedError

Json = dict[str, Any]

SYSTEM = ("system", "developer")
BETWEEN = "\n\n"  # messages that become one
SAMPLING = ("top_p", "top_k", "min_p", "repetition_penalty")  # keys of a profile, by the same names
TOOLS = "no tools are called here; leave them out, or choose a mode of your program that needs none"
FORM = "the form of an answer is prescribed by response_format"
# Fields that would change the answer, the values that change nothing (None is one for all), and why others are refused.
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "n": ((1,), "one answer a request"),
    "best_of": ((1,), "one answer a request"),
    "tools": (([],), TOOLS),
    "functions": (([],), TOOLS),
    "tool_choice": (("none", "auto"), TOOLS),
    "function_call": (("none", "auto"), TOOLS),
    "frequency_penalty": ((0,), "only 0; repetition_penalty is known here"),
    "presence_penalty": ((0,), "only 0; repetition_penalty is known here"),
    "logit_bias": (({},), "tokens are not weighed here"),
    "logprobs": ((False,), "probabilities are not told"),
    "top_logprobs": ((0,), "probabilities are not told"),
    "modalities": ((["text"],), "text alone is written here"),
    "audio": ((), "text alone is written here"),
    "web_search_options": ((), "nothing is searched here"),
    "grammar": (("",), FORM),
    "structured_outputs": (({},), FORM),
    "guided_json": ((), FORM),
    "guided_regex": ((), FORM),
    "guided_choice": ((), FORM),
}


@dataclass(frozen=True)
class Manner:
    """What is said to the model first, and how it draws: to the engine, another manner is another conversation."""

    system: str = ""  # "": what the profile says
    sampling: tuple[tuple[str, float], ...] = ()

    def overrides(self) -> Json:
        """The same as keys of a profile."""
        system = {"prompt.system": self.system} if self.system else {}
        return system | {f"sampling.{name}": value for name, value in self.sampling}


@dataclass(frozen=True)
class Past:
    """What was said before a question, and in which manner."""

    said: tuple[Exchange, ...] = ()
    manner: Manner = Manner()


@dataclass(frozen=True)
class Asked:
    """A question, what was said before it, and how its answer is to be told."""

    request: Request
    past: Past = Past()
    is_streamed: bool = False
    tells_usage: bool = False  # at the end of a stream


def read_body(body: bytes) -> Json:
    """A JSON object; RefusedError when it is none."""
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        raise RefusedError("the body of the request is not JSON") from None
    if not isinstance(value, dict):
        raise RefusedError("the body of the request must be a JSON object")
    return cast("Json", value)


def read_asked(body: Json, model: str) -> Asked:
    """A request of `/v1/chat/completions` to the model of this name; RefusedError says what cannot be served."""
    check_model(body.get("model"), model)
    _refuse_what_cannot_be(body)
    system, said, question = _conversation(body.get("messages"))
    options = _object(body, "stream_options")
    request = Request(
        question,
        max_tokens=_number(
            body, "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens", int
        ),
        seed=_number(body, "seed", int),
        temperature=_number(body, "temperature"),
        stop=_stop(body.get("stop")),
        structure=_structure(_object(body, "response_format")),
    )
    sampling = tuple((name, value) for name in SAMPLING if (value := _number(body, name)) is not None)
    past = Past(said, Manner(system, sampling))
    return Asked(request, past, body.get("stream") is True, options.get("include_usage") is True)


def check_model(name: Any, model: str) -> None:
    """RefusedError for a name that is not ours; whoever gives none means ours."""
    if name is not None and name != model:
        message = f"there is no model {name!r} here; there is {model!r}"
        raise RefusedError(message, "model", status=404, code="model_not_found")


def _refuse_what_cannot_be(body: Json) -> None:
    for name, (neutral, why) in REFUSED.items():
        value = body.get(name)
        if value is not None and value not in neutral:
            raise RefusedError(f"{name}: {why}", name, code="unsupported_parameter")


def _conversation(messages: Any) -> tuple[str, tuple[Exchange, ...], str]:
    """The system's words, questions with their answers, and the last question.

    Messages of one side in a row are one message; what the system says later on is said by the user.
    """
    if not isinstance(messages, list) or not messages:
        raise RefusedError("messages: give a list of them, the user's at its end", "messages")
    system: list[str] = []
    sides: list[list[str]] = []  # the user's and the assistant's, in turns
    for at, message in enumerate(cast("list[Any]", messages)):
        role, text = _message(message, f"messages[{at}]")
        if role in SYSTEM and not sides:
            system.append(text)
            continue
        side = int(role == "assistant")
        if side and not sides:
            raise RefusedError(f"messages[{at}]: a conversation begins with the user", "messages")
        if not sides or len(sides) % 2 == side:
            sides.append([])
        sides[-1].append(text)
    if len(sides) % 2 == 0:
        raise RefusedError("messages: the last one must be the user's; begun answers are not gone on with", "messages")
    said = [BETWEEN.join(side) for side in sides]
    if not all(text.strip() for text in said[::2]):
        raise RefusedError("messages: one of the user's is empty", "messages")
    exchanges = tuple(Exchange(user, answer) for user, answer in zip(said[:-1:2], said[1::2], strict=True))
    return BETWEEN.join(system), exchanges, said[-1]


def _message(message: Any, where: str) -> tuple[str, str]:
    """Who says it, and what."""
    if not isinstance(message, dict):
        raise RefusedError(f"{where}: a message is an object with a role and a content", "messages")
    message = cast("Json", message)
    role = message.get("role")
    if role in ("tool", "function") or message.get("tool_calls") or message.get("function_call"):
        raise RefusedError(f"{where}: {TOOLS}", "messages", code="unsupported_parameter")
    if role not in (*SYSTEM, "user", "assistant"):
        raise RefusedError(f"{where}: the role {role!r} is not known", "messages")
    return str(role), _text(message.get("content"), where)


def _text(content: Any, where: str) -> str:
    match content:
        case str():
            return content
        case None:
            return ""
        case list():
            return "\n".join(_part(part, where) for part in cast("list[Any]", content))
        case _:
            raise RefusedError(f"{where}: a content is a text or a list of parts", "messages")


def _part(part: Any, where: str) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": kind}:
            raise RefusedError(
                f"{where}: a part of type {kind!r} cannot be read here, only text",
                "messages",
                code="unsupported_content",
            )
        case _:
            raise RefusedError(f"{where}: a part is an object with a type and a text", "messages")


def _structure(form: Json) -> Structure | None:
    match form:
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return Structure.of(SCHEMA, schema)
        case {"type": "json_object"}:
            return Structure.of(SCHEMA, {"type": "object"})
        case {"type": "text"}:
            return None
        case _ if not form:
            return None
        case _:
            raise RefusedError(
                "response_format: its type is text, json_object, or json_schema with a json_schema.schema",
                "response_format",
            )


def _stop(stop: Any) -> tuple[str, ...]:
    stops: Sequence[Any] = [stop] if isinstance(stop, str) else stop or ()
    if not isinstance(stops, list | tuple) or not all(isinstance(each, str) and each for each in stops):
        raise RefusedError("stop: give a text, or a list of texts", "stop")
    return tuple(stops)


def _number(body: Json, name: str, kind: type[float] = float) -> Any:
    """A number that is not there is None. Whole ones where `kind` is int."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        raise RefusedError(f"{name}: give a {'whole ' if kind is int else ''}number", name)
    return value


def _object(body: Json, name: str) -> Json:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise RefusedError(f"{name}: give an object", name)
    return cast("Json", value or {})
