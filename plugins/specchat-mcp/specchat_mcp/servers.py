"""The MCP servers of a front end, as its source of tools: for the agent, and prompts and resources for the user."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from specchat.app.tool_sources import OfferedName, SourceCheck, SourceRequest, ToolSource
from specchat.context.at_names import Loader
from specchat.errors import CancelledError, UsageError
from specchat.profile.validation import did_you_mean
from specchat_mcp.connection import McpConnection, State
from specchat_mcp.editor_servers import servers_from_acp
from specchat_mcp.event_loop import EventLoopThread
from specchat_mcp.server_errors import McpServerError, shown_line, shown_text
from specchat_mcp.server_prompts import (
    PREFIX,
    parse_prompt_arguments,
    prompts_of,
    resources_of,
)
from specchat_mcp.server_settings import ServerSettings, profile_servers
from specchat_mcp.server_tools import McpTool, agent_tools, allow_rules

if TYPE_CHECKING:
    from mcp_types import Prompt

    from specchat_mcp.server_run import Catalog

NO_SERVERS_TEXT = "no MCP server is named in the profile, config.toml or the project file; see docs/mcp.md"
MAX_SHOWN_TOOLS = 20  # of a server in /mcp
MAX_DESCRIPTION = 100
CLOSE_SECONDS = 3.0
Result = TypeVar("Result")


def build(request: SourceRequest) -> McpServers:
    """The servers of the profile, and those that an editor passes on."""
    own = profile_servers(request.profile.mcp, os.environ)
    names = [each.name for each in own]
    return McpServers((*own, *servers_from_acp(request.editor_servers, str(request.folder or Path.cwd()), names)))


class McpServers(ToolSource):
    """A method that needs an answer of a server starts it, and waits within its limits.

    It waits no longer once `cancelled` is set, and after Ctrl-C.
    """

    def __init__(self, settings: Sequence[ServerSettings] = ()) -> None:
        self._loop, self._lock = EventLoopThread(), threading.Lock()
        self._notices = dict[str, str]()  # by server
        self._unusable = set[str]()  # whose settings are wrong, as the user was told
        self._connections = {
            each.name: McpConnection(each, self._loop, partial(self._add_notice, each.name)) for each in settings
        }

    def tools(self, cancelled: threading.Event) -> tuple[McpTool, ...]:
        """The tools of all servers that work. They start at the same time; a notice says which do not."""
        tools = list[McpTool]()
        self.begin()
        for connection in self._connections.values():
            try:
                tools += agent_tools(connection, connection.start(cancelled).tools)
            except McpServerError:
                continue  # its notice says it
            except CancelledError:
                break  # what needs the tools is cancelled by the same flag
        return tuple(tools)

    def allow_rules(self) -> tuple[str, ...]:
        """The rules of consent for the tools that the settings allow singly; starts no server."""
        return tuple(rule for each in self._connections.values() for rule in allow_rules(each.settings))

    def begin(self) -> None:
        """Let all servers start at the same time, and wait for none."""
        for connection in self._connections.values():
            try:
                connection.begin()
            except McpServerError as error:
                if connection.name not in self._unusable:
                    self._unusable.add(connection.name)
                    self._add_notice(connection.name, str(error))

    def take_notices(self) -> tuple[str, ...]:
        """Lines for the user about servers that failed; each once."""
        with self._lock:
            notices, self._notices = tuple(self._notices.values()), {}
        return notices

    def overview(self) -> str:
        """The servers, their state and the tools of those that run; starts none."""
        lines = list[str]()
        for connection in self._connections.values():
            state = f"{connection.state.value}: {connection.problem}" if connection.problem else connection.state.value
            lines.append(shown_line(f"{connection.name} ({connection.settings.address}): {state}", 300))
            if catalog := connection.known_catalog:
                lines += [f"  {line}" for line in self._tool_lines(connection, catalog, MAX_SHOWN_TOOLS)]
        if any(each.state is State.NOT_STARTED for each in self._connections.values()):
            lines.append("a server starts with its first use, or with its name (/mcp NAME, specchat mcp NAME)")
        return "\n".join(lines) or NO_SERVERS_TEXT

    def details(self, name: str, cancelled: threading.Event, *, restarts: bool = False) -> str:
        """What a server offers."""
        connection = self._connection(name)
        if restarts:
            connection.stop()
        catalog = self._without_notice(connection, lambda: connection.start(cancelled))
        lines = [f"{name}: {connection.settings.address}", *self._tool_lines(connection, catalog)]
        lines += [f"prompt /{each.name} {each.arguments}: {each.help}" for each in prompts_of(name, catalog)]
        lines += [f"resource {each.name}: {each.help}" for each in resources_of(name, catalog)]
        return "\n".join(lines if len(lines) > 1 else [*lines, "it offers no tools, prompts or resources"])

    def prompt(self, name: str, argument: str, cancelled: threading.Event) -> str:
        """The text of the prompt "mcp:SERVER:PROMPT"."""
        from specchat_mcp.server_results import prompt_text

        server, _, prompt = name.removeprefix(PREFIX).partition(":")
        connection = self._connection(server)
        found = self._find_prompt(connection, prompt, cancelled)
        values = parse_prompt_arguments(found, argument)
        result = self._without_notice(
            connection, lambda: connection.ask(lambda client: client.get_prompt(prompt, values), cancelled)
        )
        text = shown_text(prompt_text(result))
        if not text.strip():
            raise McpServerError(server, f"the prompt {prompt} has no text")
        return text

    def prompts(self) -> Sequence[OfferedName]:
        """Those of running servers."""
        running = ((each.name, each.known_catalog) for each in self._connections.values())
        return [prompt for name, catalog in running if catalog for prompt in prompts_of(name, catalog)]

    def resources(self) -> Sequence[OfferedName]:
        connections = [each for each in self._connections.values() if each.state is not State.FAILED]
        return [resource for each in connections for resource in resources_of(each.name, each.known_catalog)]

    def loader(self, name: str, cancelled: threading.Event) -> Loader | None:
        """What loads the text of "@SERVER:URI"."""
        return partial(self._read_resource, name, cancelled) if name in self._connections else None

    def checks(self) -> Iterator[SourceCheck]:
        """Whether the program and the variables of each server are there; starts none."""
        for settings in (each.settings for each in self._connections.values()):
            is_missing = bool(settings.command) and shutil.which(settings.command[0]) is None
            problem = settings.problem or (f"there is no program {settings.command[0]}" if is_missing else "")
            state = problem or f"{settings.address}; not started, specchat mcp {settings.name} does it"
            yield SourceCheck("MCP server", f"{settings.name}: {state}", bool(problem))

    def close(self) -> None:
        """Stop all servers at once, and wait for them for a moment."""
        for connection in self._connections.values():
            connection.stop(waits=False)
        self._loop.close(CLOSE_SECONDS)

    def _read_resource(self, server: str, cancelled: threading.Event, uri: str) -> str:
        from specchat_mcp.server_results import resource_text

        connection = self._connection(server)
        result = self._without_notice(
            connection, lambda: connection.ask(lambda client: client.read_resource(uri), cancelled)
        )
        return resource_text(f"@{server}:{uri}", result)

    def _find_prompt(self, connection: McpConnection, name: str, cancelled: threading.Event) -> Prompt:
        catalog = self._without_notice(connection, lambda: connection.start(cancelled))
        for each in catalog.prompts:
            if each.name == name:
                return each
        known = [each.name for each in catalog.prompts]
        hint = did_you_mean(name, known)
        raise UsageError(
            f"the MCP server {connection.name} has no prompt {name!r};{hint} known are {', '.join(known) or 'none'}"
        )

    def _connection(self, name: str) -> McpConnection:
        if name not in self._connections:
            known = ", ".join(self._connections)
            hint = f"{did_you_mean(name, self._connections)} known are {known}" if known else f" {NO_SERVERS_TEXT}"
            raise UsageError(f"there is no MCP server {name!r};{hint}")
        return self._connections[name]

    def _without_notice(self, connection: McpConnection, ask: Callable[[], Result]) -> Result:
        """The answer; an error that the user sees needs no notice as well."""
        try:
            return ask()
        except KeyboardInterrupt:
            raise CancelledError("stopped waiting for the server") from None
        finally:
            with self._lock:
                self._notices.pop(connection.name, None)

    def _add_notice(self, server: str, line: str) -> None:
        with self._lock:
            self._notices[server] = line

    def _tool_lines(self, connection: McpConnection, catalog: Catalog, max_count: int | None = None) -> list[str]:
        tools = agent_tools(connection, catalog.tools)
        lines = [_tool_line(each) for each in tools[:max_count]]
        more = len(tools) - len(lines)
        return [*lines, f"and {more} more; /mcp {connection.name} lists them"] if more > 0 else lines


def _tool_line(each: McpTool) -> str:
    allowed = " (allowed)" if each.is_allowed else ""
    what = shown_line(each.tool.description, MAX_DESCRIPTION)
    return f"tool {each.tool.name}{allowed}: {what}" + (f" ({each.note})" if each.note else "")
