"""A head fills a block of masks in one pass, and the block is the guess: DFlash (arXiv 2602.06036).

The head reads the target's hidden states of the text, once for every token, as keys and values of its own. A block is
the last sure token and masks behind it. All places are guessed at once and none knows what the others became, so the
guesses are a chain: the best of each place, or, under the classic rule, one drawn for each.

Nothing of a block stays in the head's cache; what stays are the states of the text, so taking text back is dropping
rows. A head looks back no further than the length that it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Protocol

from torch import Tensor

from specchat.engine.cache import SCRATCH, KVCache, KVPool
from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.hidden_states import Features
from specchat.engine.model import Model
from specchat.engine.sampling import Rows
from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import CacheError

CHUNK = 128  # states of a prompt that are read in one pass
SHORTLIST = 16  # best tokens of a place among which each has its chance
UNLIKELY = log(0.02)  # a guess that holds with less chance, all before it included, is not worth a row of a pass


class Filler(Protocol):
    """A head that fills blocks, with a cache of its own."""

    kind: str
    taps: tuple[int, ...]
    window: int  # tokens of the text that it was trained to look back
    count: int  # places ahead that it speaks of
    ids: Tensor | None  # the target's token of every column of the logits [Vd]; None: columns are tokens
    pool: KVPool

    def read(self, features: Tensor, position: int, cache: KVCache) -> None:
        """Take in the target's states of the tokens from `position` on, and commit them. [n, taps * D]"""
        ...

    def fill(
        self, tokens: Sequence[int], positions: Sequence[int], cache: KVCache, first: int = 0, ahead: int | None = None
    ) -> Tensor:
        """What it says of the next `ahead` places behind each sure token; `first`: position of row 0. [n, ahead, Vd]"""
        ...


class BlockDrafter(Drafter):
    """A chain by a head that fills blocks. It belongs to one text; the head's weights are shared."""

    def __init__(self, head: Filler, target: Model) -> None:
        self.head, self.target = head, target
        self.name, self.taps = head.kind, head.taps
        self.cache = head.pool.open()
        self.features = Features()
        self._first = 0  # position of row 0 of the cache

    def propose(self, context: Context) -> DraftTree:
        """The best of each place, at most `budget`; none while the target's hidden states of the text are missing."""
        tree, known = DraftTree(context.tokens[-1]), len(context.tokens) - 1
        ahead = min(self.head.count, context.budget)
        if self.features.end != known or self.features.start == known or ahead <= 0:
            return tree
        try:
            with self.head.pool.seated(self.cache, min(known, 2 * self.head.window) + SCRATCH):
                self._catch_up(known)
                said = self.head.fill([context.tokens[-1]], [known], self.cache, self._first, ahead)[0]
        except CacheError:  # no room for the head's keys and values: the answer goes on without guesses
            return tree
        if context.sampler.wants_draws:
            self._draw(tree, context, said)
        else:
            self._choose(tree, context, said)
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Keep the hidden states of what became sure."""
        self.features.hear(outcome, self.target.taps, self.taps)

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self.features.cut(length)
        self.cache.rollback(max(length - self._first, 0))

    def _catch_up(self, known: int) -> None:
        """Read the states of the text that are new, as far as the head looks back."""
        begin = self._begin(known)
        if begin == known:
            return
        unread = self.features.after(begin)
        for start in range(0, len(unread), CHUNK):
            self.head.read(unread[start : start + CHUNK], begin + start, self.cache)

    def _begin(self, known: int) -> int:
        """The first token whose states are to be read, after forgetting what is too old or does not connect."""
        self._first = self.features.connect(self.cache, self._first, known, self.head.window)
        return self._first + self.cache.length

    def _choose(self, tree: DraftTree, context: Context, said: Tensor) -> None:
        """The best of each place under the dice of that place, for as long as the chain has a chance."""
        node, chance = ROOT, 0.0
        at_once = 1 if context.sampler.looks_back else len(said)
        for start in range(0, len(said), at_once):
            rows = self._rows(tree, context, start, at_once)
            best = context.sampler.rank(said[start : start + at_once], rows, context.prefix, count=SHORTLIST)
            chances = best.scores.log_softmax(-1)[:, 0].clamp_(max=0.0).tolist()
            for token, its_own in zip(best.ids[:, 0].tolist(), chances, strict=True):
                chance += its_own
                if chance < UNLIKELY:
                    return
                node = tree.add(token, node, self.name)

    def _draw(self, tree: DraftTree, context: Context, said: Tensor) -> None:
        """One token drawn for each place. Whatever the dice say, the chain is as long as was asked for."""
        node = ROOT
        for ahead in range(len(said)):
            rows = self._rows(tree, context, ahead, 1)
            draw = context.sampler.draw(said[ahead : ahead + 1], rows, context.prefix)
            node = tree.add_drawn(draw, node, self.name)

    def _rows(self, tree: DraftTree, context: Context, start: int, count: int) -> Rows:
        """Where the next places stand; a rule that looks back sees the guesses before, and is asked place by place."""
        first = len(context.tokens) - 1 + start
        paths = [tree.tokens[1:]] if context.sampler.looks_back else None
        return Rows(list(range(first, first + count)), paths, self.head.ids)
