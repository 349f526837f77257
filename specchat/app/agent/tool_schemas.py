"""The JSON schemas of our own tools, and the check of arguments that a model wrote.

A schema of another program may have regular expressions and references that take for ever, and a thread cannot be
ended: such a schema is checked in a process of its own, which runs this file.
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, cast

from specchat.chat.tools import Tool
from specchat.errors import UsageError, last_output_line
from specchat.python_child import PACKAGE_FOLDER, python_command

DEFAULT_LINES = 400  # of `read`
MAX_MESSAGE_CHARACTERS = 300
CHECK_SECONDS = 10.0  # of which Python takes half a second to start
SLOW_KEYWORDS = ("pattern", "$ref", "$dynamicRef", "$recursiveRef")  # patternProperties among them


def own_tool(name: str) -> Tool:
    """One of our own tools, which takes the arguments of `own_tools.toml` and no others."""
    entry = _own_tools()[name]
    schema = {"type": "object", "properties": entry["properties"], "required": entry.get("required", [])}
    return Tool(name, entry["description"], json.dumps({**schema, "additionalProperties": False}))


@cache
def _own_tools() -> Mapping[str, Any]:
    text = Path(__file__).with_name("own_tools.toml").read_text(encoding="utf-8")
    return tomllib.loads(text.replace("{default_lines}", str(DEFAULT_LINES)))


def with_paths(tool: Tool, name: str | None, files: Sequence[str]) -> Tool:
    """The tool, with an argument of this name that is one of the files, or a folder above one."""
    schema, folders = tool.schema, {str(folder) for file in files for folder in PurePosixPath(file).parents}
    if name and files:
        schema["properties"][name]["enum"] = list(files) if name == "path" else sorted(folders)
    return replace(tool, parameters=json.dumps(schema)) if name and files else tool


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
    is_slow = any(f'"{keyword}' in json.dumps(tool.schema) for keyword in SLOW_KEYWORDS)
    if problem := (_problem_by_child if is_slow else _schema_problem)(tool.schema, arguments):
        raise UsageError(f"the arguments of {tool.name} do not match its schema: {problem}; call it again")
    return cast("Mapping[str, Any]", arguments)


def _problem_by_child(schema: dict[str, Any], arguments: Any) -> str:
    try:
        ran = subprocess.run(
            python_command("specchat.app.agent.tool_schemas"),
            input=json.dumps([schema, arguments]), cwd=PACKAGE_FOLDER,
            capture_output=True, text=True, timeout=CHECK_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"the schema itself cannot be used: its check takes more than {CHECK_SECONDS:.0f} s"
    if ran.returncode:
        return f"the schema itself cannot be used: {last_output_line(ran.stderr, 'its check failed')}"
    return json.loads(ran.stdout)


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


if __name__ == "__main__":
    print(json.dumps(_schema_problem(*json.load(sys.stdin))))
