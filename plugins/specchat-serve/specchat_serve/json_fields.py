"""Reads the fields of a JSON body, with an error that names a wrong field. Knows no API and no network.

Each API has one table (Border) of its fields: a field is used, left out with a notice, or refused because the answer
would be wrong without it. null and empty values are as good as a missing field everywhere.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

from specchat.chat.request import CHOICES, REGEX, SCHEMA, AnswerFormat, TokenBias
from specchat.errors import UsageError
from specchat_serve.api_errors import RequestError

JsonObject = dict[str, Any]
Refusals = Mapping[str, tuple[tuple[Any, ...], str]]  # the values without effect, and the error for other values

DEFAULT_NUMBER = -1  # of a whole number: as if it were missing
UNKNOWN_FIELD = "this server does not know it"
SURROGATES = re.compile("[\ud800-\udfff]")
SURROGATE = "half of a character (a lone surrogate) is no text"

LOGIT_BIAS, LEAST_BIAS = "logit_bias", -100.0
IGNORE_EOS = "ignore_eos"  # the answer goes on to its limit
REPETITION_DETECTION = "repetition_detection"  # of vLLM: an object with `min_count`, how many blocks are too many
# Names in requests to keys of the profile.
TOP_K = "top_k"
SAMPLING_FIELDS = {
    name: name
    for name in ("top_p", TOP_K, "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
}  # fmt: skip
# Fields of other servers for the form of an answer: llama-server has the last, and vLLM the others, also in an object.
FORMAT_FIELDS = {"guided_json": SCHEMA, "guided_regex": REGEX, "guided_choice": CHOICES, "json_schema": SCHEMA}
STRUCTURED_OUTPUTS = "structured_outputs"
STRUCTURED_KINDS = {"json": SCHEMA, "regex": REGEX, "choice": CHOICES}


@dataclass(frozen=True)
class Border:
    """What an API does with the fields of a body.

    `used` ones have their effect. `refused` ones would make the answer wrong, or mean a state that no server here
    keeps. `silent` ones have none on the text of an answer. All others are left out, and the answer says so; for some,
    `left_out` has the reason.
    """

    used: frozenset[str]
    refused: Refusals = field(default_factory=dict[str, Any])
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    silent: frozenset[str] = frozenset()


def is_default(value: Any) -> bool:
    """Whether a value is as good as a missing field."""
    return value is None or (isinstance(value, str | list | dict) and not value)


def parse_json_body(body: bytes) -> JsonObject:
    """The JSON object of a body; RequestError for anything else."""
    try:
        value = json.loads(body)
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        raise RequestError("the body of the request is not JSON") from None
    try:
        text.encode()
    except UnicodeEncodeError:
        path = (_surrogate_path(value) or "").removeprefix(".")
        raise RequestError(f"{path or 'the body of the request'}: {SURROGATE}") from None
    if not isinstance(value, dict):
        raise RequestError("the body of the request must be a JSON object")
    return cast("JsonObject", value)


def _surrogate_path(value: Any) -> str | None:
    """Where in a value of JSON half of a character stands, such as ".messages[2].content"; None without one."""
    if not isinstance(value, dict | list):
        return "" if isinstance(value, str) and SURROGATES.search(value) else None
    entries = value.items() if isinstance(value, dict) else enumerate(cast("list[Any]", value))
    for key, each in cast("Any", entries):
        inner = "" if isinstance(key, str) and SURROGATES.search(key) else _surrogate_path(each)
        if inner is not None:
            own = f"[{key}]" if isinstance(key, int) else f".{key}".encode(errors="replace").decode()
            return own + inner
    return None


def check_model(requested_model: Any, served_models: Sequence[str]) -> None:
    """RequestError for a name that is not one of the served model; None is its first name."""
    if requested_model is not None and requested_model not in served_models:
        raise no_such_model(requested_model, served_models[:1])


def no_such_model(name: Any, served: Iterable[str]) -> RequestError:
    """With the names that clients see."""
    message = f"there is no model {name!r}; this server has {', '.join(map(repr, served))}"
    return RequestError(message, "model", status=404, code="model_not_found")


def checked_body(fields: JsonObject, served_models: Sequence[str], border: Border) -> "Body":
    """The body of a request for the served model; RequestError for another model, and for what is refused."""
    body = Body(fields)
    check_model(body.get("model"), served_models)
    body.check(border)
    return body


class Body(dict[str, Any]):
    """A JSON object of a request without its empty fields, with the others as what they must be.

    `notices` says what is left out of the request; the objects of a body share them.
    """

    def __init__(self, fields: Mapping[str, Any], notices: list[str] | None = None) -> None:
        super().__init__({name: value for name, value in fields.items() if not is_default(value)})
        self.notices = [] if notices is None else notices

    def check(self, border: Border, prefix: str = "") -> None:
        """RequestError for a refused field; a notice for each that is left out. `prefix` is the path of this object."""
        for name, value in self.items():
            if name in border.used | border.silent:
                continue
            if name not in border.refused:
                self.leave_out(prefix + name, border.left_out.get(name, UNKNOWN_FIELD))
                continue
            neutral_values, reason = border.refused[name]
            if value not in neutral_values:
                raise RequestError(f"{prefix}{name}: {reason}", name, code="unsupported_parameter")

    def leave_out(self, field_path: str, reason: str) -> None:
        self.notices.append(f"{field_path} is left out: {reason}")

    def number(self, name: str, kind: type[float] = float) -> Any:
        """A number, or None when it is missing. With `kind` int, an integer; 5.0 is one, and -1 is a missing one."""
        value = self.get(name)
        if value is None:
            return None
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
            raise RequestError(f"{name}: give a {'whole ' if kind is int else ''}number", name)
        return None if kind is int and value == DEFAULT_NUMBER else value

    def text(self, name: str) -> str:
        """A text; "" when it is missing."""
        return self._value(name, str, "a text") or ""

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._value(name, bool, "true or false")
        return default if value is None else value

    def object(self, name: str) -> Self:
        return type(self)(self._value(name, dict, "an object") or {}, self.notices)

    def filled_list(self, name: str, what: str) -> list[Any]:
        """A list with at least one entry; `what` says of what."""
        value = self.get(name)
        if not isinstance(value, list) or not value:
            raise RequestError(f"{name}: give {what}", name)
        return cast("list[Any]", value)

    def sampling(self, names: Mapping[str, str] = SAMPLING_FIELDS) -> dict[str, float]:
        """The sampling settings, and when a repetition ends the answer, by the keys of the profile."""
        numbers = {f"sampling.{key}": number for key, number in self.sampling_numbers(names).items()}
        repeats = self.object(REPETITION_DETECTION).number("min_count", int)
        return numbers if repeats is None else {**numbers, "limits.repeats": repeats}

    def sampling_numbers(self, names: Mapping[str, str]) -> dict[str, Any]:
        """The sampling settings that are given; `names` are those in requests, with those of the settings."""
        numbers = {key: self.number(name, int if key == TOP_K else float) for name, key in names.items()}
        return {key: number for key, number in numbers.items() if number is not None}

    def stop(self, name: str = "stop") -> tuple[str, ...]:
        stop = self.get(name)
        stops: Sequence[Any] = [stop] if isinstance(stop, str) else stop or ()
        if not isinstance(stops, list | tuple) or not all(isinstance(each, str) and each for each in stops):
            raise RequestError(f"{name}: give a text, or a list of texts", name)
        return tuple(stops)

    def logit_bias(self) -> tuple[TokenBias, ...]:
        """An object by the ids of tokens, as OpenAI has it, or pairs, in which llama-server has false for "never"."""
        value = self.get(LOGIT_BIAS, {})
        pairs = cast("Any", value.items() if isinstance(value, dict) else value)
        try:
            biases = {int(token): LEAST_BIAS if bias is False else float(bias) for token, bias in pairs}
        except (TypeError, ValueError):
            raise RequestError(f"{LOGIT_BIAS}: give an object of numbers by the ids of tokens", LOGIT_BIAS) from None
        if not all(LEAST_BIAS <= bias <= -LEAST_BIAS for bias in biases.values()):
            raise RequestError(f"{LOGIT_BIAS}: a bias lies between {LEAST_BIAS:g} and {-LEAST_BIAS:g}", LOGIT_BIAS)
        return tuple(TokenBias(token, bias) for token, bias in biases.items())

    def form_of_other_servers(self) -> AnswerFormat | None:
        """The form of an answer by fields of vLLM or llama-server; None without one. RequestError for a wrong one."""
        structured = self.object(STRUCTURED_OUTPUTS)
        structured.check(Border(frozenset(STRUCTURED_KINDS)), f"{STRUCTURED_OUTPUTS}.")
        named = [(name, kind, self.get(name)) for name, kind in FORMAT_FIELDS.items()]
        named += [(STRUCTURED_OUTPUTS, kind, structured.get(name)) for name, kind in STRUCTURED_KINDS.items()]
        given = [each for each in named if each[2] is not None]
        if len(given) > 1:
            raise RequestError(f"{given[0][0]}: an answer has one format", given[0][0])
        try:
            return next((AnswerFormat.parse(kind, value) for _, kind, value in given), None)
        except UsageError as error:
            raise RequestError(f"{given[0][0]}: {error}", given[0][0]) from None

    def _value(self, name: str, kind: type[Any], what: str) -> Any:
        value = self.get(name)
        if value is not None and not isinstance(value, kind):
            raise RequestError(f"{name}: give {what}", name)
        return value


def parse_json_format(schema: JsonObject | None) -> AnswerFormat:
    """An answer in JSON; without a schema, any object."""
    return AnswerFormat.parse(SCHEMA, {"type": "object"} if schema is None else schema)


def parse_format(form: JsonObject, name: str, hint: str) -> AnswerFormat | None:
    """The form of an answer as the endpoints of OpenAI have it; `hint` says what the type may be."""
    match form:
        case {"type": "json_schema" | "json_object", "schema": dict() as schema}:
            return parse_json_format(cast("JsonObject", schema))
        case {"type": "json_object"}:
            return parse_json_format(None)
        case {"type": "text"}:
            return None
        case _ if not form:
            return None
        case _:
            raise RequestError(f"{name}: {hint}", name)


def parse_message_role(message: Any, roles: Collection[str], field_path: str, name: str) -> tuple[Body, str]:
    """A message, and whose it is; RequestError names the field that has the messages."""
    if not isinstance(message, dict):
        raise RequestError(f"{field_path}: a message is an object with a role and a content", name)
    role = cast("JsonObject", message).get("role")
    if not isinstance(role, str) or role not in roles:
        raise RequestError(f"{field_path}: unknown role {role!r}", name)
    return Body(cast("JsonObject", message)), role
