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

from specchat.engine.drafter import Context, Drafter
from specchat.engine.tree import DraftTree

FOUND = 2  # equal tokens in a row after a change with which the place counts as found again
LOST = 24  # tokens without a place, after which the answer may be anything
NEAR = 4  # places on each side of the old one that are compared
LONGEST_MATCH = 8  # tokens that are compared at a place
BACKWARD = 3.0  # a step back in the original is as unlikely as so many forward
LONGEST_RULE = 8  # tokens that one learnt change replaces, or puts there
BRANCHES = 6  # ways to read a change that are guessed


@dataclass
class Rule:
    """A change that was seen: what the original's tokens became, and how often that held."""

    new: tuple[int, ...]
    extends: bool  # begins behind its first token, which stays: something was put in there, or taken out
    held: int = 1
    failed: int = 0

    @property
    def applies(self) -> bool:
        """Whether it holds more often than not."""
        return self.held > self.failed


class Known(NamedTuple):
    """A change that was seen before, where the text stands now."""

    rule: Rule
    rest: tuple[int, ...]  # what it puts there
    place: int  # where the original goes on behind it


class Alignment:
    """Where in the original a rewritten text stands. Reads that text token by token."""

    def __init__(self, original: list[int]) -> None:
        self.original = original
        self.place = 0  # the token of the original that is expected next; after a change, the first that it touched
        self.changed: list[int] = []  # what came instead of it, until the place is found again
        self.agreed = 0  # tokens copied since the last change
        self.rules: dict[tuple[int, ...], Rule] = {}  # by what they replace
        self._beginnings: set[int] = set()  # the first tokens of what rules replace: most tokens are none
        self._where: defaultdict[int, list[int]] = defaultdict(list)
        for place, token in enumerate(original):
            self._where[token].append(place)

    def advance(self, token: int) -> None:
        """The text goes on with `token`."""
        if not self.changed and self.original[self.place : self.place + 1] == [token]:
            self.place += 1
            self.agreed += 1
            self._doubt()
            return
        self.changed.append(token)
        self.agreed = 0
        if self._made_again():
            return
        matched, place = max(self._candidates(), key=self._likely, default=(0, 0))
        if matched >= FOUND:
            if place - matched >= self.place:
                self._learn(self.original[self.place : place - matched], self.changed[:-matched])
            self.place, self.agreed, self.changed = place, matched, []

    def continuations(self, length: int) -> Iterator[list[int]]:
        """What may come next, likeliest first, each at most `length` tokens."""
        if not self.changed:
            yield self._onward(length)
            return
        yield from self._rest_of_known_change(length)
        for place in dict.fromkeys(chain(self._near_matches(), self._blind())):
            yield self._copy(place, length)

    def _onward(self, length: int) -> list[int]:
        """The copy from here; it may begin with a learnt change behind the token that was just copied."""
        for known in self._known_changes() if self.agreed else ():
            if known.rule.extends and known.rule.applies:
                return [*known.rest, *self._copy(known.place, length)][:length]
        return self._copy(self.place, length)

    def _near_matches(self) -> list[int]:
        found = sorted(self._candidates(), key=self._likely, reverse=True)
        return [place for _matched, place in found]

    def _blind(self) -> Iterator[int]:
        """Where the original goes on if nothing of what came instead stands in it."""
        yield self.place + len(self.changed)  # as many tokens were replaced as came
        yield self.place  # tokens were put in
        yield max(self.place - 1, 0)  # and with them one more like the last that was copied: the end of a line
        yield self.place + 1  # one was replaced by all that came

    def _candidates(self) -> Iterator[tuple[int, int]]:
        """Places near the change whose last tokens are those of the text: (tokens matched, where it goes on)."""
        where = self._where.get(self.changed[-1], [])
        middle = bisect_left(where, self.place)
        for last in where[max(middle - NEAR, 0) : middle + NEAR]:
            matched, most = 1, min(len(self.changed), LONGEST_MATCH, last + 1)
            while matched < most and self.original[last - matched] == self.changed[-matched - 1]:
                matched += 1
            yield matched, last + 1

    def _likely(self, candidate: tuple[int, int]) -> float:
        matched, place = candidate
        distance = place - matched - self.place
        return matched - log2(1 + (distance if distance >= 0 else -BACKWARD * distance)) / 2

    def _known_changes(self) -> Iterator[Known]:
        """The changes that were seen of what stands here, the longest first."""
        for size in range(LONGEST_RULE if self.rules else 0, 0, -1):
            rule = self.rules.get(tuple(self.original[self.place : self.place + size]))
            if rule and not rule.extends:
                yield Known(rule, rule.new, self.place + size)
            begun = self.place - 1
            rule = self.rules.get(tuple(self.original[begun : begun + size])) if begun >= 0 else None
            if rule and rule.extends:
                yield Known(rule, rule.new[1:], begun + size)

    def _made_again(self) -> bool:
        """Whether a change that was seen before has just been made once more; the copy then goes on behind it."""
        for known in self._known_changes():
            if known.rest == tuple(self.changed):
                known.rule.held += 1
                self.place, self.changed = known.place, []
                return True
        return False

    def _rest_of_known_change(self, length: int) -> Iterator[list[int]]:
        made = len(self.changed)
        for known in self._known_changes():
            if known.rest[:made] == tuple(self.changed):
                rest = list(known.rest[made:])
                yield (rest + self._copy(known.place, length))[:length]

    def _copy(self, place: int, length: int) -> list[int]:
        """The original from `place` on, with the changes made that were learnt."""
        copied: list[int] = []
        while len(copied) < length and place < len(self.original):
            rule, size = self._rule_at(place)
            if rule is not None:
                copied += rule.new
            else:
                copied.append(self.original[place])
            place += size
        return copied[:length]

    def _rule_at(self, place: int) -> tuple[Rule | None, int]:
        if self.original[place] in self._beginnings:
            for size in range(LONGEST_RULE, 0, -1):
                rule = self.rules.get(tuple(self.original[place : place + size]))
                if rule and rule.applies:
                    return rule, size
        return None, 1

    def _learn(self, old: list[int], new: list[int]) -> None:
        while old and new and old[-1] == new[-1]:
            old, new = old[:-1], new[:-1]
        if self.place and not (old and new):
            before = self.original[self.place - 1]
            old, new = [before, *old], [before, *new]
        if not 0 < len(old) <= LONGEST_RULE or len(new) > LONGEST_RULE:
            return
        known = self.rules.get(tuple(old))
        if known and known.new == tuple(new):
            known.held += 1
        else:
            self.rules[tuple(old)] = Rule(tuple(new), extends=old[:1] == new[:1])
            self._beginnings.add(old[0])

    def _doubt(self) -> None:
        """What has just been copied as it was speaks against a rule for it."""
        for size in range(1, min(LONGEST_RULE, self.agreed) + 1) if self.rules else ():
            rule = self.rules.get(tuple(self.original[self.place - size : self.place]))
            if rule and not rule.extends:
                rule.failed += 1
            rule = self.rules.get(tuple(self.original[self.place - size - 1 : self.place - 1]))
            if rule and rule.extends and size < self.agreed:
                rule.failed += 1


class Realign(Drafter):
    """The rewritten file as a draft of its own.

    `original` are the tokens of the file as it was, in the shape in which the answer will give it; the answer begins
    at token `begins` of the text.
    """

    name = "realign"
    is_instant = True

    def __init__(self, original: list[int], begins: int) -> None:
        self.original, self.begins = original, begins
        self.alignment, self.known = Alignment(original), begins

    @property
    def is_lost(self) -> bool:
        """Whether what came of late stands nowhere near in the original."""
        return len(self.alignment.changed) >= LOST

    def propose(self, context: Context) -> DraftTree:
        """One chain while the file is copied; after a change a few, with the longest for the likeliest."""
        for token in context.tokens[self.known :]:
            self.alignment.advance(token)
        self.known = max(self.known, len(context.tokens))
        tree = DraftTree(context.tokens[-1])
        for guessed in islice(self.alignment.continuations(context.budget), BRANCHES):
            left = context.budget + 1 - len(tree)
            tree.add_chain(guessed[: left if not self.alignment.changed else (left + 1) // 2], source=self.name)
        return tree

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens: what is left of the answer is aligned anew."""
        if length < self.known:
            self.alignment, self.known = Alignment(self.original), self.begins
