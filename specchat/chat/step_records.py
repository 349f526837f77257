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


class TokenKind(Enum):
    """How a token came to be, and the mark it has where there is no colour."""

    ACCEPTED = "+"  # a guess that held
    SAMPLED = "="  # the target's own, where nobody had guessed
    CORRECTION = "!"  # the target's own, in the place of a guess that did not hold


@dataclass(frozen=True)
class TokenSpan:
    """The text of a token, who guessed it, and in which step (from 0) it became sure."""

    text: str
    kind: TokenKind
    source: str
    step: int


@dataclass(frozen=True)
class DraftToken:
    """A token that somebody guessed: how deep below the root it hung (from 1), and whether it held."""

    text: str
    source: str
    depth: int
    is_accepted: bool


@dataclass(frozen=True)
class StepRecord:
    """A step: what was guessed, and what the target wrote after the guesses that held ("" when it wrote nothing).

    `refused` is the first guess that stood in the place of `wrote`, None when there was none. Every guess is verified
    here: a drafter is never asked for more than goes into the pass.
    """

    draft_tokens: tuple[DraftToken, ...]
    committed_count: int
    target_text: str
    rejected_text: str | None
    draft_seconds: float
    verify_seconds: float

    @property
    def accepted_count(self) -> int:
        """How many guesses held."""
        return sum(guess.is_accepted for guess in self.draft_tokens)

    @property
    def drafters(self) -> tuple[str, ...]:
        """Everybody who guessed."""
        return tuple(dict.fromkeys(guess.source for guess in self.draft_tokens))

    @property
    def is_chain(self) -> bool:
        """Is there one guess at every depth?"""
        return [guess.depth for guess in self.draft_tokens] == list(range(1, len(self.draft_tokens) + 1))


class Inspection:
    """An answer, step by step; may grow while somebody looks at it."""

    def __init__(self, steps: Iterable[StepDone] = ()) -> None:
        self.spans: list[TokenSpan] = []
        self.steps: list[StepRecord] = []
        self._tokens_by_source: Counter[str] = Counter()
        self._decoder = getincrementaldecoder("utf-8")("replace")
        for step in steps:
            self.add(step)

    def add(self, step: StepDone) -> None:
        """One step more."""
        path = _accepted_path(step)
        seen = _step_record(step, path)
        own = TokenKind.CORRECTION if seen.rejected_text is not None else TokenKind.SAMPLED
        for token in step.committed_tokens:
            kind = own if token.source == TARGET else TokenKind.ACCEPTED
            self._tokens_by_source[token.source] += 1
            if text := self._decoder.decode(token.token_bytes):
                self.spans.append(TokenSpan(text, kind, token.source, len(self.steps)))
        self.steps.append(seen)

    @property
    def committed_count(self) -> int:
        """How many became sure."""
        return self._tokens_by_source.total()

    @property
    def draft_count(self) -> int:
        """How many were guessed."""
        return sum(len(step.draft_tokens) for step in self.steps)

    @property
    def accepted_count(self) -> int:
        """How many guesses held."""
        return sum(step.accepted_count for step in self.steps)

    @property
    def decode_seconds(self) -> float:
        """Drafting and verifying together."""
        return sum(step.draft_seconds + step.verify_seconds for step in self.steps)

    @property
    def sources(self) -> list[str]:
        """Everybody who guessed right, in the order of their first success."""
        return [source for source in self._tokens_by_source if source != TARGET]

    @property
    def source_shares(self) -> Mapping[str, float]:
        """Which part of the tokens is whose, the largest first."""
        return {source: count / self.committed_count for source, count in self._tokens_by_source.most_common()}


def _accepted_path(step: StepDone) -> list[int]:
    """The guesses that held, by their number from 1 on: from the root along those that were committed."""
    path, node = list[int](), ROOT
    for token in step.committed_tokens:
        below = (each for each in _children(step, node) if step.draft_tokens[each - 1] == token.token_id)
        node = next(below, ROOT) if token.source != TARGET else ROOT
        if node == ROOT:
            break
        path.append(node)
    return path


def _children(step: StepDone, node: int) -> list[int]:
    return [guess for guess, parent in enumerate(step.parents, start=1) if parent == node]


def _step_record(step: StepDone, path: list[int]) -> StepRecord:
    own = next((token for token in step.committed_tokens if token.source == TARGET), None)
    rivals = _children(step, path[-1] if path else ROOT) if own else []
    refused = next((rival for rival in rivals if own and step.draft_tokens[rival - 1] != own.token_id), None)
    is_guessed = any(
        own and step.draft_tokens[rival - 1] == own.token_id for rival in rivals
    )  # the end, which nobody may write
    return StepRecord(
        _draft_tokens(step, frozenset(path)),
        len(step.committed_tokens),
        _decode_bytes(own.token_bytes) if own else "",
        _draft_token_text(step, refused) if refused and not is_guessed else None,
        step.draft_seconds,
        step.verify_seconds,
    )


def _draft_tokens(step: StepDone, held: frozenset[int]) -> tuple[DraftToken, ...]:
    depths = [0]
    for parent in step.parents:
        depths.append(depths[parent] + 1)
    return tuple(
        DraftToken(
            _draft_token_text(step, number),
            step.draft_sources[number - 1] if number <= len(step.draft_sources) else "",
            depths[number],
            number in held,
        )
        for number in range(1, len(step.draft_tokens) + 1)
    )


def _draft_token_text(step: StepDone, guess: int) -> str:
    """What a guess says; its number where the words were not kept."""
    return (
        _decode_bytes(step.draft_token_bytes[guess - 1])
        if guess <= len(step.draft_token_bytes)
        else f"#{step.draft_tokens[guess - 1]}"
    )


def _decode_bytes(word: bytes) -> str:
    return word.decode("utf-8", "replace")
