"""A place in a text that wants something written into it: a value, checked when it is made. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass

from specchat.errors import UsageError

MAX_FIM_TOKENS = 1024


@dataclass(frozen=True)
class FimRequest:
    """What stands before and after the gap, and how much may be written into it.

    `context` are the tokens of prefix and suffix that are read at most; `lines` ends it after so many lines, `seconds`
    after so much time; 0 does not.
    """

    prefix: str
    suffix: str = ""
    max_tokens: int = 64
    max_context_tokens: int = 1536
    max_lines: int = 0
    timeout_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.max_tokens <= MAX_FIM_TOKENS:
            raise UsageError(f"a gap takes 1 to {MAX_FIM_TOKENS} tokens, not {self.max_tokens}")
        if self.max_context_tokens < 1 or self.max_lines < 0 or not self.timeout_seconds >= 0:
            raise UsageError("a gap needs a context of at least one token, and no fewer lines or seconds than none")
