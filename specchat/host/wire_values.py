"""Values as JSON and back, by the types of their fields: what is sent between client and host, and what is stored.

A dataclass becomes an object, bytes become latin-1 text; a token has a short form of its own. Knows no message.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from specchat.chat.events import CommittedToken
from specchat.errors import UsageError

Value = TypeVar("Value")
JsonObject = dict[str, Any]
UNIONS = (Union, types.UnionType)


def to_json(value: Any) -> Any:
    match value:
        case CommittedToken():
            return value.to_list()
        case bytes():
            return value.decode("latin-1")
        case list() | tuple():
            return [to_json(each) for each in value]
        case dict():
            return {name: to_json(each) for name, each in value.items()}
        case _ if is_dataclass(value):
            return {name: to_json(getattr(value, name)) for name in _names(type(value))}
        case _:
            return value


def from_json(kind: type[Value], params: Mapping[str, Any]) -> Value:
    """A value of this dataclass from the fields that are known; one without a value has its default.

    UsageError when a field is missing, or has a wrong type.
    """
    if not isinstance(params, Mapping):
        raise UsageError(f"a {kind.__name__} is a JSON object")
    decoders = _decoders(kind)
    values = {name: params[name] for name in decoders if params.get(name) is not None}
    try:
        return kind(**{name: decoders[name](value) for name, value in values.items()})
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError(f"a {kind.__name__} has other fields: {error}") from None


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


@cache
def _decoders(kind: type[Any]) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind)
    return {name: _decoder(name, hints[name]) for name in _names(kind)}


def _decoder(name: str, hint: Any) -> Callable[[Any], Any]:
    """A function from JSON to a value of this type; TypeError, which names the field, for another one."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        [hint] = [each for each in arguments if each is not types.NoneType]  # one type, or nothing
        return _decoder(name, hint)
    if origin in (tuple, Sequence):
        element, checked = _decoder(name, arguments[0]), _checked(name, list, tuple)
        return lambda value: tuple(map(element, checked(value)))
    if hint is CommittedToken:
        return CommittedToken.from_list
    if hint is bytes:
        return lambda value: str(value).encode("latin-1")
    if is_dataclass(hint):
        checked = _checked(name, dict)
        return lambda value: from_json(cast("type[Any]", hint), checked(value))
    return _checked(name, int, float) if hint is float else _checked(name, origin or hint)


def _checked(name: str, *kinds: type[Any]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError(f"{name} has a wrong type")
        return value

    return check
