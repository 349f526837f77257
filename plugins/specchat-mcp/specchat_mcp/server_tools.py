"""The tools of an MCP server as tools of the agent.

Names, descriptions and schemas come from another program: they are bounded and printable, and whatever a description
tells the model to do, a call has the effect EXTERNAL and so asks the user, unless the profile allows this very tool.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

from specchat.app.agent.agent_tool import Effect, ToolOutcome
from specchat.chat.tools import NO_PARAMETERS, Tool
from specchat.errors import CancelledError, UsageError
from specchat_mcp.connection import McpConnection
from specchat_mcp.server_errors import McpServerError, shown_line, shown_text
from specchat_mcp.server_progress import ServerProgress
from specchat_mcp.server_settings import ServerSettings

if TYPE_CHECKING:
    from mcp_types import Tool as ServerTool

SEPARATOR = "__"
MAX_NAME = 64  # what every API of tools accepts, and every template
NAME_HASH_BYTES = 3
MAX_DESCRIPTION_CHARACTERS = 2000
MAX_SCHEMA_CHARACTERS = 20_000
UNUSABLE_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class McpTool:
    """A `ReportingTool`. `is_allowed`: the profile allows it without a question; `note` says what was changed of it."""

    connection: McpConnection
    server_tool_name: str
    tool: Tool
    note: str = ""
    effect: Effect = Effect.EXTERNAL

    @property
    def is_allowed(self) -> bool:
        return self.tool.name in allow_rules(self.connection.settings)

    def describe(self, arguments: Mapping[str, Any]) -> str:
        shown = shown_text(json.dumps(arguments, ensure_ascii=False))  # whole: the user consents to all of it
        return f"MCP server {self.connection.name}: {shown_line(self.server_tool_name, MAX_NAME)} {shown}"

    def run(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> ToolOutcome:
        *_, last = self.run_reporting(arguments, cancelled)
        assert isinstance(last, ToolOutcome)
        return last

    def run_reporting(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> Iterator[str | ToolOutcome]:
        from specchat_mcp.server_results import outcome

        name, values, progress = self.server_tool_name, dict(arguments), ServerProgress()
        call = lambda client: client.call_tool(name, values, progress_callback=progress.report)
        try:
            yield outcome((yield from self.connection.asking(call, cancelled, progress.take_lines)))
        except CancelledError:
            yield ToolOutcome(f"the user stopped the call of {self.tool.name}", is_error=True)
        except McpServerError as error:
            yield ToolOutcome(str(error), is_error=True)


def agent_tools(connection: McpConnection, server_tools: Iterable[ServerTool]) -> tuple[McpTool, ...]:
    tools = dict[str, McpTool]()
    for each in server_tools:
        name = tool_name(connection.name, each.name, tools)
        parameters, note = _usable_schema(each.input_schema)
        description = shown_text(each.description or each.title or "")
        if len(description) > MAX_DESCRIPTION_CHARACTERS:
            description = description[: MAX_DESCRIPTION_CHARACTERS - 1] + "…"
        tools[name] = McpTool(connection, each.name, Tool(name, description, parameters), note)
    return tuple(tools.values())


def allow_rules(settings: ServerSettings) -> tuple[str, ...]:
    """The tools that the profile allows without a question, as rules of consent (`call_consent.py`). Starts nothing."""
    return tuple(tool_name(settings.name, name) for name in sorted(settings.allow))


def tool_name(server: str, name: str, taken: Iterable[str] = ()) -> str:
    """SERVER__TOOL; a name with other characters, a long one or a taken one ends in a hash of the original."""
    usable = f"{server}{SEPARATOR}{UNUSABLE_CHARACTER.sub('_', name)}"
    if usable == f"{server}{SEPARATOR}{name}" and len(usable) <= MAX_NAME and usable not in taken:
        return usable
    ending = "_" + blake2b(name.encode(errors="replace"), digest_size=NAME_HASH_BYTES).hexdigest()
    return usable[: MAX_NAME - len(ending)] + ending


def _usable_schema(schema: Mapping[str, Any]) -> tuple[str, str]:
    """The schema as text; where no answer can be held to it, only the names of its keys, and why."""
    try:
        text = json.dumps(schema)
        if len(text) > MAX_SCHEMA_CHARACTERS:
            raise UsageError(f"its schema has more than {MAX_SCHEMA_CHARACTERS} characters")
        if schema.get("type", "object") != "object":
            raise UsageError("its arguments are no object")
        tool = Tool.parse("tool", None, dict(schema))
        _check_grammar(tool.parameters)
    except (UsageError, ValueError, RecursionError) as error:
        return _names_only(schema), f"only the names of its arguments are known to the model: {one_reason(error)}"
    return tool.parameters, ""


def one_reason(error: BaseException) -> str:
    return shown_line(str(error), 120)


def _check_grammar(schema: str) -> None:
    """UsageError for a schema that no grammar can be made of."""
    from llguidance import LLMatcher

    try:
        if error := LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema)):
            raise UsageError(error)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _names_only(schema: Mapping[str, Any]) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return NO_PARAMETERS
    names = [str(name) for name in cast("Mapping[Any, Any]", properties)]
    kept = [name for name in cast("list[Any]", required) if name in names] if isinstance(required, list) else []
    text = json.dumps({"type": "object", "properties": {name: {} for name in names}, "required": kept})
    return text if len(text) <= MAX_SCHEMA_CHARACTERS else '{"type": "object"}'
