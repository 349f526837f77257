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
class ConversationOpened:
    """A conversation is at hand, or another one than before."""

    session_id: str
    session_name: str
    profile: str
    turns: tuple[StoredTurn, ...]
    warning: str = ""


@dataclass(frozen=True)
class ConversationNamed:
    """The conversation has a name now."""

    name: str


@dataclass(frozen=True)
class RequestSent:
    """A question is on its way to the engine."""

    request: Request


@dataclass(frozen=True)
class AnswerEnded:
    """The answer is over; is its question part of the conversation?"""

    is_stored: bool


@dataclass(frozen=True)
class TranscriptNote:
    """Words for the person; of something that went wrong, perhaps."""

    text: str
    is_error: bool = False


@dataclass(frozen=True)
class EngineLost:
    """There is no engine process, and why."""

    reason: str


@dataclass(frozen=True)
class EngineState:
    """What the engine process is doing: cold, loading or ready; the bytes its models hold, and which process it is."""

    state: str
    memory_bytes: int
    warning: str = ""
    pid: int = 0


class InputKind(Enum):
    """What a question is answered with."""

    KEY = "letter"
    YES_NO = "yes"
    LINE = "line"
    TEXT = "text"


@dataclass(frozen=True)
class InputRequest:
    """The person is waited for: a question, or a text to be changed; about which hunk, and what there is to say.

    A question for a yes has its words where an edit has a hunk.
    """

    kind: InputKind
    text: str
    hunk: str = ""
    notice: str = ""


@dataclass(frozen=True)
class EditProgress:
    """How far an edit is."""

    line: str


@dataclass(frozen=True)
class EditFinished:
    """An edit is over: what was written, or why nothing was."""

    text: str
    is_error: bool = False


@dataclass(frozen=True)
class QuitRequested:
    """The person wants to go."""


EditMessage = InputRequest | EditProgress | EditFinished
ConversationMessage = (
    Event
    | ConversationOpened
    | ConversationNamed
    | RequestSent
    | AnswerEnded
    | TranscriptNote
    | EngineLost
    | EngineState
    | QuitRequested
)
WorkerMessage = ConversationMessage | EditMessage


@dataclass
class MessageQueue:
    """News in order, from any thread; `arrived` is called when the first one lies in an empty box."""

    on_first_message: Callable[[], object]
    _messages: list[WorkerMessage] = field(default_factory=list["WorkerMessage"])
    _lock: Lock = field(default_factory=Lock)

    @property
    def is_empty(self) -> bool:
        """Does nothing lie there?"""
        return not self._messages

    def put(self, message: WorkerMessage) -> None:
        """Leave something."""
        with self._lock:
            was_empty = not self._messages
            self._messages.append(message)
        if was_empty:
            self.on_first_message()

    def take_all(self) -> list[WorkerMessage]:
        """Everything that lies there."""
        with self._lock:
            taken, self._messages = self._messages, []
        return taken
