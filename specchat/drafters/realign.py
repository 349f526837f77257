"""Realignment: while a file is being rewritten, the original is the draft, realigned after each change.

Prompt lookup needs a few copied tokens before it continues after a change. Here the position is known: after a change
the original continues nearby, so the continuations nearby are drafted at once, one branch for each interpretation of
the change. A replacement of tokens by others is learnt and applied to the rest of the copy, as a renaming needs. It
knows token ids only, and cannot draft text that is new in the file.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from math import log2
from typing import NamedTuple

from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.tree import DraftTree

MIN_REALIGN_TOKENS = 2  # consecutive equal tokens after a change that realign the text
LOST_AFTER_TOKENS = 24  # tokens without alignment after which the text counts as lost
NEARBY_POSITIONS = 4  # positions on each side of the last one that are compared
MAX_MATCH_TOKENS = 8  # tokens that are compared at a position
BACKWARD_PENALTY = 3.0  # a step back in the original is as improbable as this many steps forward
MAX_REPLACEMENT_TOKENS = 8  # old or new tokens of one learnt replacement
MAX_BRANCHES = 6  # drafted interpretations of a change


@dataclass
class Replacement:
    new_tokens: tuple[int, ...]
    keeps_first_token: bool  # an insertion or deletion behind the first token, which stays
    confirmed_count: int = 1
    contradicted_count: int = 0

    @property
    def is_reliable(self) -> bool:
        """Whether the text confirmed it more often than not."""
        return self.confirmed_count > self.contradicted_count


class KnownReplacement(NamedTuple):
    replacement: Replacement
    remaining_tokens: tuple[int, ...]  # its new tokens from here on
    next_position: int  # in the original, behind it


class Alignment:
    """The position in the original that corresponds to the end of the rewritten text."""

    def __init__(self, original_tokens: list[int]) -> None:
        self.original_tokens = original_tokens
        self.position = 0  # of the next expected token of the original; during a change, of the first changed token
        self.changed_tokens: list[int] = []  # the new tokens since the alignment was lost
        self.copied_count = 0  # tokens copied since the last change
        self.replacements: dict[tuple[int, ...], Replacement] = {}  # by the old tokens
        self._first_tokens: set[int] = set()  # of the old tokens, for a fast check
        self._positions: defaultdict[int, list[int]] = defaultdict(list)
        for position, original_token in enumerate(original_tokens):
            self._positions[original_token].append(position)

    def advance(self, token: int) -> None:
        if not self.changed_tokens and self.original_tokens[self.position : self.position + 1] == [token]:
            self.position += 1
            self.copied_count += 1
            self._count_contradictions()
            return
        self.changed_tokens.append(token)
        self.copied_count = 0
        if self._apply_repeated_replacement():
            return
        matched, position = max(self._candidate_matches(), key=self._match_score, default=(0, 0))
        if matched >= MIN_REALIGN_TOKENS:
            if position - matched >= self.position:
                old_tokens = self.original_tokens[self.position : position - matched]
                self._learn_replacement(old_tokens, self.changed_tokens[:-matched])
            self.position, self.copied_count, self.changed_tokens = position, matched, []

    def continuations(self, max_tokens: int) -> Iterator[list[int]]:
        """Possible continuations, most probable first, each at most `max_tokens` long."""
        if not self.changed_tokens:
            yield self._continue_copy(max_tokens)
            return
        yield from self._finish_known_replacement(max_tokens)
        for position in dict.fromkeys(chain(self._nearby_positions(), self._fallback_positions())):
            yield self._copy_from(position, max_tokens)

    def _continue_copy(self, max_tokens: int) -> list[int]:
        """The copy from the current position; it may begin with a learnt insertion."""
        for known in self._known_replacements() if self.copied_count else ():
            if known.replacement.keeps_first_token and known.replacement.is_reliable:
                return [*known.remaining_tokens, *self._copy_from(known.next_position, max_tokens)][:max_tokens]
        return self._copy_from(self.position, max_tokens)

    def _nearby_positions(self) -> list[int]:
        matches = sorted(self._candidate_matches(), key=self._match_score, reverse=True)
        return [position for _matched, position in matches]

    def _fallback_positions(self) -> Iterator[int]:
        """The possible positions if the new tokens do not occur in the original."""
        yield self.position + len(self.changed_tokens)  # a replacement of the same length
        yield self.position  # an insertion
        yield max(self.position - 1, 0)  # an insertion with a repeated last token, as at the end of a line
        yield self.position + 1  # a replacement of one token

    def _candidate_matches(self) -> Iterator[tuple[int, int]]:
        """Positions near the change that follow the last new tokens: (tokens matched, position)."""
        positions = self._positions.get(self.changed_tokens[-1], [])
        middle = bisect_left(positions, self.position)
        for last in positions[max(middle - NEARBY_POSITIONS, 0) : middle + NEARBY_POSITIONS]:
            matched, limit = 1, min(len(self.changed_tokens), MAX_MATCH_TOKENS, last + 1)
            while matched < limit and self.original_tokens[last - matched] == self.changed_tokens[-matched - 1]:
                matched += 1
            yield matched, last + 1

    def _match_score(self, candidate: tuple[int, int]) -> float:
        matched, position = candidate
        distance = position - matched - self.position
        return matched - log2(1 + (distance if distance >= 0 else -BACKWARD_PENALTY * distance)) / 2

    def _known_replacements(self) -> Iterator[KnownReplacement]:
        """The learnt replacements that apply at the current position, longest first."""
        for size in range(MAX_REPLACEMENT_TOKENS if self.replacements else 0, 0, -1):
            rule = self._replacement_of(self.position, size)
            if rule and not rule.keeps_first_token:
                yield KnownReplacement(rule, rule.new_tokens, self.position + size)
            last = self.position - 1
            rule = self._replacement_of(last, size) if last >= 0 else None
            if rule and rule.keeps_first_token:
                yield KnownReplacement(rule, rule.new_tokens[1:], last + size)

    def _replacement_of(self, position: int, size: int) -> Replacement | None:
        return self.replacements.get(tuple(self.original_tokens[position : position + size]))

    def _apply_repeated_replacement(self) -> bool:
        """Continue behind a learnt replacement if the new tokens repeat it; returns whether they do."""
        for known in self._known_replacements():
            if known.remaining_tokens == tuple(self.changed_tokens):
                known.replacement.confirmed_count += 1
                self.position, self.changed_tokens = known.next_position, []
                return True
        return False

    def _finish_known_replacement(self, max_tokens: int) -> Iterator[list[int]]:
        count = len(self.changed_tokens)
        for known in self._known_replacements():
            if known.remaining_tokens[:count] == tuple(self.changed_tokens):
                rest = list(known.remaining_tokens[count:])
                yield (rest + self._copy_from(known.next_position, max_tokens))[:max_tokens]

    def _copy_from(self, position: int, max_tokens: int) -> list[int]:
        copied: list[int] = []
        while len(copied) < max_tokens and position < len(self.original_tokens):
            rule, size = self._replacement_at(position)
            if rule is not None:
                copied += rule.new_tokens
            else:
                copied.append(self.original_tokens[position])
            position += size
        return copied[:max_tokens]

    def _replacement_at(self, position: int) -> tuple[Replacement | None, int]:
        if self.original_tokens[position] in self._first_tokens:
            for size in range(MAX_REPLACEMENT_TOKENS, 0, -1):
                rule = self._replacement_of(position, size)
                if rule and rule.is_reliable:
                    return rule, size
        return None, 1

    def _learn_replacement(self, old_tokens: list[int], new_tokens: list[int]) -> None:
        while old_tokens and new_tokens and old_tokens[-1] == new_tokens[-1]:
            old_tokens, new_tokens = old_tokens[:-1], new_tokens[:-1]
        if self.position and not (old_tokens and new_tokens):
            previous = self.original_tokens[self.position - 1]
            old_tokens, new_tokens = [previous, *old_tokens], [previous, *new_tokens]
        if not 0 < len(old_tokens) <= MAX_REPLACEMENT_TOKENS or len(new_tokens) > MAX_REPLACEMENT_TOKENS:
            return
        known = self.replacements.get(tuple(old_tokens))
        if known and known.new_tokens == tuple(new_tokens):
            known.confirmed_count += 1
        else:
            self.replacements[tuple(old_tokens)] = Replacement(
                tuple(new_tokens), keeps_first_token=old_tokens[:1] == new_tokens[:1]
            )
            self._first_tokens.add(old_tokens[0])

    def _count_contradictions(self) -> None:
        """Count against a replacement that the text has not made: it copied the old tokens."""
        for size in range(1, min(MAX_REPLACEMENT_TOKENS, self.copied_count) + 1) if self.replacements else ():
            rule = self._replacement_of(self.position - size, size)
            if rule and not rule.keeps_first_token:
                rule.contradicted_count += 1
            rule = self.replacements.get(tuple(self.original_tokens[self.position - size - 1 : self.position - 1]))
            if rule and rule.keeps_first_token and size < self.copied_count:
                rule.contradicted_count += 1


class Realign(Drafter):
    """Drafts from the original of a file that is being rewritten.

    `original_tokens` are the tokens of the original in the format of the answer, which begins at token `answer_start`
    of the text.
    """

    name = "realign"
    is_instant = True

    def __init__(self, original_tokens: list[int], answer_start: int) -> None:
        self.original_tokens, self.answer_start = original_tokens, answer_start
        self.alignment, self.aligned_length = Alignment(original_tokens), answer_start

    @property
    def is_lost(self) -> bool:
        """Whether the recent text does not occur near the position in the original."""
        return len(self.alignment.changed_tokens) >= LOST_AFTER_TOKENS

    def propose(self, context: DraftContext) -> DraftTree:
        """One chain while the original is copied; after a change several, the longest for the most probable."""
        for token in context.tokens[self.aligned_length :]:
            self.alignment.advance(token)
        self.aligned_length = max(self.aligned_length, len(context.tokens))
        tree = DraftTree(context.tokens[-1])
        for continuation in islice(self.alignment.continuations(context.max_draft_tokens), MAX_BRANCHES):
            free = context.max_draft_tokens + 1 - len(tree)
            count = (free + 1) // 2 if self.alignment.changed_tokens else free
            tree.add_chain(continuation[:count], source=self.name)
        return tree

    def forget(self, length: int) -> None:
        """Follow a truncation of the text to its first `length` tokens: align the rest of the answer again."""
        if length < self.aligned_length:
            self.alignment, self.aligned_length = Alignment(self.original_tokens), self.answer_start
