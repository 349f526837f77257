"""The options of a command become a conversation with the host."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import click

from specchat.cli.completion import complete_sessions
from specchat.cli.options import CommandFunction, read_profile_layers, resolve_profile
from specchat.cli.print_turn import Conversation as AnyConversation
from specchat.cli.print_turn import ConversationFactory
from specchat.errors import UsageError
from specchat.history.history_reader import CHAT
from specchat.host.client import Conversation, SessionRequest

PRIVATE_NOTICE = "private: nothing of this conversation is stored, and nothing is copied from others"


def session_request(options: dict[str, Any], kind: str = CHAT) -> SessionRequest:
    """The request for a new conversation. The options are validated here, so that an error appears at once.

    The MCP servers stay in this process, which starts them when something of them is needed.
    """
    layers = read_profile_layers(options)
    if servers := layers.resolve().value.mcp_servers:
        from specchat.app.mcp.mcp_servers import use_servers
        from specchat.app.mcp.mcp_settings import profile_servers

        use_servers(profile_servers(servers, os.environ))
    request = SessionRequest(profile=options["profile"], overrides=layers.overrides(), kind=kind)
    return private_request(request) if options.get("is_private") else request


def private_request(request: SessionRequest) -> SessionRequest:
    """The same conversation, not stored and without copies from other conversations."""
    return replace(request, is_stored=False, overrides={**request.overrides, "speculation.recall": False})


def private_option(command: CommandFunction) -> CommandFunction:
    return click.option(
        "--private",
        "is_private",
        is_flag=True,
        help="Store nothing of this conversation, and copy nothing from others.",
    )(command)


def resume_options(command: CommandFunction) -> CommandFunction:
    resume = click.option(
        "-r",
        "--resume",
        "session",
        default="",
        help="Continue this conversation; the beginning of an id is enough.",
        shell_complete=complete_sessions,
    )
    continue_last = click.option(
        "-c", "--continue", "is_last", is_flag=True, help="Continue the last conversation of this folder."
    )
    return continue_last(resume(command))


def resume_request(options: dict[str, Any]) -> SessionRequest:
    """The request for a stored conversation, which keeps its own profile and options; for a new one if none is named.

    Removes the `resume_options` from the options.
    """
    session_id, continues_last = options.pop("session"), options.pop("is_last")
    new_request = session_request(options)
    if not session_id and not continues_last:
        return new_request
    if options.get("is_private"):
        raise UsageError("a stored conversation cannot be private; leave out --private, or start a new one")
    return replace(new_request, session_id=session_id, continues_last=continues_last, profile="", overrides={})


def open_conversation(
    conversation_factory: ConversationFactory | None, options: dict[str, Any], kind: str = CHAT
) -> AbstractContextManager[AnyConversation]:
    """A new conversation with the host, or one from the factory that replaces the host in tests."""
    return conversation_opener(conversation_factory, options, kind)()


def conversation_opener(
    conversation_factory: ConversationFactory | None, options: dict[str, Any], kind: str = CHAT
) -> Callable[[], AbstractContextManager[AnyConversation]]:
    """What opens the conversation. The options are checked and the MCP servers known before that."""
    if conversation_factory is not None:
        return partial(conversation_factory, resolve_profile(options))
    return partial(open_host_conversation, session_request(options, kind))


def open_host_conversation(request: SessionRequest) -> Conversation:
    """Open the conversation; a warning of the host is printed once, on a terminal."""
    conversation = Conversation(request)
    if conversation.warning and sys.stderr.isatty():
        print(f"specchat: {conversation.warning}", file=sys.stderr)
    return conversation
