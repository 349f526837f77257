"""A file that is being rewritten is its own draft: it is copied, and finds its place again after each change.

Lookup must see a few copied tokens before it trusts a place again. Here the place is known: after a change the
original goes on close behind, so what lies near is guessed at once, one branch for each way to read the change. A
change that was seen is learnt, "these tokens became those", and made in the copy from then on, as a renaming needs.
It knows token ids and nothing else; what is new in the file, it cannot guess.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from math import log2
from typing import NamedTuple

from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.tree import DraftTree

MIN_REALIGN_TOKENS = 2  # equal tokens in a row after a change with which the place counts as found again
LOST_AFTER_TOKENS = 24  # tokens without a place, after which the answer may be anything
NEARBY_POSITIONS = 4  # places on each side of the old one that are compared
MAX_MATCH_TOKENS = 8  # tokens that are compared at a place
BACKWARD_PENALTY = 3.0  # a step back in the original is as unlikely as so many forward
MAX_REPLACEMENT_TOKENS = 8  # tokens that one learnt change replaces, or puts there
MAX_BRANCHES = 6  # ways to read a change that are guessed


@dataclass
class Replacement:
    """A change that was seen: what the original's tokens became, and how often that held."""

    new_tokens: tuple[int, ...]
    keeps_first_token: bool  # begins behind its first token, which stays: something was put in there, or taken out
    confirmed_count: int = 1
    contradicted_count: int = 0

    @property
    def is_reliable(self) -> bool:
        """Whether it holds more often than not."""
        return self.confirmed_count > self.contradicted_count


class KnownReplacement(NamedTuple):
    """A change that was seen before, where the text stands now."""

    replacement: Replacement
    remaining_tokens: tuple[int, ...]  # what it puts there
    next_position: int  # where the original goes on behind it


class Alignment:
    """Where in the original a rewritten text stands. Reads that text token by token."""

    def __init__(self, original_tokens: list[int]) -> None:
        self.original_tokens = original_tokens
        self.position = 0  # the token of the original that is expected next; after a change, the first that it touched
        self.changed_tokens: list[int] = []  # what came instead of it, until the place is found again
        self.copied_count = 0  # tokens copied since the last change
        self.replacements: dict[tuple[int, ...], Replacement] = {}  # by what they replace
        self._first_tokens: set[int] = set()  # the first tokens of what rules replace: most tokens are none
        self._positions: defaultdict[int, list[int]] = defaultdict(list)
        for place, token in enumerate(original_tokens):
            self._positions[token].append(place)

    def advance(self, token: int) -> None:
        """The text goes on with `token`."""
        if not self.changed_tokens and self.original_tokens[self.position : self.position + 1] == [token]:
            self.position += 1
            self.copied_count += 1
            self._count_contradictions()
            return
        self.changed_tokens.append(token)
        self.copied_count = 0
        if self._apply_repeated_replacement():
            return
        matched, place = max(self._candidate_matches(), key=self._match_score, default=(0, 0))
        if matched >= MIN_REALIGN_TOKENS:
            if place - matched >= self.position:
                self._learn_replacement(
                    self.original_tokens[self.position : place - matched], self.changed_tokens[:-matched]
                )
            self.position, self.copied_count, self.changed_tokens = place, matched, []

    def continuations(self, max_tokens: int) -> Iterator[list[int]]:
        """What may come next, likeliest first, each at most `length` tokens."""
        if not self.changed_tokens:
            yield self._continue_copy(max_tokens)
            return
        yield from self._finish_known_replacement(max_tokens)
        for place in dict.fromkeys(chain(self._nearby_positions(), self._fallback_positions())):
            yield self._copy_from(place, max_tokens)

    def _continue_copy(self, max_tokens: int) -> list[int]:
        """The copy from here; it may begin with a learnt change behind the token that was just copied."""
        for known in self._known_replacements() if self.copied_count else ():
            if known.replacement.keeps_first_token and known.replacement.is_reliable:
                return [*known.remaining_tokens, *self._copy_from(known.next_position, max_tokens)][:max_tokens]
        return self._copy_from(self.position, max_tokens)

    def _nearby_positions(self) -> list[int]:
        found = sorted(self._candidate_matches(), key=self._match_score, reverse=True)
        return [place for _matched, place in found]

    def _fallback_positions(self) -> Iterator[int]:
        """Where the original goes on if nothing of what came instead stands in it."""
        yield self.position + len(self.changed_tokens)  # as many tokens were replaced as came
        yield self.position  # tokens were put in
        yield max(self.position - 1, 0)  # and with them one more like the last that was copied: the end of a line
        yield self.position + 1  # one was replaced by all that came

    def _candidate_matches(self) -> Iterator[tuple[int, int]]:
        """Places near the change whose last tokens are those of the text: (tokens matched, where it goes on)."""
        where = self._positions.get(self.changed_tokens[-1], [])
        middle = bisect_left(where, self.position)
        for last in where[max(middle - NEARBY_POSITIONS, 0) : middle + NEARBY_POSITIONS]:
            matched, most = 1, min(len(self.changed_tokens), MAX_MATCH_TOKENS, last + 1)
            while matched < most and self.original_tokens[last - matched] == self.changed_tokens[-matched - 1]:
                matched += 1
            yield matched, last + 1

    def _match_score(self, candidate: tuple[int, int]) -> float:
        matched, place = candidate
        distance = place - matched - self.position
        return matched - log2(1 + (distance if distance >= 0 else -BACKWARD_PENALTY * distance)) / 2

    def _known_replacements(self) -> Iterator[KnownReplacement]:
        """The changes that were seen of what stands here, the longest first."""
        for size in range(MAX_REPLACEMENT_TOKENS if self.replacements else 0, 0, -1):
            rule = self.replacements.get(tuple(self.original_tokens[self.position : self.position + size]))
            if rule and not rule.keeps_first_token:
                yield KnownReplacement(rule, rule.new_tokens, self.position + size)
            begun = self.position - 1
            rule = self.replacements.get(tuple(self.original_tokens[begun : begun + size])) if begun >= 0 else None
            if rule and rule.keeps_first_token:
                yield KnownReplacement(rule, rule.new_tokens[1:], begun + size)

    def _apply_repeated_replacement(self) -> bool:
        """Whether a change that was seen before has just been made once more; the copy then goes on behind it."""
        for known in self._known_replacements():
            if known.remaining_tokens == tuple(self.changed_tokens):
                known.replacement.confirmed_count += 1
                self.position, self.changed_tokens = known.next_position, []
                return True
        return False

    def _finish_known_replacement(self, max_tokens: int) -> Iterator[list[int]]:
        made = len(self.changed_tokens)
        for known in self._known_replacements():
            if known.remaining_tokens[:made] == tuple(self.changed_tokens):
                rest = list(known.remaining_tokens[made:])
                yield (rest + self._copy_from(known.next_position, max_tokens))[:max_tokens]

    def _copy_from(self, position: int, max_tokens: int) -> list[int]:
        """The original from `place` on, with the changes made that were learnt."""
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
                rule = self.replacements.get(tuple(self.original_tokens[position : position + size]))
                if rule and rule.is_reliable:
                    return rule, size
        return None, 1

    def _learn_replacement(self, old_tokens: list[int], new_tokens: list[int]) -> None:
        while old_tokens and new_tokens and old_tokens[-1] == new_tokens[-1]:
            old_tokens, new_tokens = old_tokens[:-1], new_tokens[:-1]
        if self.position and not (old_tokens and new_tokens):
            before = self.original_tokens[self.position - 1]
            old_tokens, new_tokens = [before, *old_tokens], [before, *new_tokens]
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
        """What has just been copied as it was speaks against a rule for it."""
        for size in range(1, min(MAX_REPLACEMENT_TOKENS, self.copied_count) + 1) if self.replacements else ():
            rule = self.replacements.get(tuple(self.original_tokens[self.position - size : self.position]))
            if rule and not rule.keeps_first_token:
                rule.contradicted_count += 1
            rule = self.replacements.get(tuple(self.original_tokens[self.position - size - 1 : self.position - 1]))
            if rule and rule.keeps_first_token and size < self.copied_count:
                rule.contradicted_count += 1


class Realign(Drafter):
    """The rewritten file as a draft of its own.

    `original` are the tokens of the file as it was, in the shape in which the answer will give it; the answer begins
    at token `begins` of the text.
    """

    name = "realign"
    is_instant = True

    def __init__(self, original_tokens: list[int], answer_start: int) -> None:
        self.original_tokens, self.answer_start = original_tokens, answer_start
        self.alignment, self.aligned_length = Alignment(original_tokens), answer_start

    @property
    def is_lost(self) -> bool:
        """Whether what came of late stands nowhere near in the original."""
        return len(self.alignment.changed_tokens) >= LOST_AFTER_TOKENS

    def propose(self, context: DraftContext) -> DraftTree:
        """One chain while the file is copied; after a change a few, with the longest for the likeliest."""
        for token in context.tokens[self.aligned_length :]:
            self.alignment.advance(token)
        self.aligned_length = max(self.aligned_length, len(context.tokens))
        tree = DraftTree(context.tokens[-1])
        for guessed in islice(self.alignment.continuations(context.max_draft_tokens), MAX_BRANCHES):
            left = context.max_draft_tokens + 1 - len(tree)
            tree.add_chain(guessed[: left if not self.alignment.changed_tokens else (left + 1) // 2], source=self.name)
        return tree

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens: what is left of the answer is aligned anew."""
        if length < self.aligned_length:
            self.alignment, self.aligned_length = Alignment(self.original_tokens), self.answer_start
