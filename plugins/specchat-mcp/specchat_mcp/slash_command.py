"""`/mcp`, `/mcp NAME` and `/mcp restart NAME`: the servers of a conversation."""

from __future__ import annotations

from specchat.app.chat_state import ChatState, CommandResult
from specchat.errors import UsageError
from specchat_mcp.servers import McpServers


def run(chat: ChatState, argument: str) -> CommandResult:
    servers, cancelled = chat.sources.by_name["mcp"], chat.sources.cancelled
    assert isinstance(servers, McpServers)
    match argument.split():
        case []:
            return CommandResult(servers.overview())
        case ["restart", name]:
            return CommandResult(servers.details(name, cancelled, restarts=True))
        case [name] if name != "restart":
            return CommandResult(servers.details(name, cancelled))
        case _:
            raise UsageError("/mcp lists the servers; /mcp NAME starts one; /mcp restart NAME starts it again")
