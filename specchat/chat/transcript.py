"""What was said in a conversation, as text and as tokens: a value for each turn. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass

from specchat.chat.request import Attachment


@dataclass(frozen=True)
class Exchange:
    """A question and its answer as somebody else tells of them: text alone."""

    user: str
    answer: str


@dataclass(frozen=True)
class Turn:
    """A question and its answer. The tokens are those the model read and wrote, never made anew from the text."""

    user: str
    files: tuple[Attachment, ...] = ()
    prompt_ids: tuple[int, ...] = ()  # the whole conversation up to where the answer begins
    answer: str = ""
    answer_ids: tuple[int, ...] = ()  # with the end token, if the model wrote one
    rendered_prompt: str = ""  # the text of `prompt_ids`, as the template wrote it
    is_finished: bool = False  # the model came to an end; it was not cancelled or cut at a limit
    seed: int = 0

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Everything that the model has seen when the turn is over."""
        return self.prompt_ids + self.answer_ids
