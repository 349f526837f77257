"""A request to a session: a value, validated when it is created. Knows no model and no screen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specchat.chat.answer_format import AnswerFormat
from specchat.errors import UsageError
from specchat.profile import Sampling

EDIT_TASK = "edit"
MAX_ATTACHED_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Attachment:
    """A named text of a request, usually a file."""

    name: str
    text: str


@dataclass(frozen=True)
class Request:
    """One question, and how to answer it.

    `max_tokens`, `seed`, `temperature` and `variant` override the profile. `task` is the command that makes the request
    ("edit"), "" in a chat. `file_to_rewrite` names the file, attached here or earlier in the conversation, of which the
    answer will be a new version.
    """

    text: str
    files: tuple[Attachment, ...] = ()
    max_tokens: int | None = None
    seed: int | None = None
    temperature: float | None = None
    variant: str | None = None
    stop: tuple[str, ...] = ()
    task: str = ""
    file_to_rewrite: str = ""
    answer_format: AnswerFormat | None = None

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise UsageError("the prompt is empty; give a question as an argument or on standard input")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if self.temperature is not None and not 0 <= self.temperature <= 5:
            raise UsageError(f"the temperature must lie between 0 and 5, not {self.temperature}")
        if "" in self.stop:
            raise UsageError("a stop string must not be empty")

    def sampling(self, of_profile: Sampling) -> Sampling:
        """How the answer is sampled: an edit greedily and without a penalty on copies, unless the request says more."""
        chosen = replace(of_profile, temperature=0.0, repetition_penalty=1.0) if self.task == EDIT_TASK else of_profile
        own = {"temperature": self.temperature, "seed": self.seed}
        return replace(chosen, **{name: value for name, value in own.items() if value is not None})
