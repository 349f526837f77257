"""Lists of tools in a form that the package `mcp` takes, which otherwise refuses all tools of a server for one.

Of a schema that is none, the names of the arguments stay; what has no name, or runs as a task only, is left out.
The schemas of results go: the package would check results against them, and a pattern in one can take for ever.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

from mcp_types import JSONRPCResponse
from mcp_types.methods import validate_server_result

VERSION = "2025-11-25"  # of the protocol; the others ask the same of a schema
TEXTS = ("name", "title", "description")  # more of a tool is not used
OnWrong = Callable[[str], None]  # what is wrong, for the user


class _CheckedMessages:
    """The messages of a server from a stream of the package."""

    def __init__(self, stream: Any, on_wrong: OnWrong) -> None:
        self._stream, self._on_wrong = stream, on_wrong

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._stream.__aexit__(*error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._stream.__anext__()
        response = getattr(item, "message", None)
        if isinstance(response, JSONRPCResponse) and isinstance(response.result.get("tools"), list):
            response.result["tools"] = self._usable(response.result["tools"])
        return item

    def _usable(self, tools: list[Any]) -> list[dict[str, Any]]:
        named = [each for each in tools if isinstance(each, Mapping) and isinstance(each.get("name"), str)]
        tasks = [each["name"] for each in named if _needs_task(each)]
        run_at_once = [each for each in named if not _needs_task(each)]
        usable = list(map(_usable_tool, run_at_once))
        wrong = [new["name"] for old, new in zip(run_at_once, usable, strict=True) if not _is_kept(old, new)]
        if wrong:
            self._on_wrong(f"has a wrong schema for the tool {_first(wrong)}; the names of its arguments are used")
        if tasks:
            self._on_wrong(f"runs the tool {_first(tasks)} as a task only, which specchat has not; it is left out")
        if len(named) < len(tools):
            self._on_wrong(f"lists {len(tools) - len(named)} of its tools without a name; they are left out")
        return usable


@asynccontextmanager
async def with_checked_tools(
    transport: AbstractAsyncContextManager[Any], on_wrong: OnWrong
) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of a transport, the first of them with checked lists of tools."""
    async with transport as (incoming, outgoing):
        yield _CheckedMessages(incoming, on_wrong), outgoing


def _first(names: list[str]) -> str:
    return names[0] + f" and {len(names) - 1} more" * (len(names) > 1)


def _needs_task(tool: Mapping[str, Any]) -> bool:
    """Whether its server answers a call with a task to be asked for later, and in no other way."""
    execution = tool.get("execution")
    return isinstance(execution, Mapping) and execution.get("taskSupport") == "required"


def _usable_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: tool[name] for name in TEXTS if isinstance(tool.get(name), str)}
    schema = tool.get("inputSchema")
    typed = {"type": "object", **schema} if isinstance(schema, Mapping) else {"type": "object"}
    if not _is_schema(typed):
        properties = typed.get("properties")
        names = {str(name): {} for name in properties} if isinstance(properties, Mapping) else {}
        typed = {"type": "object", "properties": names}
    return {**fields, "inputSchema": typed}


def _is_kept(tool: Mapping[str, Any], usable: Mapping[str, Any]) -> bool:
    """Whether a tool has the schema that it came with, or had none."""
    schema = tool.get("inputSchema")
    return schema is None or (isinstance(schema, Mapping) and {"type": "object", **schema} == usable["inputSchema"])


def _is_schema(schema: Any) -> bool:
    """Whether the protocol takes it as that of the arguments of a tool."""
    try:
        tools = {"tools": [{"name": "tool", "inputSchema": schema}]}
        validate_server_result("tools/list", VERSION, tools)
    except (ValueError, RecursionError):
        return False
    return True
