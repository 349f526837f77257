"""A JSON schema as a grammar follows it: with fixed spaces, and without properties that it does not name.

A model would invent properties until the answer ends; a value without them is valid all the same. Knows no token.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from specchat.text.llguidance_grammar import FIXED_SPACES, check_schema

MAX_ADDRESS_CHARACTERS = 64  # an e-mail address or the name of a host could go on, and nothing would close it
ADDRESSES = ("email", "hostname")
DATA_KEYS = ("const", "enum", "default", "examples")  # what stands there is no schema
PARTS = ("allOf", "anyOf", "oneOf", "$ref", "patternProperties")


def closed(schema: Mapping[str, Any], **options: bool) -> dict[str, Any]:
    """With the options of llguidance; objects may have other properties only where the schema says so."""
    return {**_without_other_properties(dict(schema)), "x-guidance": {**FIXED_SPACES, **options}}


def tool_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """That of the arguments of a tool, closed, as far as a grammar can follow it; else any object."""
    return _followed(json.dumps(schema))[0]


def schema_notices(schemas: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """What `tool_schema` leaves out of the schemas of these tools."""
    missing = ((name, _followed(json.dumps(schema))[1]) for name, schema in schemas.items())
    return tuple(f"the tool {name!r} is called without a part of its schema: {what}" for name, what in missing if what)


@lru_cache(maxsize=256)
def _followed(text: str) -> tuple[dict[str, Any], str]:
    """The schema that stands for this one, and what is left out of it."""
    lenient = closed(json.loads(text), lenient=True)
    is_wrong, messages = check_schema(lenient)
    if is_wrong:
        return closed({"type": "object", "additionalProperties": True}), messages[0]
    return lenient, ", ".join(re.findall(r'"(\w+)"', " ".join(messages))) or " ".join(messages)


def _without_other_properties(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_other_properties(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: each if name in DATA_KEYS else _without_other_properties(each) for name, each in schema.items()}
    if schema.get("format") in ADDRESSES:
        inner = {"maxLength": MAX_ADDRESS_CHARACTERS, **inner}
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict) or any(name in schema for name in PARTS):
        return inner
    return {"additionalProperties": False, **inner} if {*_required(schema)} <= {*properties} else inner


def _required(schema: Mapping[str, Any]) -> list[str]:
    """The names of the required fields; what stands there may be anything."""
    required = schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def least_objects(schema: Any) -> Iterator[str]:
    """The required fields of every object in a schema, with short values, as JSON."""
    if isinstance(schema, list):
        for each in schema:
            yield from least_objects(each)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        fields = properties if isinstance(properties, dict) else {}
        yield json.dumps({name: _short_value(fields.get(name)) for name in _required(schema)})
        for each in schema.values():
            yield from least_objects(each)


def _short_value(schema: Any) -> Any:
    chosen = schema.get("enum") if isinstance(schema, dict) else None
    return chosen[0] if isinstance(chosen, list) and chosen else ""
