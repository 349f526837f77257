"""Reads the fields of a JSON body, with an error that names a wrong field. Knows no API and no network.

Supported fields have their effect. A field that would change the answer and is not supported is an error, unless its
value has no effect. All other fields are ignored.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from specchat.chat.request import SCHEMA, AnswerFormat
from specchat_serve.api_errors import RequestError

JsonObject = dict[str, Any]
# The values without effect (None always is one), and the error message for other values.
UnsupportedFields = Mapping[str, tuple[tuple[Any, ...], str]]

REPETITION_DETECTION = "repetition_detection"  # of vLLM: an object with `min_count`, how many blocks are too many
# Names in requests to keys of the profile.
SAMPLING_FIELDS = {
    name: name
    for name in ("top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
}  # fmt: skip


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


def check_model(requested_model: Any, served_models: Sequence[str]) -> None:
    """RequestError for a name that is not one of the served model; None is its first name."""
    if requested_model is not None and requested_model not in served_models:
        message = f"there is no model {requested_model!r}; this server has {served_models[0]!r}"
        raise RequestError(message, "model", status=404, code="model_not_found")


def checked_body(fields: JsonObject, served_models: Sequence[str], unsupported: UnsupportedFields) -> "Body":
    """The body of a request for the served model; RequestError for another model, and for what is not supported."""
    body = Body(fields)
    check_model(body.get("model"), served_models)
    body.reject_unsupported(unsupported)
    return body


class Body(dict[str, Any]):
    """A JSON object of a request, with its fields as what they must be; None is as good as a missing field."""

    def number(self, name: str, kind: type[float] = float) -> Any:
        """A number, or None when it is missing. With `kind` int, an integer."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, None | int if kind is int else None | int | float):
            raise RequestError(f"{name}: give a {'whole ' if kind is int else ''}number", name)
        return value

    def text(self, name: str) -> str:
        """A text; "" when it is missing."""
        return self._value(name, str, "a text") or ""

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._value(name, bool, "true or false")
        return default if value is None else value

    def object(self, name: str) -> "Body":
        return Body(self._value(name, dict, "an object") or {})

    def filled_list(self, name: str, what: str) -> list[Any]:
        """A list with at least one entry; `what` says of what."""
        value = self.get(name)
        if not isinstance(value, list) or not value:
            raise RequestError(f"{name}: give {what}", name)
        return cast("list[Any]", value)

    def sampling(self, names: Mapping[str, str] = SAMPLING_FIELDS) -> dict[str, float]:
        """The sampling settings, and when a repetition ends the answer, by the keys of the profile."""
        numbers = {f"sampling.{key}": self.number(name) for name, key in names.items()}
        numbers["limits.repeats"] = self.object(REPETITION_DETECTION).number("min_count", int)
        return {key: number for key, number in numbers.items() if number is not None}

    def stop(self, name: str = "stop") -> tuple[str, ...]:
        stop = self.get(name)
        stops: Sequence[Any] = [stop] if isinstance(stop, str) else stop or ()
        if not isinstance(stops, list | tuple) or not all(isinstance(each, str) and each for each in stops):
            raise RequestError(f"{name}: give a text, or a list of texts", name)
        return tuple(stops)

    def reject_unsupported(self, fields: UnsupportedFields) -> None:
        for name, (neutral_values, reason) in fields.items():
            value = self.get(name)
            if value is not None and value not in neutral_values:
                raise RequestError(f"{name}: {reason}", name, code="unsupported_parameter")

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
        case {"type": "json_schema", "schema": dict() as schema}:
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
