"""What became of every guess of an answer: its steps as a person looks at them. Values only, nothing is drawn here.

A token may hold part of a character only; it then shows with the token that completes the character.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from specchat.chat.events import TARGET, StepDone

ROOT = 0


class Kind(Enum):
    """How a token came to be, and the mark it has where there is no colour."""

    ACCEPTED = "+"  # a guess that held
    PLAIN = "="  # the target's own, where nobody had guessed
    CORRECTION = "!"  # the target's own, in the place of a guess that did not hold


@dataclass(frozen=True)
class Span:
    """The text of a token, who guessed it, and in which step (from 0) it became sure."""

    text: str
    kind: Kind
    source: str
    step: int


@dataclass(frozen=True)
class Guess:
    """A token that somebody guessed: how deep below the root it hung (from 1), and whether it held."""

    text: str
    source: str
    depth: int
    held: bool


@dataclass(frozen=True)
class Seen:
    """A step: what was guessed, and what the target wrote after the guesses that held ("" when it wrote nothing).

    `refused` is the first guess that stood in the place of `wrote`, None when there was none. Every guess is verified
    here: a drafter is never asked for more than goes into the pass.
    """

    guesses: tuple[Guess, ...]
    tokens: int
    wrote: str
    refused: str | None
    draft_seconds: float
    verify_seconds: float

    @property
    def accepted(self) -> int:
        """How many guesses held."""
        return sum(guess.held for guess in self.guesses)

    @property
    def by(self) -> tuple[str, ...]:
        """Everybody who guessed."""
        return tuple(dict.fromkeys(guess.source for guess in self.guesses))

    @property
    def is_chain(self) -> bool:
        """Is there one guess at every depth?"""
        return [guess.depth for guess in self.guesses] == list(range(1, len(self.guesses) + 1))


class Inspection:
    """An answer, step by step; may grow while somebody looks at it."""

    def __init__(self, steps: Iterable[StepDone] = ()) -> None:
        self.spans: list[Span] = []
        self.steps: list[Seen] = []
        self._by: Counter[str] = Counter()
        self._decoder = getincrementaldecoder("utf-8")("replace")
        for step in steps:
            self.add(step)

    def add(self, step: StepDone) -> None:
        """One step more."""
        path = _path(step)
        seen = _seen(step, path)
        own = Kind.CORRECTION if seen.refused is not None else Kind.PLAIN
        for token in step.committed:
            kind = own if token.source == TARGET else Kind.ACCEPTED
            self._by[token.source] += 1
            if text := self._decoder.decode(token.bytes):
                self.spans.append(Span(text, kind, token.source, len(self.steps)))
        self.steps.append(seen)

    @property
    def tokens(self) -> int:
        """How many became sure."""
        return self._by.total()

    @property
    def drafted(self) -> int:
        """How many were guessed."""
        return sum(len(step.guesses) for step in self.steps)

    @property
    def accepted(self) -> int:
        """How many guesses held."""
        return sum(step.accepted for step in self.steps)

    @property
    def decode_seconds(self) -> float:
        """Drafting and verifying together."""
        return sum(step.draft_seconds + step.verify_seconds for step in self.steps)

    @property
    def sources(self) -> list[str]:
        """Everybody who guessed right, in the order of their first success."""
        return [source for source in self._by if source != TARGET]

    @property
    def shares(self) -> Mapping[str, float]:
        """Which part of the tokens is whose, the largest first."""
        return {source: count / self.tokens for source, count in self._by.most_common()}


def _path(step: StepDone) -> list[int]:
    """The guesses that held, by their number from 1 on: from the root along those that were committed."""
    path, node = list[int](), ROOT
    for token in step.committed:
        below = (each for each in _children(step, node) if step.drafted[each - 1] == token.id)
        node = next(below, ROOT) if token.source != TARGET else ROOT
        if node == ROOT:
            break
        path.append(node)
    return path


def _children(step: StepDone, node: int) -> list[int]:
    return [guess for guess, parent in enumerate(step.parents, start=1) if parent == node]


def _seen(step: StepDone, path: list[int]) -> Seen:
    own = next((token for token in step.committed if token.source == TARGET), None)
    rivals = _children(step, path[-1] if path else ROOT) if own else []
    refused = next((rival for rival in rivals if own and step.drafted[rival - 1] != own.id), None)
    is_guessed = any(own and step.drafted[rival - 1] == own.id for rival in rivals)  # the end, which nobody may write
    return Seen(
        _guesses(step, frozenset(path)),
        len(step.committed),
        _text(own.bytes) if own else "",
        _word(step, refused) if refused and not is_guessed else None,
        step.draft_seconds,
        step.verify_seconds,
    )


def _guesses(step: StepDone, held: frozenset[int]) -> tuple[Guess, ...]:
    depths = [0]
    for parent in step.parents:
        depths.append(depths[parent] + 1)
    return tuple(
        Guess(
            _word(step, number),
            step.sources[number - 1] if number <= len(step.sources) else "",
            depths[number],
            number in held,
        )
        for number in range(1, len(step.drafted) + 1)
    )


def _word(step: StepDone, guess: int) -> str:
    """What a guess says; its number where the words were not kept."""
    return _text(step.words[guess - 1]) if guess <= len(step.words) else f"#{step.drafted[guess - 1]}"


def _text(word: bytes) -> str:
    return word.decode("utf-8", "replace")
