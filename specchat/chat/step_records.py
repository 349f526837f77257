"""The steps of an answer, prepared for display: every draft token, and whether it was accepted. Draws nothing.

A token may contain only a part of a character; its text is then shown with the token that completes the character.
"""

from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from specchat.acceptance_counts import Acceptance
from specchat.chat.events import TARGET, StepDone

ROOT = 0


class TokenKind(Enum):
    """The origin of a committed token, and its mark in output without colours."""

    ACCEPTED = "+"  # an accepted draft token
    SAMPLED = "="  # sampled by the target where no drafter had a proposal
    CORRECTION = "!"  # sampled by the target in place of a rejected draft token


@dataclass(frozen=True)
class TokenSpan:
    """The text of a committed token, its source, and its step (from 0)."""

    text: str
    kind: TokenKind
    source: str
    step: int


@dataclass(frozen=True)
class DraftToken:
    """A draft token: its depth in the tree (from 1), and whether it was accepted."""

    text: str
    source: str
    depth: int
    is_accepted: bool


@dataclass(frozen=True)
class StepRecord:
    """A step with its draft tokens, and the text that the target sampled after the accepted ones ("" for none).

    `rejected_text` is the first draft token in the position of `target_text`, None without one. Every draft token is
    verified, because a drafter proposes no more than one pass can verify.
    """

    step: StepDone
    draft_tokens: tuple[DraftToken, ...]
    target_text: str
    rejected_text: str | None

    @property
    def accepted_count(self) -> int:
        return sum(token.is_accepted for token in self.draft_tokens)

    @property
    def drafters(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(token.source for token in self.draft_tokens))

    @property
    def is_chain(self) -> bool:
        return [token.depth for token in self.draft_tokens] == list(range(1, len(self.draft_tokens) + 1))


class Inspection:
    """An answer, step by step; it may grow while it is shown."""

    def __init__(self, steps: Iterable[StepDone] = ()) -> None:
        self.spans: list[TokenSpan] = []
        self.steps: list[StepRecord] = []
        self.acceptance = Acceptance()
        self._tokens_by_source: Counter[str] = Counter()
        self._decoder = getincrementaldecoder("utf-8")("replace")
        for step in steps:
            self.add(step)

    def add(self, step: StepDone) -> None:
        record = _step_record(step)
        target_kind = TokenKind.SAMPLED if record.rejected_text is None else TokenKind.CORRECTION
        for token in step.committed_tokens:
            kind = target_kind if token.source == TARGET else TokenKind.ACCEPTED
            self._tokens_by_source[token.source] += 1
            if text := self._decoder.decode(token.token_bytes):
                self.spans.append(TokenSpan(text, kind, token.source, len(self.steps)))
        self.steps.append(record)
        self.acceptance += step.acceptance

    @property
    def committed_count(self) -> int:
        return self._tokens_by_source.total()

    @property
    def draft_count(self) -> int:
        return sum(len(step.draft_tokens) for step in self.steps)

    @property
    def accepted_count(self) -> int:
        return sum(step.accepted_count for step in self.steps)

    @property
    def decode_seconds(self) -> float:
        return sum(each.step.seconds for each in self.steps)

    @property
    def sources(self) -> list[str]:
        """The drafters with accepted tokens, in the order of their first one."""
        return [source for source in self._tokens_by_source if source != TARGET]

    @property
    def source_shares(self) -> Mapping[str, float]:
        """The share of each source in the committed tokens, the largest first."""
        return {source: count / self.committed_count for source, count in self._tokens_by_source.most_common()}


def _children(step: StepDone, node: int) -> list[int]:
    return [number for number, parent in enumerate(step.parents, start=1) if parent == node]


def _step_record(step: StepDone) -> StepRecord:
    path = step.accepted_path
    sampled = next((token for token in step.committed_tokens if token.source == TARGET), None)
    siblings = _children(step, path[-1] if path else ROOT) if sampled else []
    rejected = [each for each in siblings if sampled and step.draft_tokens[each - 1] != sampled.token_id]
    is_drafted = len(rejected) < len(siblings)  # an end token, which is never accepted from a draft
    return StepRecord(
        step,
        _draft_tokens(step, frozenset(path)),
        _decode_bytes(sampled.token_bytes) if sampled else "",
        _draft_token_text(step, rejected[0]) if rejected and not is_drafted else None,
    )


def _draft_tokens(step: StepDone, accepted: frozenset[int]) -> tuple[DraftToken, ...]:
    depths = step.depths
    return tuple(
        DraftToken(
            _draft_token_text(step, number),
            step.draft_sources[number - 1] if number <= len(step.draft_sources) else "",
            depths[number],
            number in accepted,
        )
        for number in range(1, len(step.draft_tokens) + 1)
    )


def _draft_token_text(step: StepDone, number: int) -> str:
    """The text of a draft token; its id when the bytes were not stored."""
    if number <= len(step.draft_token_bytes):
        return _decode_bytes(step.draft_token_bytes[number - 1])
    return f"#{step.draft_tokens[number - 1]}"


def _decode_bytes(token_bytes: bytes) -> str:
    return token_bytes.decode("utf-8", "replace")
