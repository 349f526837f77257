"""A small head goes on where the target's hidden states end: EAGLE-1, -2 and -3, and MTP.

EAGLE (arXiv 2401.15077), EAGLE-2 (2406.16858: the tree), EAGLE-3 (2503.01840: several taps) and the multi-token
prediction of DeepSeek-V3 (2412.19437) differ in the head alone, so they are one drafter. A head reads *pairs*: the
feature of token t and the embedding of token t + 1, at position t, and speaks of token t + 2. The target leaves true
features of every token it has read; beyond the text the head is fed its own output.

Keys and values of the head that stay are those of true pairs. What drafting adds is taken back at the end of it.
A head looks back no further than the length that it was trained on.

Under the classic rule a head draws a chain, and its length is what was asked for, whatever comes out of the dice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.cache import SCRATCH, KVCache, KVPool
from specchat.engine.device import sent
from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.hidden_states import Features
from specchat.engine.model import Model
from specchat.engine.sampling import Rows
from specchat.engine.tree import ROOT, DraftTree, Draw
from specchat.errors import CacheError
from specchat.forward.batch import Pass

CHUNK = 128  # pairs of a prompt in one pass
SHORTLIST = 16  # best tokens of a node among which each has its chance
UNLIKELY = log(0.02)  # a guess with less chance is not worth a row of the target's pass


class Said(Protocol):
    """What a head says at the rows that it was asked about."""

    @property
    def logits(self) -> Tensor: ...  # [scored, Vd]
    @property
    def hidden(self) -> Tensor: ...  # [scored, D], to be fed back


class Head(Protocol):
    """A block over pairs, with a cache of its own."""

    kind: str
    taps: tuple[int, ...]
    window: int  # pairs that it was trained to look back
    ids: Tensor | None  # the target's token of every column of the logits [Vd]; None: columns are tokens
    pool: KVPool

    def embed(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, D]"""
        ...

    def fuse(self, features: Tensor) -> Tensor:
        """[n, taps * D] -> [n, D]"""
        ...

    def run(self, hidden: Tensor, embedded: Tensor, nodes: Pass, cache: KVCache, scored: int | None = None) -> Said:
        """Read pairs, and speak of the last `scored` of them, or of all.

        Their keys and values go behind `cache.length`, uncommitted.
        """
        ...


@dataclass(frozen=True)
class Growth:
    """How a tree is grown: so many passes of the head, so many nodes in each, so many nodes kept."""

    depth: int = 5
    width: int = 4
    nodes: int = 16
    worth: float = 0.4  # a pass of the head whose nodes hold with less chance, all together, is not made


CHAIN = Growth(depth=4, width=1, nodes=4)


@dataclass(frozen=True)
class _Guess:
    """A token that the head may be right about."""

    token: int
    parent: int  # among all guesses; ROOT for those behind the text
    score: float  # logarithm of the chance that it and all above it hold
    draw: Draw | None = None  # how it came about, if by dice of the drafter's own


class FeatureDrafter(Drafter):
    """A chain or a dynamic tree by a head. It belongs to one text; the head's weights are shared."""

    def __init__(self, head: Head, target: Model, growth: Growth | None = None) -> None:
        self.head, self.target = head, target
        self.growth = growth or (Growth() if target.takes_trees else CHAIN)
        self.name, self.taps = head.kind, head.taps
        self.cache = head.pool.open()
        self.features = Features()
        self._first = 0  # position of row 0 of the cache

    def propose(self, context: Context) -> DraftTree:
        """The likeliest guesses, at most `budget`; none while the target's hidden states of the text are missing."""
        tree, nodes = DraftTree(context.tokens[-1]), min(self.growth.nodes, context.budget)
        if self.features.end != len(context.tokens) - 1 or self.features.start == self.features.end or nodes <= 0:
            return tree
        try:
            with self.head.pool.seated(self.cache, min(len(context.tokens), 2 * self.head.window) + SCRATCH):
                said = self._catch_up(context.tokens)
                known = self.cache.length
                try:
                    return _Growing(self, context, nodes).grow(said)
                finally:
                    self.cache.rollback(known)
        except CacheError:  # no room for the head's keys and values: the answer goes on without guesses
            return tree

    def observe(self, outcome: Outcome) -> None:
        """Keep the hidden states of what became sure."""
        self.features.hear(outcome, self.target.taps, self.taps)

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self.features.cut(length)
        self.cache.rollback(max(length - 1 - self._first, 0))  # a pair also holds the token after its own

    def beyond(self, position: int, rows: Tensor, tokens: list[int]) -> Pass:
        """A pass of guesses at one position: each sees the true pairs, and behind them what its row of `rows` says.

        rows: bool [len(tokens), guesses read so far and these]
        """
        length, count = self.cache.length, len(tokens)
        true = length + count - rows.shape[1]
        sees = torch.cat((torch.ones(count, true, dtype=torch.bool), rows), dim=1)
        if (outdated := position - self.head.window + 1 - self._first) > 0:
            sees[:, :outdated] = False
        return Pass(tokens, torch.full((count,), position), sees, length, self._first)

    def _catch_up(self, tokens: list[int]) -> Said:
        """Read the true pairs that are new; what the head says after the last one."""
        hidden = self.head.fuse(self.features.after(self._begin(len(tokens) - 1)))
        while len(hidden) > CHUNK:
            self._read(tokens, hidden[:CHUNK], scored=0)
            hidden = hidden[CHUNK:]
        return self._read(tokens, hidden, scored=1)

    def _begin(self, known: int) -> int:
        """The first pair that is to be read, after forgetting what is too old or does not connect."""
        self.cache.rollback(known - 1 - self._first)  # the last pair is read again rather than nothing
        self._first = self.features.connect(self.cache, self._first, known, self.head.window)
        return self._first + self.cache.length

    def _read(self, tokens: list[int], hidden: Tensor, scored: int) -> Said:
        """Take in the next true pairs, with these features; what the head says after the last `scored` of them."""
        length, count, window = self.cache.length, len(hidden), self.head.window
        position = self._first + length
        following = tokens[position + 1 : position + 1 + count]
        sees = torch.ones(count, length + count, dtype=torch.bool).tril_(length)
        nodes = Pass(following, torch.arange(position, position + count), sees, length, self._first)
        if length + count > window:
            nodes = replace(nodes, sees=nodes.near(window))
        said = self.head.run(hidden, self._embedded(following), nodes, self.cache, scored)
        self.cache.commit(list(range(count)))
        return said

    def _embedded(self, tokens: list[int]) -> Tensor:
        return self.head.embed(sent(tokens, self.head.pool.layout.device))


class _Growing:
    """One tree while it grows, level by level: a pass of the head over the best guesses of the last level."""

    def __init__(self, drafter: FeatureDrafter, context: Context, most: int) -> None:
        self.drafter, self.context, self.most = drafter, context, most
        self.growth = replace(drafter.growth, width=1) if context.sampler.wants_draws else drafter.growth
        self.guesses = [_Guess(context.tokens[-1], -1, 0.0)]

    def grow(self, said: Said) -> DraftTree:
        """The tree below what the head said after the text."""
        asked, hidden, rows = [ROOT], said.hidden, torch.zeros(1, 0, dtype=torch.bool)
        level = self._add(said.logits, asked, depth=0)
        for depth in range(1, min(self.growth.depth, self.most)):
            best = self._worth_a_pass(level)
            if not best:
                break
            above = [asked.index(self.guesses[guess].parent) for guess in best]
            rows = torch.cat((rows[above], torch.eye(len(best), dtype=torch.bool)), dim=1)
            said = self._pass(hidden[above], best, rows, depth)
            asked, hidden = best, said.hidden
            level = self._add(said.logits, asked, depth)
        return self._tree()

    def _pass(self, hidden: Tensor, guesses: list[int], rows: Tensor, depth: int) -> Said:
        """Let the head read these guesses. `rows` [n, rows of all levels]: which of the guesses each may see."""
        head, cache = self.drafter.head, self.drafter.cache
        tokens = [self.guesses[guess].token for guess in guesses]
        nodes = self.drafter.beyond(len(self.context.tokens) - 2 + depth, rows, tokens)
        said = head.run(hidden, head.embed(sent(tokens, hidden.device)), nodes, cache)
        cache.commit(list(range(len(tokens))))  # for the levels below; taken back when the tree is done
        return said

    def _add(self, logits: Tensor, parents: list[int], depth: int) -> list[int]:
        """Guess after each parent, a row of logits each; the new guesses."""
        sampler, ids = self.context.sampler, self.drafter.head.ids
        paths = [self._path_to(parent) for parent in parents] if sampler.looks_back else None
        rows = Rows([len(self.context.tokens) - 1 + depth] * len(parents), paths, ids)
        if sampler.wants_draws:
            return self._draw(sampler.draw(logits, rows, self.context.prefix), parents[0])
        best = sampler.rank(logits, rows, self.context.prefix, count=SHORTLIST)
        tokens = best.ids[:, : self.growth.width].tolist()
        chances = best.scores.log_softmax(-1)[:, : self.growth.width].clamp_(max=0.0).tolist()
        first = len(self.guesses)
        for parent, ours, theirs in zip(parents, tokens, chances, strict=True):
            above = self.guesses[parent].score
            self.guesses += [_Guess(token, parent, above + chance) for token, chance in zip(ours, theirs, strict=True)]
        return list(range(first, len(self.guesses)))

    def _draw(self, draw: Draw, parent: int) -> list[int]:
        """Guess what was drawn. It counts as certain: no draw may be left out for what it is."""
        self.guesses.append(_Guess(draw.token, parent, 0.0, draw))
        return [len(self.guesses) - 1]

    def _worth_a_pass(self, level: list[int]) -> list[int]:
        """The best of a level that can still have a guess in the tree below them; none when hardly any will hold."""
        kept = set(self._kept())
        best = sorted((guess for guess in level if guess in kept), key=self._rank)[: self.growth.width]
        return best if sum(exp(self.guesses[guess].score) for guess in best) >= self.growth.worth else []

    def _kept(self) -> list[int]:
        """The best guesses of all levels; with each its parents, which are never worse and stand before it."""
        likely = [guess for guess in range(1, len(self.guesses)) if self.guesses[guess].score > UNLIKELY]
        return sorted(likely, key=self._rank)[: self.most]

    def _rank(self, guess: int) -> tuple[float, int]:
        return -self.guesses[guess].score, guess

    def _tree(self) -> DraftTree:
        tree, nodes = DraftTree(self.guesses[ROOT].token), {ROOT: ROOT}
        for guess in sorted(self._kept()):
            made = self.guesses[guess]
            parent, name = nodes[made.parent], self.drafter.name
            nodes[guess] = tree.add_drawn(made.draw, parent, name) if made.draw else tree.add(made.token, parent, name)
        return tree

    def _path_to(self, guess: int) -> list[int]:
        tokens: list[int] = []
        while guess != ROOT:
            tokens.append(self.guesses[guess].token)
            guess = self.guesses[guess].parent
        return tokens[::-1]
