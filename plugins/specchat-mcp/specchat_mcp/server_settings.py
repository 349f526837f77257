"""How an MCP server is reached: a program to start or a URL, with all values resolved.

Settings come from a profile, where environment variables are named, or from an editor, which sends values. Starts
nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specchat.errors import ProfileError
from specchat.profile.keys import McpServer
from specchat.profile.validation import key_types

START_SECONDS, CALL_SECONDS = 30.0, 120.0
VARIABLE = re.compile(r"\$\{(\w+)\}")
NAME, MAX_NAME = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*"), 32
SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:token|secret|password|passwd|key|apikey|credentials?|cookie|auth|authorization)(?:$|[_-])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ServerSettings:
    """A server. `problem` says why it cannot be used, "" if it can; values of variables and headers are not printed."""

    name: str
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    url: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    allow: frozenset[str] = frozenset()
    start_seconds: float = START_SECONDS
    call_seconds: float = CALL_SECONDS
    folder: str | None = None  # where the program starts; None: the current folder
    problem: str = ""

    @property
    def address(self) -> str:
        """What is started or reached, for the screen."""
        return shlex.join(self.command) or self.url


def profile_servers(tables: Sequence[McpServer], environment: Mapping[str, str]) -> tuple[ServerSettings, ...]:
    """The servers of a profile that are turned on; ProfileError for a table that cannot be used."""
    for table in tables:
        if fault := _fault(table):
            raise _error(table, fault)
    return tuple(_resolve(table, environment) for table in merged_tables(tables) if table.enabled is not False)


def merged_tables(tables: Sequence[McpServer]) -> tuple[McpServer, ...]:
    """One table for each server, of tables that come strongest first; ProfileError for one that cannot be reached."""
    merged = dict[str, McpServer]()
    for table in reversed(tables):
        if table.command or table.url or table.name not in merged:
            merged[table.name] = table
        else:
            defaults = McpServer(table.name)
            names = [name for name in key_types(McpServer) if getattr(table, name) != getattr(defaults, name)]
            merged[table.name] = replace(merged[table.name], **{name: getattr(table, name) for name in names})
    for server in merged.values():
        if not (server.command or server.url) and server.enabled is not False:
            raise _error(server, f"mcp.{server.name} needs a command or a url")
    in_order = (merged[name] for name in dict.fromkeys(table.name for table in tables))
    return tuple(server for server in in_order if server.command or server.url)


def _error(table: McpServer, fault: str) -> ProfileError:
    return ProfileError(f"{table.location}: {fault}" if table.location else fault)


def _fault(table: McpServer) -> str:
    """Why a table cannot be used, "" if it can. A file gets copied and committed, so no secret stands in it."""
    if len(table.name) > MAX_NAME or not NAME.fullmatch(table.name):
        what = f"an MCP server has a name of at most {MAX_NAME} letters, digits, single - and _"
        return f"{what}, as in [mcp.github]; not {table.name!r}"
    if table.command and table.url:
        return f"mcp.{table.name} has a command and a url; give one of them"
    if table.url and not table.url.startswith(("http://", "https://")):
        return f"mcp.{table.name}.url must begin with http:// or https://, not {table.url!r}"
    for each in table.env:
        name, equals, _value = each.partition("=")
        if equals and SECRET_NAME.search(name):
            fault = f"mcp.{table.name}.env: the value of {name} does not belong in a file; write {name!r} alone"
            return f"{fault}, and set it in the environment"
    for each in table.headers:
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            return f"mcp.{table.name}.headers: {name!r} is not 'NAME: VALUE'"
        if SECRET_NAME.search(name) and "${" not in value:
            fault = f"mcp.{table.name}.headers: the value of {name} does not belong in a file; write"
            return f"{fault} '{name}: ${{VARIABLE}}', and set the variable"
    return ""


def _resolve(table: McpServer, environment: Mapping[str, str]) -> ServerSettings:
    missing = list[str]()

    def value_of(name: str) -> str:
        if name not in environment:
            missing.append(name)
        return environment.get(name, "")

    env = tuple(_variable(each, value_of) for each in table.env)
    pairs = (each.partition(":") for each in table.headers)
    headers = tuple((name.strip(), VARIABLE.sub(lambda m: value_of(m[1]), text).strip()) for name, _, text in pairs)
    unset = ", ".join(dict.fromkeys(missing))
    return ServerSettings(
        table.name, table.command, env, table.url, headers, frozenset(table.allow or ()),
        table.start_seconds or START_SECONDS, table.call_seconds or CALL_SECONDS,
        problem=f"the environment has no variable {unset}" if unset else "",
    )  # fmt: skip


def _variable(text: str, value_of: Callable[[str], str]) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    return name, value if equals else value_of(name)
