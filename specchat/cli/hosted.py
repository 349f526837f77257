"""Options of a command as a conversation with the host."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from specchat.cli.conversation import Conversation as Answering
from specchat.cli.conversation import Opener
from specchat.cli.options import OVERRIDING, chosen_profile
from specchat.host.client import Conversation, Wish

MODEL_KEYS = ("models.target", "models.draft")


def wish(options: dict[str, Any], kind: str = "chat") -> Wish:
    """A new conversation as the options want it; they are checked here, where a mistake can be told at once."""
    chosen_profile(options)
    overrides = {option.key: options[option.parameter] for option in OVERRIDING} | {
        "speculation.exact": options["exact"]
    }
    given = {key: value for key, value in overrides.items() if value is not None}
    for key in MODEL_KEYS:
        if given.get(key) and Path(given[key]).exists():
            given[key] = str(Path(given[key]).absolute())  # the host lives in another folder
    return Wish(profile=options["profile"], overrides=given, kind=kind)


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
