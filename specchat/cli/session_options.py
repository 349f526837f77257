"""Options of a command as a conversation with the host."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from specchat.cli.options import read_profile_layers, resolve_profile
from specchat.cli.print_turn import Conversation as Answering
from specchat.cli.print_turn import ConversationFactory
from specchat.host.client import Conversation, SessionRequest


def session_request(options: dict[str, Any], kind: str = "chat") -> SessionRequest:
    """A new conversation as the options want it; they are checked here, where a mistake can be told at once."""
    return SessionRequest(profile=options["profile"], overrides=read_profile_layers(options).overrides(), kind=kind)


def resume_request(new_request: SessionRequest, session_id: str, *, continues_last: bool) -> SessionRequest:
    """An old conversation instead, if one is asked for; it keeps its own profile and options."""
    if not session_id and not continues_last:
        return new_request
    return replace(new_request, session=session_id, is_last=continues_last, profile="", overrides={})


def open_conversation(
    conversation_factory: ConversationFactory | None, options: dict[str, Any]
) -> AbstractContextManager[Answering]:
    """A new conversation as the options want it: with the host, or with the `opener` that stands in for it."""
    if conversation_factory is not None:
        return conversation_factory(resolve_profile(options))
    return open_host_conversation(session_request(options))


def open_host_conversation(request: SessionRequest) -> Conversation:
    """The conversation; what troubles the host is said once, where a person can see it."""
    conversation = Conversation(request)
    if conversation.warning and sys.stderr.isatty():
        print(f"specchat: {conversation.warning}", file=sys.stderr)
    return conversation
