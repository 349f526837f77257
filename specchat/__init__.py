"""specchat: a terminal assistant with lossless speculative decoding.

    import specchat

    print(specchat.answer("What is a generator?"))

    with specchat.open_session("chat") as session:
        for event in session.ask("What is a generator?"):
            if isinstance(event, specchat.TextDelta):
                print(event.text, end="", flush=True)

Importing this package imports neither torch nor models; the first question loads them. docs/python.md has all names.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # checkers take it for true; to import `typing` is slow, and Ctrl-C has a traceback until then
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # before anything imports huggingface_hub

if TYPE_CHECKING:
    from specchat.chat.events import (
        CommittedToken,
        Event,
        Failed,
        Finished,
        LoadingProgress,
        Notice,
        PrefillProgress,
        PromptTokens,
        Routed,
        StepDone,
        TextDelta,
        ThinkingDelta,
        ToolCallDelta,
        Totals,
        Waiting,
    )
    from specchat.chat.request import Attachment, Request
    from specchat.chat.session import Session
    from specchat.chat.tools import Tool, ToolCall, ToolResult
    from specchat.errors import SpecchatError
    from specchat.host.client import Conversation

__version__ = "0.1.0"
__all__ = [
    "Attachment", "CommittedToken", "Event", "Failed", "Finished", "LoadingProgress", "Notice", "PrefillProgress",
    "PromptTokens", "Request", "Routed", "SpecchatError", "StepDone", "TextDelta", "ThinkingDelta", "Tool", "ToolCall",
    "ToolCallDelta", "ToolResult", "Totals", "Waiting", "__version__", "answer", "open_session",
]  # fmt: skip
_MODULES = {  # others: chat.events
    "Attachment": "chat.request", "Request": "chat.request", "SpecchatError": "errors",
    "Tool": "chat.tools", "ToolCall": "chat.tools", "ToolResult": "chat.tools",
}  # fmt: skip


def open_session(profile: str = "chat", *, in_process: bool = False) -> Conversation | Session:
    """Open a conversation with the models of a profile, by its name or file.

    The models run in the engine process that all front ends share; it is started if necessary. With `in_process` they
    are loaded into this process. In both cases `ask(question)` yields the events of an answer, from which `TextDelta`
    has the text; the last one is `Finished` or `Failed`.
    """
    if in_process:
        from specchat.loading.load_engine import load_engine
        from specchat.profile.profile_files import load_profile

        return load_engine(load_profile(profile)).create_session()
    from specchat.host.client import Conversation, SessionRequest
    from specchat.profile.settings import read_settings

    return Conversation(SessionRequest(settings=read_settings(profile)))


def answer(question: Request | str, *, session: Conversation | Session | None = None, profile: str = "chat") -> str:
    """The text of an answer, in a conversation of its own or in an open one; SpecchatError when there is none."""
    from specchat.chat.events import Failed, Finished, TextDelta
    from specchat.errors import error_with_exit_code

    if session is None:
        with open_session(profile) as own:
            return answer(question, session=own)
    texts = list[str]()
    for event in session.ask(question):
        match event:
            case TextDelta(text=text):
                texts.append(text)
            case Finished():
                texts = [event.without_repeats("".join(texts))]
            case Failed(message=message, exit_code=exit_code):
                raise error_with_exit_code(message, exit_code)
    return "".join(texts)


def __getattr__(name: str) -> object:
    """The types of events, requests and errors: imported at first use, because the command line starts without them."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(f"specchat.{_MODULES.get(name, 'chat.events')}"), name)
    raise AttributeError(f"module 'specchat' has no attribute {name!r}")
