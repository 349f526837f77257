"""What a front end hears while an answer is made. The only vocabulary between engine and screen.

Plain values without torch, text only where it is text: a screen, a pipe and a socket can all hold them.
A turn is `Loading* Prefill* Routed (Text | Steps)* (Finished | Failed)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specchat.errors import SpecchatError

TARGET = "target"  # who "guessed" a token that nobody guessed


@dataclass(frozen=True)
class LoadingProgress:
    """A model is on its way: what, and how far of how much (bytes or steps; total 0 when unknown)."""

    label: str
    done: int
    total: int


@dataclass(frozen=True)
class PrefillProgress:
    """The prompt is being read: tokens done, of how many; `reused` were known from before."""

    processed_tokens: int
    prompt_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True)
class Routed:
    """Who drafts this answer, at most how many tokens a step, and why in words."""

    variant: str
    budget: int
    reason: str
    seed: int


@dataclass(frozen=True)
class TextDelta:
    """New characters of the answer: complete UTF-8, past every held-back stop string."""

    text: str


@dataclass(frozen=True)
class CommittedToken:
    """One token that became sure, the bytes it stands for, and who guessed it (TARGET when nobody did)."""

    token_id: int
    token_bytes: bytes
    source: str


@dataclass(frozen=True)
class StepDone:
    """One pass of the target: what was guessed and what became of it. Enough to draw it again later."""

    draft_tokens: tuple[int, ...]  # token ids of the guesses, root left out
    parents: tuple[int, ...]  # of each guess: 0 is the root, n the n-th guess
    committed_tokens: tuple[CommittedToken, ...]  # accepted guesses in order, then the target's own token
    draft_seconds: float
    verify_seconds: float
    draft_token_bytes: tuple[bytes, ...] = ()  # of each guess: the bytes it stands for
    draft_sources: tuple[str, ...] = ()  # of each guess: who made it


@dataclass(frozen=True)
class Totals:
    """The sum of a turn. Rates are derived, never stored."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    steps: int = 0
    draft_tokens: int = 0
    accepted_by_drafter: dict[str, int] = field(default_factory=dict)  # by source
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    prefill_seconds: float = 0.0
    ttft_seconds: float = 0.0
    plain_step_seconds: float = 0.0  # what one plain pass costs here, measured; 0 when unknown
    choice_reason: str = ""  # what the choice of who guesses was made by, in words; nothing when nobody chose

    @property
    def decode_seconds(self) -> float:
        """Drafting and verifying together, the prompt apart."""
        return self.draft_seconds + self.verify_seconds

    @property
    def tokens_per_second(self) -> float:
        """Committed tokens by decode time."""
        return self.completion_tokens / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def speedup(self) -> float | None:
        """Speed against plain decoding at the measured cost of a plain pass; None when it is unknown."""
        if not (self.plain_step_seconds and self.decode_seconds):
            return None
        return self.completion_tokens * self.plain_step_seconds / self.decode_seconds

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted guesses by verified guesses; None when nothing was guessed."""
        return sum(self.accepted_by_drafter.values()) / self.draft_tokens if self.draft_tokens else None

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens committed in a pass of the target; 1 means that speculation brought nothing."""
        return self.completion_tokens / self.steps if self.steps else 0.0


@dataclass(frozen=True)
class Finished:
    """The answer is whole, or was ended: `stop`, `length` or `cancelled`."""

    finish_reason: str
    totals: Totals


@dataclass(frozen=True)
class Failed:
    """The answer could not be made or finished. The text so far stays."""

    message: str
    exit_code: int = 1

    @classmethod
    def from_error(cls, error: SpecchatError) -> Failed:
        """One of our errors, as it is told to whoever listens."""
        return cls(str(error), error.exit_code)


Event = LoadingProgress | PrefillProgress | Routed | TextDelta | StepDone | Finished | Failed
