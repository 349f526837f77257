"""Whether a JSON schema describes any text that ends.

A recursive schema is fine while a value can leave the recursion: a list that may be empty, an object whose recursive
key is optional. One whose every value contains another value of the same kind describes only endless texts. Knows no
model and no grammar.
"""

import json
from typing import Any, cast

from specchat.errors import UsageError

SCALAR_TYPES = frozenset({"null", "boolean", "number", "integer", "string"})
JsonObject = dict[str, Any]


def parse_schema(text: str) -> JsonObject:
    """The schema in a text; UsageError when it is none."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the schema is not JSON: {error}") from error
    except RecursionError:
        raise UsageError("the schema is nested too deeply; describe the answer with fewer levels") from None
    if not isinstance(value, dict):
        raise UsageError(f"the schema is a JSON {type(value).__name__}; a schema is an object")
    return cast("JsonObject", value)


def check_ends(schema: JsonObject) -> None:
    """UsageError for a schema that no finite text matches."""
    references = _Finiteness(schema)
    try:
        is_finite = references.of(schema)
        while references.find_more():
            is_finite = references.of(schema)
    except RecursionError:
        raise UsageError("the schema is nested too deeply; describe the answer with fewer levels") from None
    if not is_finite:
        raise UsageError(
            "the schema describes only values without an end, because each contains another one of its kind; make the "
            "recursive key optional, allow null, or let the list be empty"
        )


class _Finiteness:
    """The least solution: a reference has a finite value only if this follows from others that have one."""

    def __init__(self, root: JsonObject) -> None:
        self.root = root
        self.by_reference: dict[str, bool] = {}  # those that were met

    def of(self, schema: Any) -> bool:
        """Whether a schema has a finite value, as far as it is known now."""
        if not isinstance(schema, dict):
            return schema is not False
        schema = cast("JsonObject", schema)
        if "const" in schema or "enum" in schema:
            return True
        return (
            ("$ref" not in schema or self._reference(schema["$ref"]))
            and all(map(self.of, _schemas(schema.get("allOf"))))
            and all(any(map(self.of, _schemas(schema[key]))) for key in ("anyOf", "oneOf") if _schemas(schema.get(key)))
            and self._has_finite_type(schema)
        )

    def find_more(self) -> bool:
        """Look at the references again; whether more of them have a finite value, or were met, than before."""
        before = dict(self.by_reference)
        self.by_reference |= {each: self.of(_resolve(self.root, each)) for each in before}
        return self.by_reference != before

    def _reference(self, reference: Any) -> bool:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True  # another file: the compiler of the schema decides
        return self.by_reference.setdefault(reference, False)

    def _has_finite_type(self, schema: JsonObject) -> bool:
        types = schema.get("type")
        names = {types} if isinstance(types, str) else set(types) if isinstance(types, list) else SCALAR_TYPES
        return (
            bool(names & SCALAR_TYPES)
            or ("object" in names and self._has_finite_object(schema))
            or ("array" in names and self._has_finite_array(schema))
            or not names & {"object", "array"}
        )

    def _has_finite_object(self, schema: JsonObject) -> bool:
        properties = schema.get("properties")
        required = schema.get("required")
        if not isinstance(properties, dict) or not isinstance(required, list):
            return True
        return all(self.of(properties[name]) for name in required if isinstance(name, str) and name in properties)

    def _has_finite_array(self, schema: JsonObject) -> bool:
        count = schema.get("minItems", 0)
        if not isinstance(count, int) or count <= 0:
            return True
        first = _schemas(schema.get("prefixItems"))[:count]
        return all(map(self.of, first)) and (len(first) == count or self.of(schema.get("items", True)))


def _schemas(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _resolve(root: Any, reference: str) -> Any:
    """The schema at a JSON pointer; True, which allows everything, when there is none."""
    value = root
    for part in reference.removeprefix("#").strip("/").split("/") if reference.strip("#/") else ():
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdigit() and int(name) < len(cast("list[Any]", value)):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return True
    return value
