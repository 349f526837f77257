"""The JSON Schema of a profile, made from its dataclasses: editors complete and check TOML files with it."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any, cast, get_args

from specchat.profile.keys import Profile
from specchat.profile.validation import About, about, hints, is_table_list

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema() -> dict[str, Any]:
    """What a profile may say."""
    described = _table(Profile)
    extends = {"type": "string", "description": "The profile that everything else is taken from."}
    described["properties"] = {"extends": extends, **described["properties"]}
    return {"$schema": DIALECT, "title": "specchat profile", **described}


def _table(kind: type) -> dict[str, Any]:
    known, defaults = about(kind), {each.name: each.default for each in fields(kind)}
    properties: dict[str, Any] = {}
    for name, hint in hints(kind).items():
        if is_table_list(hint):
            items = {**_table(get_args(hint)[0]), "required": ["kind"]}
            properties[name] = {"type": "array", "description": known[name].what, "items": items}
        elif is_dataclass(hint):
            properties[name] = _table(cast("type", hint))
        else:
            properties[name] = _key(hint, known[name], defaults[name])
    what = (kind.__doc__ or "").split("\n")[0]
    return {"type": "object", "description": what, "properties": properties, "additionalProperties": False}


def _key(hint: Any, known: About, default: Any) -> dict[str, Any]:
    bounds = {"minimum": known.lowest, "exclusiveMinimum": known.above, "maximum": known.highest}
    value: dict[str, Any] = {name: bound for name, bound in bounds.items() if bound is not None}
    if known.choices:
        value["enum"] = list(known.every_choice)
    described: dict[str, Any] = {"type": TYPES[hint], **value} if hint in TYPES else {
        "type": "array", "items": {"type": "string", **value},
    }  # fmt: skip
    described["description"] = known.what
    if default not in (None, MISSING, ()):
        described["default"] = list(default) if isinstance(default, tuple) else default
    return described
