"""What a front end hears while an answer is made. The only vocabulary between engine and screen.

Plain values without torch, text only where it is text: a screen, a pipe and a socket can all hold them.
A turn is `Loading* Prefill* Routed (Text | Steps)* (Finished | Failed)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specchat.errors import SpecchatError

TARGET = "target"  # who "guessed" a token that nobody guessed


@dataclass(frozen=True)
class Loading:
    """A model is on its way: what, and how far of how much (bytes or steps; total 0 when unknown)."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Prefill:
    """The prompt is being read: tokens done, of how many; `reused` were known from before."""

    done: int
    total: int
    reused: int = 0


@dataclass(frozen=True)
class Routed:
    """Who drafts this answer, at most how many tokens a step, and why in words."""

    variant: str
    budget: int
    reason: str
    seed: int


@dataclass(frozen=True)
class Text:
    """New characters of the answer: complete UTF-8, past every held-back stop string."""

    text: str


@dataclass(frozen=True)
class Committed:
    """One token that became sure, the bytes it stands for, and who guessed it (TARGET when nobody did)."""

    id: int
    bytes: bytes
    source: str


@dataclass(frozen=True)
class StepDone:
    """One pass of the target: what was guessed and what became of it. Enough to draw it again later."""

    drafted: tuple[int, ...]  # token ids of the guesses, root left out
    parents: tuple[int, ...]  # of each guess: 0 is the root, n the n-th guess
    committed: tuple[Committed, ...]  # accepted guesses in order, then the target's own token
    draft_seconds: float
    verify_seconds: float
    words: tuple[bytes, ...] = ()  # of each guess: the bytes it stands for
    sources: tuple[str, ...] = ()  # of each guess: who made it


@dataclass(frozen=True)
class Totals:
    """The sum of a turn. Rates are derived, never stored."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: dict[str, int] = field(default_factory=dict)  # by source
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    prefill_seconds: float = 0.0
    first_token_seconds: float = 0.0
    plain_seconds: float = 0.0  # what one plain pass costs here, measured; 0 when unknown
    why: str = ""  # what the choice of who guesses was made by, in words; nothing when nobody chose

    @property
    def decode_seconds(self) -> float:
        """Drafting and verifying together, the prompt apart."""
        return self.draft_seconds + self.verify_seconds

    @property
    def tokens_per_second(self) -> float:
        """Committed tokens by decode time."""
        return self.tokens / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def times_plain(self) -> float | None:
        """Speed against plain decoding at the measured cost of a plain pass; None when it is unknown."""
        if not (self.plain_seconds and self.decode_seconds):
            return None
        return self.tokens * self.plain_seconds / self.decode_seconds

    @property
    def accepted_share(self) -> float | None:
        """Accepted guesses by verified guesses; None when nothing was guessed."""
        return sum(self.accepted.values()) / self.drafted if self.drafted else None

    @property
    def tokens_per_pass(self) -> float:
        """Mean tokens committed in a pass of the target; 1 means that speculation brought nothing."""
        return self.tokens / self.steps if self.steps else 0.0


@dataclass(frozen=True)
class Finished:
    """The answer is whole, or was ended: `stop`, `length` or `cancelled`."""

    reason: str
    totals: Totals


@dataclass(frozen=True)
class Failed:
    """The answer could not be made or finished. The text so far stays."""

    message: str
    exit_code: int = 1

    @classmethod
    def of(cls, error: SpecchatError) -> Failed:
        """One of our errors, as it is told to whoever listens."""
        return cls(str(error), error.exit_code)


Event = Loading | Prefill | Routed | Text | StepDone | Finished | Failed
