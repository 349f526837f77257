"""specchat: a terminal assistant with lossless speculative decoding.

    from specchat import open_session

    with open_session("chat") as session:
        for event in session.ask("What is a generator?"):
            print(event)

Importing this package imports neither torch nor models; the first question loads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specchat.chat.session import Session
    from specchat.host.client import Conversation

__version__ = "0.1.0"
__all__ = ["__version__", "open_session"]


def open_session(profile: str = "chat", *, in_process: bool = False) -> Conversation | Session:
    """Open a conversation with the models of a profile, by its name or file.

    The models run in the engine process that all front ends share; it is started if necessary. With `in_process` they
    are loaded into this process. In both cases `ask(question)` yields the events of `specchat.chat.events`.
    """
    if in_process:
        from specchat.loading.load_engine import load_engine
        from specchat.profile import load_profile

        return load_engine(load_profile(profile)).create_session()
    from specchat.host.client import Conversation, SessionRequest

    return Conversation(SessionRequest(profile=profile))
