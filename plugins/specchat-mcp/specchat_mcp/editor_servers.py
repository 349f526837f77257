"""The MCP servers that an editor passes on with a session (Agent Client Protocol). They last as long as the session.

Reads the attributes of the protocol's values, and does not import the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from specchat_mcp.server_settings import MAX_NAME, ServerSettings

NOT_A_NAME = re.compile(r"[^A-Za-z0-9]+")
OTHER_TRANSPORT = "the editor reaches it by {}; specchat starts programs (stdio) and uses streamable HTTP (http)"


def servers_from_acp(
    servers: Sequence[Any], folder: str, taken_names: Sequence[str] = ()
) -> tuple[ServerSettings, ...]:
    """The servers of `session/new`, `session/load` or `session/resume`; their programs start in the session's folder.

    Their names become ours: other characters become "_", and a name that is taken gets a number.
    """
    names, settings = list(taken_names), list[ServerSettings]()
    for server in servers:
        name = _free_name(server.name, names)
        names.append(name)
        settings.append(_settings(name, server, folder))
    return tuple(settings)


def _settings(name: str, server: Any, folder: str) -> ServerSettings:
    if command := getattr(server, "command", ""):
        env = tuple((each.name, each.value) for each in server.env or ())
        return ServerSettings(name, (command, *(server.args or ())), env, folder=folder)
    kind = getattr(server, "type", "http")
    headers = tuple((each.name, each.value) for each in getattr(server, "headers", None) or ())
    problem = "" if kind == "http" else OTHER_TRANSPORT.format(kind)
    return ServerSettings(name, url=str(getattr(server, "url", "")), headers=headers, problem=problem)


def _free_name(name: str, taken: Sequence[str]) -> str:
    usable = NOT_A_NAME.sub("_", name).strip("_")[: MAX_NAME - 3].strip("_") or "server"
    numbered = (f"{usable}_{number}" for number in range(2, len(taken) + 3))
    return usable if usable not in taken else next(each for each in numbered if each not in taken)
