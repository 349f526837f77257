"""The turns of a conversation, as text and as tokens, and what an engine is asked after them. Knows no model."""

from dataclasses import dataclass, field
from typing import Self

from specchat.chat.request import Attachment, Request
from specchat.chat.tools import ToolCall, ToolResult
from specchat.profile.keys import Profile


@dataclass(frozen=True)
class Turn:
    """A question and its answer. The tokens are those of the model, never encoded again from the text.

    A turn from a client has text only. After an answer with tool calls, the results stand in the place of the question,
    which may follow them.
    """

    user: str
    files: tuple[Attachment, ...] = ()
    prompt_ids: tuple[int, ...] = ()  # the whole conversation up to what the model generated
    answer: str = ""  # with its given beginning, if the request has one; without the thinking
    answer_ids: tuple[int, ...] = ()  # with the end token, if the model generated one
    rendered_prompt: str = ""  # the text of `prompt_ids`, rendered by the chat template
    is_finished: bool = False  # the model ended the answer; it was not cancelled or truncated
    seed: int = 0
    model: str = ""  # the target that these tokens belong to, as the profile names it; "": unknown
    task: str = ""  # of the request
    thinking: str = ""  # what the model thought before the answer
    tool_results: tuple[ToolResult, ...] = ()  # before the question, which may be empty then
    tool_calls: tuple[ToolCall, ...] = ()  # after the text of the answer

    @classmethod
    def of_request(cls, request: Request) -> Self:
        """The turn of a request, before its answer."""
        return cls(request.text, request.files, task=request.task, tool_results=request.tool_results)

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.prompt_ids + self.answer_ids


@dataclass(frozen=True)
class TextOwner:
    """A conversation, as the prefix cache of an engine knows it.

    What the engine computed for it serves others with the same beginning, and is stored under its name when it has one.
    That of a private one serves conversations of the same name only, and is never stored.
    """

    name: str = ""
    is_private: bool = True


@dataclass(frozen=True)
class Question:
    """All that an engine is told: it keeps nothing of a conversation but what its texts have computed.

    `notified` is what the conversation had a notice about; the answer adds its own. `asked_at` is when the request
    came, on the clock of `perf_counter`; None: now. `loading_seconds` of the time since then, models loaded.
    """

    request: Request
    turns: tuple[Turn, ...] = ()
    profile: Profile = field(default_factory=Profile)
    owner: TextOwner = TextOwner()
    notified: set[str] = field(default_factory=set[str])
    asked_at: float | None = None
    loading_seconds: float = 0.0
