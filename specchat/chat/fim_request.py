"""A request to fill a gap in a text (fill-in-the-middle, FIM): a value, validated when it is created."""

from dataclasses import dataclass

from specchat.chat.request import AnswerFormat, TokenBias
from specchat.errors import UsageError
from specchat.profile.keys import Sampling

MAX_FIM_TOKENS = 1024
MODEL_LOADING = "model_loading"  # the finish reason of a completion without a loaded model
FILLED_REASONS = ("stop", "lines", "block", "inside_line")  # of a completion that is not cut


@dataclass(frozen=True)
class FimRequest:
    """The text before and after the gap, and the limits of the completion.

    `max_context_tokens` limits the prefilled tokens of prefix and suffix. `max_lines` and `timeout_seconds` end the
    completion; 0 means no limit. It ends before the first `stop` text. With `is_raw` the prefix is a whole prompt with
    the caller's template: control tokens in it are control tokens (`parses_special`), and only one of them ends the
    completion; `prompt_ids` stand for such a prompt, which else may begin with the tokens of every text (`adds_start`).
    With `echoes`, a raw prompt's tokens are an event before the completion, which may then have no token at all; with
    `echoes_ends`, they are those that end a text. `wants_probabilities` is of all these tokens.
    A raw completion may have an `answer_format`.
    """

    prefix: str
    suffix: str = ""
    max_tokens: int = 64
    max_context_tokens: int = 1536
    max_lines: int = 0
    timeout_seconds: float = 0.0
    stop: tuple[str, ...] = ()
    is_raw: bool = False
    sampling: Sampling = Sampling()
    logit_bias: tuple[TokenBias, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    parses_special: bool = True
    adds_start: bool = True
    echoes: bool = False
    echoes_ends: bool = False
    answer_format: AnswerFormat | None = None
    wants_probabilities: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < (not self.echoes) or (self.max_tokens > MAX_FIM_TOKENS and not self.is_raw):
            raise UsageError(
                f"max_tokens of a completion must lie between 1 and {MAX_FIM_TOKENS}, not {self.max_tokens}"
            )
        if self.max_context_tokens < 1 or self.max_lines < 0 or not self.timeout_seconds >= 0:
            raise UsageError(
                "a completion needs at least 1 context token, and max_lines and timeout_seconds of at least 0"
            )
        if "" in self.stop:
            raise UsageError("a stop text of a completion must not be empty")
