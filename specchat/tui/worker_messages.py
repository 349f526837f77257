"""The messages of the worker threads to the screen, besides the events of a question. Values and their queue only."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock

from specchat.app.agent.agent_loop import AgentEvent
from specchat.app.ask import Asked
from specchat.chat.events import Event, LoadingProgress
from specchat.history.history_reader import StoredTurn

Versions = tuple[tuple[int, int], ...]  # of each turn: which version is shown, and how many there are


@dataclass(frozen=True)
class ConversationOpened:
    session_id: str
    session_name: str
    profile: str
    turns: tuple[StoredTurn, ...]
    warning: str = ""
    context_window: int = 0  # in tokens; 0 when it is known only after the models are loaded
    model: str = ""  # the target; "" when only the host knows it
    versions: Versions = ()
    selected_position: int | None = None  # of the turn to select


@dataclass(frozen=True)
class VersionsChanged:
    versions: Versions


@dataclass(frozen=True)
class ConversationNamed:
    name: str


@dataclass(frozen=True)
class AnswerEnded:
    """The answer has ended. `is_stored`: its turn is part of the conversation."""

    is_stored: bool


@dataclass(frozen=True)
class TranscriptNote:
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class RejectedEdit:
    """What the model wrote and cannot be taken: a title that begins with the name of the file, and a diff."""

    diff: str


@dataclass(frozen=True)
class EngineLost:
    reason: str


@dataclass(frozen=True)
class EngineState:
    """What the engine process loads, None for nothing, and its memory."""

    loading: LoadingProgress | None
    memory_bytes: int


class InputKind(Enum):
    KEY = "key"
    YES_NO = "yes_no"
    CONSENT = "consent"
    LINE = "line"
    TEXT = "text"


@dataclass(frozen=True)
class InputRequest:
    """The user has to answer: `text` is the prompt, or the text to edit; `hunk` is shown above it, with a notice.

    For YES_NO and CONSENT, `hunk` holds the question.
    """

    kind: InputKind
    text: str
    hunk: str = ""
    notice: str = ""


@dataclass(frozen=True)
class EditProgress:
    line: str


@dataclass(frozen=True)
class EditFinished:
    """The result of an edit: what was written, or why nothing was."""

    text: str
    is_error: bool = False


EditMessage = InputRequest | EditProgress | EditFinished
WorkerMessage = (
    Event | AgentEvent | ConversationOpened | ConversationNamed | VersionsChanged | Asked | AnswerEnded | TranscriptNote
    | RejectedEdit | EngineLost | EngineState | EditMessage
)  # fmt: skip


@dataclass
class MessageQueue:
    """Messages in order, from any thread; `on_first_message` is called when the queue stops being empty."""

    on_first_message: Callable[[], object]
    _messages: list[WorkerMessage] = field(default_factory=list["WorkerMessage"])
    _lock: Lock = field(default_factory=Lock)

    @property
    def is_empty(self) -> bool:
        return not self._messages

    def put(self, message: WorkerMessage) -> None:
        with self._lock:
            was_empty = not self._messages
            self._messages.append(message)
        if was_empty:
            self.on_first_message()

    def take_all(self) -> list[WorkerMessage]:
        with self._lock:
            taken, self._messages = self._messages, []
        return taken
