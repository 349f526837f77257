"""Options of a command as a conversation with the host."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from specchat.cli.options import choice, chosen_profile
from specchat.cli.print_turn import Conversation as Answering
from specchat.cli.print_turn import Opener
from specchat.host.client import Conversation, Wish


def wish(options: dict[str, Any], kind: str = "chat") -> Wish:
    """A new conversation as the options want it; they are checked here, where a mistake can be told at once."""
    return Wish(profile=options["profile"], overrides=choice(options).overrides(), kind=kind)


def continued(new: Wish, session: str, *, is_last: bool) -> Wish:
    """An old conversation instead, if one is asked for; it keeps its own profile and options."""
    if not session and not is_last:
        return new
    return replace(new, session=session, is_last=is_last, profile="", overrides={})


def open_chosen(opener: Opener | None, options: dict[str, Any]) -> AbstractContextManager[Answering]:
    """A new conversation as the options want it: with the host, or with the `opener` that stands in for it."""
    if opener is not None:
        return opener(chosen_profile(options))
    return open_hosted(wish(options))


def open_hosted(chosen: Wish) -> Conversation:
    """The conversation; what troubles the host is said once, where a person can see it."""
    conversation = Conversation(chosen)
    if conversation.trouble and sys.stderr.isatty():
        print(f"specchat: {conversation.trouble}", file=sys.stderr)
    return conversation
