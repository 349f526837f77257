"""How the models of the usual families write tool calls: `tool_formats.toml` has a row for each.

A call is `opening` name `between` arguments `after`. The patterns say what else a model of the family may write, and
`find_tool_format` tells the family by a call that the chat template of a model renders. Knows texts only: no token, no
parser, no model.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

NAME = r"(?P<name>[\w.:/-]+)"
OBJECT_HEADER = (  # {"name": "NAME", "arguments": and then the arguments
    r'\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*'
    r'"(?:arguments|parameters)"\s*:\s*(?=\S)'
)
FORMATS_FILE = Path(__file__).with_suffix(".toml")
PROBE_NAME, PROBE_ARGUMENTS = "probe_name", {"probe_key": "probe_value"}  # of the call that tells the family
PLACES = {"%NAME%": NAME, "%PROBE%": PROBE_NAME, "%OBJECT%": OBJECT_HEADER.replace("?P<name>", "")}  # in the file

ArgumentReader = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True)
class ToolFormat:
    """How a family writes calls.

    `opening`, `between` and `after` are what a forced call consists of.
    In an answer, a match of `begin` begins a call, `header` is what follows it up to the arguments, and `closing` ends
    it; without one, it ends with its JSON value. `next_call` begins a further call right after one, and `last` follows
    the last one. `read_arguments` makes JSON of arguments that are written in another way, by their schema.
    `tokens` are the markers as a vocabulary has them. `id_length`: the template wants ids of so many characters.
    """

    signature: str  # a pattern in a rendered call
    opening: str
    between: str
    after: str
    begin: str
    header: str = OBJECT_HEADER
    closing: str = ""
    is_object: bool = True  # name and arguments are fields of a JSON object
    next_call: str = ""
    last: str = ""
    read_arguments: ArgumentReader | None = None
    tokens: tuple[str, ...] = ()
    id_length: int = 0

    @property
    def marker(self) -> str:
        """The text that begins a call, for a call that turns out to be none."""
        return self.opening.partition("\n")[0].partition("{")[0]

    def call_text(self, name: str, arguments: str) -> str:
        """A call as a model of this family writes it."""
        return f"{self.opening}{name}{self.between}{arguments}{self.after}"


def _read_tagged_arguments(pattern: str) -> ArgumentReader:
    """Arguments as tags with a key and a value, which is text or JSON: its schema decides."""

    def read(body: str, schema: Mapping[str, Any]) -> str:
        tool = {"type": "function", "function": {"name": "call", "parameters": dict(schema)}}
        function = {"name": "call", "arguments": "{content}"}
        content = {"content": "xml-inline", "content_args": {"tag_pattern": pattern}}
        return _parse_arguments(body, {**content, "transform": {"function": function}}, [tool])

    return read


def _read_lax_json(delimiter: str) -> ArgumentReader:
    """JSON with bare keys, and strings between delimiters of their own."""

    def read(body: str, _schema: Mapping[str, Any]) -> str:
        content_args = {"unquoted_keys": True, "string_delims": [[delimiter, delimiter]]}
        content = {"content": "json", "content_args": content_args}
        return _parse_arguments(body, {**content, "transform": {"function": {"arguments": "{content}"}}}, None)

    return read


def _parse_arguments(body: str, field: Mapping[str, Any], tools: list[Any] | None) -> str:
    """The arguments as JSON text, by the parser of transformers; as they were written if they cannot be read."""
    from transformers.utils.chat_parsing import parse_response

    template = {"start_anchor": "\0", "fields": {"call": {"open_pattern": r"\A", **field}}}
    try:
        call = parse_response(body, template, prefix="", tools=tools).get("call") or {"function": {}}
    except ValueError:
        return body
    return json.dumps(call["function"].get("arguments", {}), ensure_ascii=False)


def _read_formats() -> dict[str, ToolFormat]:
    text = FORMATS_FILE.read_text(encoding="utf-8")
    for place, pattern in PLACES.items():
        text = text.replace(place, pattern)
    rows = tomllib.loads(text)
    return {name: _format_of_row({**rows.get(row.get("like", ""), {}), **row}) for name, row in rows.items()}


def _format_of_row(row: Mapping[str, Any]) -> ToolFormat:
    makers = {"tagged_arguments": _read_tagged_arguments, "lax_json": _read_lax_json}
    reader = next((make_reader(row[key]) for key, make_reader in makers.items() if key in row), None)
    fields: dict[str, Any] = {name: value for name, value in row.items() if name not in ("like", *makers)}
    fields |= {"tokens": tuple(row["tokens"]), "read_arguments": reader}
    return ToolFormat(**fields)


FORMATS: Mapping[str, ToolFormat] = _read_formats()
HERMES = FORMATS["hermes"]
PLAIN_JSON = replace(FORMATS["llama3"], signature="", between='", "arguments": ', tokens=())


def find_tool_format(rendered_call: str, template: str) -> ToolFormat:
    """The format of the call that a template renders, or of the markers in its text; plain JSON without either."""
    if PROBE_NAME in rendered_call:
        found = (each for each in FORMATS.values() if re.search(each.signature, rendered_call))
    else:
        found = (each for each in FORMATS.values() if all(token in template for token in each.tokens))
    return next(found, PLAIN_JSON)
