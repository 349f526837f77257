"""Eight questions that want JSON, each with its schema: asked freely and under the schema, to measure what it costs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specchat.chat.request import SCHEMA, AnswerFormat, Request

FREE_KIND, SCHEMA_KIND = "structured", "schema"


def _object_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


def _array_schema(item: Mapping[str, Any], max_items: int) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1, "maxItems": max_items}


WORD_SCHEMA = {"type": "string", "pattern": "^[A-Za-z ]{1,24}$"}
NUMBER_SCHEMA = {"type": "integer", "minimum": 0, "maximum": 9999}
SCHEMA_TASKS: Sequence[tuple[str, Mapping[str, Any]]] = (
    (
        "Return a JSON object with the keys name, age and city for a person of your choice.",
        _object_schema(name=WORD_SCHEMA, age=NUMBER_SCHEMA, city=WORD_SCHEMA),
    ),
    ("Give me a JSON array of five colours.", _array_schema(WORD_SCHEMA, 5)),
    (
        "List three fruits as a JSON array of objects with name and price.",
        _array_schema(_object_schema(name=WORD_SCHEMA, price=NUMBER_SCHEMA), 3),
    ),
    (
        "Answer in JSON with the keys title, author and year: your favourite book.",
        _object_schema(title=WORD_SCHEMA, author=WORD_SCHEMA, year=NUMBER_SCHEMA),
    ),
    (
        "Return valid JSON that describes a bicycle: brand, gears, weight.",
        _object_schema(brand=WORD_SCHEMA, gears=NUMBER_SCHEMA, weight=NUMBER_SCHEMA),
    ),
    (
        "Answer only with JSON: is the sky blue? Use the keys answer and reason.",
        _object_schema(answer={"type": "boolean"}, reason=WORD_SCHEMA),
    ),
    (
        "Give JSON for a user with a name, a role and a list of tags.",
        _object_schema(
            name=WORD_SCHEMA, role={"enum": ["admin", "guest", "editor"]}, tags=_array_schema(WORD_SCHEMA, 3)
        ),
    ),
    (
        "Describe a file as JSON: path, bytes, readable and writable.",
        _object_schema(
            path=WORD_SCHEMA, bytes=NUMBER_SCHEMA, readable={"type": "boolean"}, writable={"type": "boolean"}
        ),
    ),
)


def schema_requests() -> dict[str, list[Request]]:
    """The questions as two kinds of prompts: without and with their schema."""
    free = [Request(question) for question, _schema in SCHEMA_TASKS]
    constrained = [
        replace(request, answer_format=AnswerFormat.parse(SCHEMA, dict(schema)))
        for request, (_question, schema) in zip(free, SCHEMA_TASKS, strict=True)
    ]
    return {FREE_KIND: free, SCHEMA_KIND: constrained}


def is_valid_document(question: str, text: str) -> bool | None:
    """Whether an answer is JSON with the keys of its task; None for a question that is no task."""
    schema = dict(SCHEMA_TASKS).get(question)
    if schema is None:
        return None
    try:
        document = json.loads(text)
    except ValueError:
        return False
    if schema["type"] == "array":
        return isinstance(document, list)
    return isinstance(document, dict) and set(document) == set(schema["properties"])
