"""The JSON Schema of a profile, made from its dataclasses: editors complete and check TOML files with it."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any, cast, get_args

from specchat.profile.keys import Profile
from specchat.profile.validation import KeyInfo, is_table_list, key_info, key_types

DIALECT = "https://json-schema.org/draft/2020-12/schema"
JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def profile_schema() -> dict[str, Any]:
    """What a profile may say."""
    described = _table_schema(Profile)
    extends = {"type": "string", "description": "The profile that everything else is taken from."}
    described["properties"] = {"extends": extends, **described["properties"]}
    return {"$schema": DIALECT, "title": "specchat profile", **described}


def _table_schema(kind: type) -> dict[str, Any]:
    known, defaults = key_info(kind), {each.name: each.default for each in fields(kind)}
    properties: dict[str, Any] = {}
    for name, hint in key_types(kind).items():
        if is_table_list(hint):
            items = {**_table_schema(get_args(hint)[0]), "required": ["kind"]}
            properties[name] = {"type": "array", "description": known[name].description, "items": items}
        elif is_dataclass(hint):
            properties[name] = _table_schema(cast("type", hint))
        else:
            properties[name] = _key_schema(hint, known[name], defaults[name])
    what = (kind.__doc__ or "").split("\n")[0]
    return {"type": "object", "description": what, "properties": properties, "additionalProperties": False}


def _key_schema(hint: Any, known: KeyInfo, default: Any) -> dict[str, Any]:
    bounds = {"minimum": known.minimum, "exclusiveMinimum": known.exclusive_minimum, "maximum": known.maximum}
    value: dict[str, Any] = {name: bound for name, bound in bounds.items() if bound is not None}
    if known.choices:
        value["enum"] = list(known.all_choices)
    described: dict[str, Any] = {"type": JSON_TYPES[hint], **value} if hint in JSON_TYPES else {
        "type": "array", "items": {"type": "string", **value},
    }  # fmt: skip
    described["description"] = known.description
    if default not in (None, MISSING, ()):
        described["default"] = list(default) if isinstance(default, tuple) else default
    return described
