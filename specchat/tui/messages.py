"""What the thread that talks with the host has to tell the screen, besides the events of an answer. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock

from specchat.chat.events import Event
from specchat.chat.history import StoredTurn
from specchat.chat.request import Request


@dataclass(frozen=True)
class Opened:
    """A conversation is at hand, or another one than before."""

    session: str
    name: str
    profile: str
    turns: tuple[StoredTurn, ...]
    trouble: str = ""


@dataclass(frozen=True)
class Named:
    """The conversation has a name now."""

    name: str


@dataclass(frozen=True)
class Asking:
    """A question is on its way to the engine."""

    request: Request


@dataclass(frozen=True)
class Ended:
    """The answer is over; is its question part of the conversation?"""

    is_stored: bool


@dataclass(frozen=True)
class Told:
    """Words for the person; of something that went wrong, perhaps."""

    text: str
    is_error: bool = False


@dataclass(frozen=True)
class Lost:
    """There is no engine process, and why."""

    reason: str


@dataclass(frozen=True)
class EngineState:
    """What the engine process is doing: cold, loading or ready; the bytes its models hold, and which process it is."""

    state: str
    memory: int
    trouble: str = ""
    process: int = 0


class Want(Enum):
    """What a question is answered with."""

    LETTER = "letter"
    YES = "yes"
    LINE = "line"
    TEXT = "text"


@dataclass(frozen=True)
class Query:
    """The person is waited for: a question, or a text to be changed; about which hunk, and what there is to say.

    A question for a yes has its words where an edit has a hunk.
    """

    want: Want
    text: str
    hunk: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Follows:
    """How far an edit is."""

    line: str


@dataclass(frozen=True)
class Changed:
    """An edit is over: what was written, or why nothing was."""

    text: str
    is_error: bool = False


@dataclass(frozen=True)
class Leaving:
    """The person wants to go."""


EditNews = Query | Follows | Changed
TalkNews = Event | Opened | Named | Asking | Ended | Told | Lost | EngineState | Leaving
News = TalkNews | EditNews


@dataclass
class Mailbox:
    """News in order, from any thread; `arrived` is called when the first one lies in an empty box."""

    arrived: Callable[[], object]
    _news: list[News] = field(default_factory=list["News"])
    _lock: Lock = field(default_factory=Lock)

    @property
    def is_empty(self) -> bool:
        """Does nothing lie there?"""
        return not self._news

    def put(self, news: News) -> None:
        """Leave something."""
        with self._lock:
            was_empty = not self._news
            self._news.append(news)
        if was_empty:
            self.arrived()

    def take(self) -> list[News]:
        """Everything that lies there."""
        with self._lock:
            taken, self._news = self._news, []
        return taken
