"""The JSON schemas of our own tools, and the check of arguments that a model wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from specchat.chat.tools import Tool
from specchat.errors import UsageError

MAX_MESSAGE_CHARACTERS = 300


def schema_text(properties: Mapping[str, Any], *required: str) -> str:
    """The schema of an object with these properties and no others."""
    return json.dumps(
        {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    )


def parse_arguments(tool: Tool, text: str) -> Mapping[str, Any]:
    """The arguments of a call; UsageError says what is wrong in words that help a model to write them again."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f"the arguments of {tool.name} are not valid JSON: {error}; call it again") from None
    except RecursionError:
        raise UsageError(f"the arguments of {tool.name} are nested too deeply; call it again") from None
    if not isinstance(arguments, dict):
        raise UsageError(f"the arguments of {tool.name} must be a JSON object; call it again")
    if problem := _schema_problem(tool.schema, arguments):
        raise UsageError(f"the arguments of {tool.name} do not match its schema: {problem}; call it again")
    return cast("Mapping[str, Any]", arguments)


def _schema_problem(schema: dict[str, Any], arguments: Any) -> str:
    """What does not match; "" if all does. References to other places are not followed."""
    from jsonschema import SchemaError, ValidationError  # imports slowly
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        validator = validator_for(schema)
        validator.check_schema(schema)
        validator(schema, registry=Registry()).validate(arguments)
    except ValidationError as error:
        where = ".".join(str(each) for each in error.absolute_path)
        return f"{where}: {error.message}"[:MAX_MESSAGE_CHARACTERS] if where else error.message[:MAX_MESSAGE_CHARACTERS]
    except SchemaError as error:
        return f"the schema itself is invalid: {error.message}"[:MAX_MESSAGE_CHARACTERS]
    except (Unresolvable, RecursionError) as error:
        return f"the schema itself cannot be used: {type(error).__name__}"
    return ""
