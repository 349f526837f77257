"""The slash commands of MCP servers: `/mcp`, and `/mcp:SERVER:PROMPT` for each of their prompts.

Knows no server: a front end gives its conversation a `ServerDirectory` (`app/mcp/mcp_servers.py` is one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event as Flag
from typing import TYPE_CHECKING, Protocol

from specchat.context.at_names import NO_LOADERS, Loaders
from specchat.errors import UsageError

if TYPE_CHECKING:
    from specchat.app.chat_state import ChatState

PREFIX = "mcp:"
RESTART = "restart"
NO_SERVERS_TEXT = "no MCP server is named in the profile, config.toml or the project file; see docs/mcp.md"


@dataclass(frozen=True)
class ServerPrompt:
    """A prompt of a server as a command: "mcp:SERVER:PROMPT", its arguments, and what it is for."""

    name: str
    arguments: str
    help: str


@dataclass(frozen=True)
class ServerResource:
    """A name that can be attached: "@SERVER:URI"; without a URI for a server that has not told its resources."""

    name: str
    help: str


class ServerDirectory(Protocol):
    """The servers of a front end. A method that needs an answer of a server starts it, and waits within its limits.

    It waits no longer once `cancelled` is set, which is that of the current line, and after Ctrl-C.
    """

    cancelled: Flag

    def overview(self) -> str:
        """The servers, their state and the tools of those that run; starts none."""
        ...

    def details(self, name: str, *, restarts: bool = False) -> str:
        """What a server offers."""
        ...

    def prompt(self, name: str, argument: str) -> str:
        """The text of the prompt "mcp:SERVER:PROMPT"."""
        ...

    def known_prompts(self) -> Sequence[ServerPrompt]:
        """The prompts of running servers."""
        ...

    def known_resources(self) -> Sequence[ServerResource]: ...

    @property
    def loaders(self) -> Loaders:
        """What loads the texts of `@SERVER:URI`."""
        ...

    def take_notices(self) -> tuple[str, ...]:
        """Lines for the user about servers that failed; each once."""
        ...


class NoServers:
    """The directory of a front end without servers."""

    loaders: Loaders = NO_LOADERS

    def __init__(self) -> None:
        self.cancelled = Flag()

    def overview(self) -> str:
        return NO_SERVERS_TEXT

    def details(self, name: str, *, restarts: bool = False) -> str:
        raise UsageError(NO_SERVERS_TEXT)

    def prompt(self, name: str, argument: str) -> str:
        raise UsageError(NO_SERVERS_TEXT)

    def known_prompts(self) -> Sequence[ServerPrompt]:
        return ()

    def known_resources(self) -> Sequence[ServerResource]:
        return ()

    def take_notices(self) -> tuple[str, ...]:
        return ()


def show_servers(chat: ChatState, argument: str) -> str:
    """`/mcp`, `/mcp NAME` and `/mcp restart NAME`."""
    match argument.split():
        case []:
            return chat.servers.overview()
        case [name] if name != RESTART:
            return chat.servers.details(name)
        case ["restart", name]:
            return chat.servers.details(name, restarts=True)
        case _:
            raise UsageError("/mcp lists the servers; /mcp NAME starts one; /mcp restart NAME starts it again")
