"""Tools in the bodies of all APIs: what a client offers, and the arguments of calls. Knows no API and no network.

The engine has the arguments of a call as the model wrote them, which may be no JSON. Some APIs have an object in this
place: broken arguments are a text in it, under the key that Anthropic advises.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from specchat.chat.tools import ANY_TOOL, NO_TOOL, TOOL_CHOICES, Tool, ToolCall
from specchat.errors import UsageError
from specchat_serve.api_errors import RequestError
from specchat_serve.json_fields import Body, JsonObject

TOOLS, TOOL_CHOICE, PARALLEL = "tools", "tool_choice", "parallel_tool_calls"
FUNCTION = "function"
INVALID_JSON = "INVALID_JSON"
ONLY_FUNCTIONS = "only functions, which the client runs, are supported"


@dataclass(frozen=True)
class ToolOptions:
    """The tools that an answer may call, which of them it must call, and whether it may have several calls."""

    tools: tuple[Tool, ...] = ()
    choice: str = ANY_TOOL
    is_parallel: bool = True

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            repeated = Counter(names).most_common(1)[0][0]
            raise RequestError(f"{TOOLS}: two tools have the name {repeated!r}", TOOLS)
        if not names and self.choice not in (ANY_TOOL, NO_TOOL):
            raise RequestError(f"{TOOL_CHOICE}: there are no tools to choose from", TOOL_CHOICE)
        if self.choice not in (*TOOL_CHOICES, *names):
            raise RequestError(f"{TOOL_CHOICE}: there is no tool {self.choice!r}", TOOL_CHOICE)


def parse_tool(name: Any, description: Any, parameters: Any, field_path: str) -> Tool:
    try:
        return Tool.parse(name, description, parameters)
    except UsageError as error:
        raise RequestError(f"{field_path}: {error}", TOOLS) from None


def parse_functions(body: Body) -> Iterator[Tool]:
    """The tools as OpenAI's chat completions and Ollama have them: objects with a `function`."""
    for at, tool in enumerate(optional_tools(body)):
        yield _parse_function(tool, f"{TOOLS}[{at}]")


def _parse_function(tool: Any, field_path: str) -> Tool:
    match tool:
        case {"type": "function", "function": dict() as function}:
            function = cast("JsonObject", function)
            return parse_tool(function.get("name"), function.get("description"), function.get("parameters"), field_path)
        case {"type": str(kind)} if kind != FUNCTION:
            raise unsupported_kind(kind, field_path)
        case _:
            raise RequestError(f'{field_path}: a tool is an object with the type "function" and a function', TOOLS)


def unsupported_kind(kind: str, field_path: str) -> RequestError:
    message = f"{field_path}: tools of type {kind!r} are not supported; {ONLY_FUNCTIONS}"
    return RequestError(message, TOOLS, code="unsupported_parameter")


def optional_tools(body: Body) -> list[Any]:
    """The list of tools; an empty one when it is missing."""
    listed = body.get(TOOLS)
    if listed is not None and not isinstance(listed, list):
        raise RequestError(f"{TOOLS}: give a list", TOOLS)
    return cast("list[Any]", listed or [])


def forced_tool(name: Any) -> str:
    """The choice of one tool by its name; RequestError for a name that means something else as a choice."""
    if not isinstance(name, str) or name in TOOL_CHOICES:
        raise RequestError(f"{TOOL_CHOICE}: no tool with the name {name!r} can be forced", TOOL_CHOICE)
    return name


def parse_openai_tools(body: Body, tools: Iterable[Tool]) -> ToolOptions:
    """The fields of tools that the endpoints of OpenAI share. Each has another form of a choice by name."""
    match body.get(TOOL_CHOICE):
        case None:
            choice = ANY_TOOL
        case str(choice) if choice in TOOL_CHOICES:
            pass
        case {"type": "function", "function": {"name": name}} | {"type": "function", "name": name}:
            choice = forced_tool(name)
        case _:
            words = ", ".join(TOOL_CHOICES)
            raise RequestError(f"{TOOL_CHOICE}: give {words}, or an object with the name of a function", TOOL_CHOICE)
    return ToolOptions(tuple(tools), choice, body.flag(PARALLEL, default=True))


def listed_calls(message: JsonObject, field_path: str, field: str) -> list[Any]:
    """The calls of a message as chat completions and Ollama have them; an empty list when there are none."""
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or (calls and message.get("role") != "assistant"):
        raise RequestError(f"{field_path}: tool_calls is a list in a message of the assistant", field)
    return cast("list[Any]", calls)


def parse_call_id(result: JsonObject, name: str, what: str, field_path: str, field: str) -> str:
    """Of which call this is the result, by the field `name`; `what` says in words what the result is."""
    call_id = result.get(name)
    if not isinstance(call_id, str) or not call_id:
        raise RequestError(f"{field_path}: {what} needs the {name} of its call", field)
    return call_id


def arguments_object(arguments: str) -> JsonObject:
    """The arguments of a call as an object."""
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = None
    return cast("JsonObject", value) if isinstance(value, dict) else {INVALID_JSON: arguments}


def arguments_text(arguments: JsonObject) -> str:
    """The arguments of a call as the model may have written them; the inverse of `arguments_object`."""
    match arguments:
        case {"INVALID_JSON": str(text)} if len(arguments) == 1:
            return text
        case _:
            return json.dumps(arguments, ensure_ascii=False)


def with_keys_in_order(call: ToolCall, tools: Iterable[Tool]) -> ToolCall:
    """The call with the keys of its arguments as the model wrote them: grammars hold them to the order of the schema.

    Many clients sort them. In another order they are another text, and what follows would be computed again.
    """
    tool = next((each for each in tools if each.name == call.name), None)
    if tool is None:
        return call
    try:
        arguments = _in_order_of(tool.schema, json.loads(call.arguments))
        return replace(call, arguments=json.dumps(arguments, ensure_ascii=False))
    except (ValueError, RecursionError):
        return call


def _in_order_of(schema: Any, value: Any) -> Any:
    match schema, value:
        case {"properties": dict() as properties}, dict():
            properties, value = cast("JsonObject", properties), cast("JsonObject", value)
            keys = [*(key for key in properties if key in value), *(key for key in value if key not in properties)]
            return {key: _in_order_of(properties.get(key), value[key]) for key in keys}
        case {"items": items}, list():
            return [_in_order_of(items, each) for each in cast("list[Any]", value)]
        case _:
            return value
