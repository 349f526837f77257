"""What a sweep combines, and what it keeps of an answer. Values only: no model, no file, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

OWN_WIDTH = 0  # as wide as the drafter likes
PLAIN, CHOOSER = "plain", "auto"


@dataclass(frozen=True)
class Cell:
    """One combination: who guesses, at most how many tokens, at most how many in one place, and on what."""

    kind: str
    temperature: float
    drafter: str
    budget: int = 0
    width: int = OWN_WIDTH

    @property
    def plain(self) -> Cell:
        """Nobody, on the same."""
        return Cell(self.kind, self.temperature, PLAIN)

    @property
    def name(self) -> str:
        """The combination without what it is tried on: "draft 8", "eagle3 16 by 2"."""
        if self.drafter == PLAIN:
            return PLAIN
        return f"{self.drafter} {self.budget}" + (f" by {self.width}" if self.width else "")


@dataclass(frozen=True)
class Sample:
    """One answer of one combination, and the plain answer beside it. Seconds of decoding leave the prompt out."""

    cell: Cell
    prompt: str  # a word that changes with the request
    tokens: int
    passes: int
    drafted: int
    accepted: int
    fallen: int  # passes in which a guess fell
    depths: Mapping[int, int]  # passes by the depth of their tree
    kept: Mapping[int, int]  # passes that kept a guess so deep
    draft_seconds: float
    verify_seconds: float
    plain_tokens: int
    plain_seconds: float
    first: float  # seconds until the first text
    gaps: tuple[float, ...]  # seconds between texts
    whole: float  # seconds of the whole request
    is_same_text: bool

    @property
    def seconds(self) -> float:
        """Of decoding."""
        return self.draft_seconds + self.verify_seconds

    @property
    def ratio(self) -> float:
        """Times plain; above 1 is faster."""
        return (self.plain_seconds / max(self.plain_tokens, 1)) / (self.seconds / max(self.tokens, 1))


@dataclass(frozen=True)
class Grid:
    """What is to be combined. Who chooses among the drafters is not to be narrowed."""

    drafters: tuple[str, ...]
    budgets: tuple[int, ...] = (4, 8, 16)
    widths: tuple[int, ...] = (OWN_WIDTH,)
    temperatures: tuple[float, ...] = (0.0,)
    limit: int = 120  # tokens of an answer

    def cells(self, kind: str, temperature: float) -> list[Cell]:
        """Every combination on prompts of this kind; plain decoding first."""
        found = [Cell(kind, temperature, PLAIN)]
        for drafter in self.drafters:
            if drafter != PLAIN:
                widths = (OWN_WIDTH,) if drafter == CHOOSER else self.widths
                found += [Cell(kind, temperature, drafter, *size) for size in product(self.budgets, widths)]
        return found

    def answers(self, prompts: int) -> int:
        """How many answers so many prompts need, the plain ones between them counted."""
        guessed = len(self.cells("", 0.0)) - 1
        return prompts * len(self.temperatures) * (guessed + 1 + guessed // 2)
