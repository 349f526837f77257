"""Tools in the bodies of all APIs: what a client offers, and the arguments of calls. Knows no API and no network.

The client runs the tools. A function has arguments by a schema; a custom tool has one text as its input, which to the
model is a function with one argument; a namespace is a group of tools under a name. Tools of other types, which run on
the servers of the API, are left out, and the answer says so.

The engine has the arguments of a call as the model wrote them, which may be no JSON. Some APIs have an object in this
place: broken arguments are a text in it, under the key that Anthropic advises.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from specchat.chat.tools import ANY_TOOL, NO_TOOL, SOME_TOOL, TOOL_CHOICES, Tool, ToolCall
from specchat.errors import UsageError
from specchat_serve.api_errors import RequestError
from specchat_serve.json_fields import Body, JsonObject

TOOLS, TOOL_CHOICE, PARALLEL = "tools", "tool_choice", "parallel_tool_calls"
FUNCTION, CUSTOM, NAMESPACE = "function", "custom", "namespace"
NAMESPACE_SEPARATOR = "."  # between a namespace and a tool, in the name that the model reads
CUSTOM_INPUT = "input"
INPUT_SCHEMA = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string"}},
    "required": [CUSTOM_INPUT],
    "additionalProperties": False,
}
INVALID_JSON = "INVALID_JSON"


@dataclass(frozen=True)
class CallForm:
    """How the API names a tool and its calls, where that is not by the name that the model reads."""

    name: str
    namespace: str = ""
    is_custom: bool = False


@dataclass(frozen=True)
class ToolOptions:
    """The tools that an answer may call, which of them it must call, and whether it may have several calls.

    `forms` has the tools, by the name that the model reads, which are no plain functions.
    """

    tools: tuple[Tool, ...] = ()
    choice: str = ANY_TOOL
    is_parallel: bool = True
    forms: Mapping[str, CallForm] = field(default_factory=dict[str, CallForm])

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


def parse_functions(body: Body) -> Iterator[tuple[Tool, CallForm]]:
    """The tools as OpenAI's chat completions and Ollama have them: objects with a `function`, or a `custom`."""
    for at, tool in enumerate(optional_tools(body)):
        field_path = f"{TOOLS}[{at}]"
        match tool:
            case {"type": "function", "function": dict() as function}:
                yield parse_function(cast("JsonObject", function), field_path)
            case {"type": "custom", "custom": dict() as custom}:
                yield parse_custom(cast("JsonObject", custom), field_path)
            case {"type": str(kind)} if kind != FUNCTION:
                leave_out_tool(body, kind, field_path)
            case _:
                message = f'{field_path}: a tool is an object with the type "function" and a function'
                raise RequestError(message, TOOLS)


def parse_function(function: JsonObject, field_path: str, namespace: str = "") -> tuple[Tool, CallForm]:
    """A function with its `parameters`, and how the API calls it."""
    name = function.get("name")
    tool = parse_tool(_full_name(name, namespace), function.get("description"), function.get("parameters"), field_path)
    return tool, CallForm(str(name), namespace)


def parse_custom(custom: JsonObject, field_path: str, namespace: str = "") -> tuple[Tool, CallForm]:
    """A tool with a text as its input. A grammar of it is told to the model in the description, and not enforced."""
    name, description = custom.get("name"), custom.get("description")
    match custom.get("format"):
        case {"type": "grammar", **grammar}:
            text = cast("JsonObject", grammar.get("grammar") or grammar).get("definition")
            description = f"{description or ''}\n\nThe input follows this grammar:\n\n{text}".strip()
        case _:
            pass
    tool = parse_tool(_full_name(name, namespace), description, INPUT_SCHEMA, field_path)
    return tool, CallForm(str(name), namespace, is_custom=True)


def _full_name(name: Any, namespace: str) -> Any:
    return f"{namespace}{NAMESPACE_SEPARATOR}{name}" if namespace and isinstance(name, str) else name


def read_name(function: JsonObject) -> Any:
    """The name that the model reads, of a call in the words of the API."""
    namespace = function.get("namespace")
    return _full_name(function.get("name"), namespace if isinstance(namespace, str) else "")


def custom_input(arguments: str) -> str:
    """The input of a custom tool, from the arguments that the model wrote; all of them where they are broken."""
    value = arguments_object(arguments).get(CUSTOM_INPUT)
    return value if isinstance(value, str) else arguments


def custom_arguments(text: str) -> str:
    """The inverse of `custom_input`."""
    return json.dumps({CUSTOM_INPUT: text}, ensure_ascii=False)


def leave_out_tool(body: Body, kind: str, field_path: str) -> None:
    body.leave_out(field_path, f"tools of type {kind!r} run on the servers of the API; the client can run functions")


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


def parse_openai_tools(body: Body, tools: Iterable[tuple[Tool, CallForm]]) -> ToolOptions:
    """The fields of tools that the endpoints of OpenAI share. Each has another form of a choice by name."""
    offered = list(tools)
    match body.get(TOOL_CHOICE):
        case None:
            choice = ANY_TOOL
        case str(choice) if choice in TOOL_CHOICES:
            pass
        case {"type": "function" | "custom"} as chosen:
            choice = forced_tool(_chosen_name(chosen))
        case {"type": "allowed_tools", **allowed}:
            allowed = Body(cast("JsonObject", allowed.get("allowed_tools") or allowed))
            choice = ANY_TOOL if allowed.get("mode") == "auto" else SOME_TOOL
            names = {_chosen_name(each) for each in allowed.filled_list(TOOLS, "a list of tools")}
            offered = [each for each in offered if each[0].name in names]
        case {"type": str(kind)}:
            message = f"{TOOL_CHOICE}: {kind!r} runs on the servers of the API; choose a function"
            raise RequestError(message, TOOL_CHOICE)
        case _:
            words = ", ".join(TOOL_CHOICES)
            raise RequestError(f"{TOOL_CHOICE}: give {words}, or an object with the name of a function", TOOL_CHOICE)
    return tool_options(offered, choice, is_parallel=body.flag(PARALLEL, default=True))


def _chosen_name(chosen: Any) -> Any:
    """The name of a chosen tool, which some endpoints have one level deeper."""
    if not isinstance(chosen, dict):
        return None
    inner = cast("JsonObject", chosen).get(str(chosen.get("type")))
    return read_name(cast("JsonObject", inner if isinstance(inner, dict) else chosen))


def tool_options(offered: Iterable[tuple[Tool, CallForm]], choice: str, *, is_parallel: bool) -> ToolOptions:
    pairs = list(offered)
    forms = {tool.name: form for tool, form in pairs if form != CallForm(tool.name)}
    return ToolOptions(tuple(tool for tool, _ in pairs), choice, is_parallel, forms)


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
