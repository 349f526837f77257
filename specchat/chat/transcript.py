"""The turns of a conversation, as text and as tokens. Knows no model."""

from dataclasses import dataclass

from specchat.chat.request import Attachment
from specchat.chat.tools import ToolCall, ToolResult


@dataclass(frozen=True)
class Exchange:
    """A question and its answer from a client: text without tokens. `is_failed`: the engine never finished it.

    After an answer with tool calls, the results stand in the place of the question, which may follow them.
    """

    user: str
    answer: str
    files: tuple[Attachment, ...] = ()
    is_failed: bool = False
    tool_results: tuple[ToolResult, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Turn:
    """A question and its answer. The tokens are those of the model, never encoded again from the text."""

    user: str
    files: tuple[Attachment, ...] = ()
    prompt_ids: tuple[int, ...] = ()  # the whole conversation up to what the model generated
    answer: str = ""  # with its given beginning, if the request has one; without the thinking
    answer_ids: tuple[int, ...] = ()  # with the end token, if the model generated one
    rendered_prompt: str = ""  # the text of `prompt_ids`, rendered by the chat template
    is_finished: bool = False  # the model ended the answer; it was not cancelled or truncated
    seed: int = 0
    model: str = ""  # the target that these tokens belong to, as the profile names it; "": unknown
    thinking: str = ""  # what the model thought before the answer
    tool_results: tuple[ToolResult, ...] = ()  # before the question, which may be empty then
    tool_calls: tuple[ToolCall, ...] = ()  # after the text of the answer

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.prompt_ids + self.answer_ids
