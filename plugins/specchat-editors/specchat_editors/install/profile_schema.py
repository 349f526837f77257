"""The JSON Schema of a profile, built from its dataclasses. Editors use it to complete and check TOML files."""

from dataclasses import MISSING, fields, is_dataclass
from typing import Any, cast, get_args

from specchat.profile.keys import Profile
from specchat.profile.validation import KeyInfo, has_names, is_table_list, key_info, key_types

DIALECT = "https://json-schema.org/draft/2020-12/schema"
JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def profile_schema() -> dict[str, Any]:
    table = _table_schema(Profile)
    extends = {"type": "string", "description": "The profile that supplies every value that is not set here."}
    table["properties"] = {"extends": extends, **table["properties"]}
    return {"$schema": DIALECT, "title": "specchat profile", **table}


def _table_schema(kind: type) -> dict[str, Any]:
    info, defaults = key_info(kind), {each.name: each.default for each in fields(kind)}
    properties: dict[str, Any] = {}
    for name, hint in key_types(kind).items():
        if is_table_list(hint):
            properties[name] = _table_list_schema(get_args(hint)[0], info[name].description)
        elif is_dataclass(hint):
            properties[name] = _table_schema(cast("type", hint))
        else:
            properties[name] = _key_schema(hint, info[name], defaults[name])
    description = (kind.__doc__ or "").split("\n")[0]
    return {"type": "object", "description": description, "properties": properties, "additionalProperties": False}


def _table_list_schema(kind: type, description: str) -> dict[str, Any]:
    items = _table_schema(kind)
    if has_names(kind):
        del items["properties"]["name"]  # it stands in the header
        return {"type": "object", "description": description, "additionalProperties": items}
    return {"type": "array", "description": description, "items": {**items, "required": ["kind"]}}


def _key_schema(hint: Any, info: KeyInfo, default: Any) -> dict[str, Any]:
    bounds = {"minimum": info.minimum, "exclusiveMinimum": info.exclusive_minimum, "maximum": info.maximum}
    value: dict[str, Any] = {name: bound for name, bound in bounds.items() if bound is not None}
    if info.choices:
        value["enum"] = list(info.all_choices)
    schema: dict[str, Any] = {"type": JSON_TYPES[hint], **value} if hint in JSON_TYPES else {
        "type": "array", "items": {"type": "string", **value},
    }  # fmt: skip
    schema["description"] = info.description
    if default not in (None, MISSING, ()):
        schema["default"] = list(default) if isinstance(default, tuple) else default
    return schema
