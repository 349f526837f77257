"""How an MCP server is reached: a program to start or a URL, with all values resolved.

Settings come from a profile, where environment variables are named, or from an editor, which sends values. Starts
nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from specchat.profile.keys import McpServer

START_SECONDS, CALL_SECONDS = 30.0, 120.0
VARIABLE = re.compile(r"\$\{(\w+)\}")


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


def profile_servers(tables: tuple[McpServer, ...], environment: Mapping[str, str]) -> tuple[ServerSettings, ...]:
    """The servers of a profile that are turned on."""
    return tuple(_resolve(table, environment) for table in tables if table.enabled is not False)


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
