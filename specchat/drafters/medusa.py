"""Heads on the target's last hidden state, each of which guesses one token, all at once.

Medusa (arXiv 2401.10774), with exact verification only: the paper's "typical" acceptance changes the text. A head knows
its place but not what the others guess, so their best candidates are crossed into a tree. Which crossings are worth a
row follows from how often each candidate of each head was right, counted while writing; before anything is counted, a
prior stands in. At T > 0 the candidates are ranked with the dice of their place.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol

from torch import Tensor

from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.model import FINAL, Model, columns
from specchat.engine.sampling import Rows
from specchat.engine.tree import ROOT, DraftTree

RANKS = 8  # candidates of each head
PRIOR = (0.5, 0.13, 0.07, 0.05, 0.03, 0.02, 0.015, 0.01)  # that the candidate of each rank is right, for the first head
FADING = 0.75  # of it, for each head further ahead
LEARNING_RATE = 0.02
LEAST_CHANCE = 0.01  # of a path; a row for less is never worth it


class Ahead(Protocol):
    """A head, or several, that guess from the state after the final norm."""

    count: int  # tokens ahead

    def logits(self, hidden: Tensor) -> list[Tensor]:
        """[n, D] -> for each token ahead, behind the one that the target itself gives, [n, V]."""
        ...


class Medusa(Drafter):
    """A static tree that learns its shape. It keeps one hidden state of the text, and candidates of one step."""

    name = "medusa"
    taps = (FINAL,)

    def __init__(self, head: Ahead, target: Model) -> None:
        self.head, self.target = head, target
        self.chances = [[chance * FADING**ahead for chance in PRIOR] for ahead in range(head.count)]
        self._feature: Tensor | None = None  # of the last token that the target has read [1, D]
        self._read = 0  # tokens up to and with that one
        self._candidates: list[list[list[int]]] = []  # of the last tree, by depth: of one place, or of every parent
        self._guessed_at = -1  # position of the root of that tree

    def propose(self, context: Context) -> DraftTree:
        """The likeliest crossings of the candidates, at most `budget` nodes."""
        tree, sampler = DraftTree(context.tokens[-1]), context.sampler
        self._candidates, self._guessed_at = [], len(context.tokens) - 1
        if self._feature is None or self._read != len(context.tokens) - 1:
            return tree
        below = crossings(self.chances, context.budget)
        level = [(ROOT, ROOT)]  # nodes of the tree, and of its shape
        for ahead, logits in enumerate(self.head.logits(self._feature)):
            level = [(node, place) for node, place in level if below[place]]
            if not level:
                break
            paths = [tree.path_to(node) for node, _place in level] if sampler.looks_back else None
            count = len(level) if paths else 1
            rows = Rows([len(context.tokens) - 1 + ahead] * count, paths)
            best = sampler.rank(logits.expand(count, -1), rows, context.prefix, count=RANKS).ids.tolist()
            self._candidates.append(best)
            level = [
                (tree.add(best[parent % count][rank], node, self.name), next_)
                for parent, (node, place) in enumerate(level)
                for rank, next_ in below[place]
                if rank < len(best[0])
            ]
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Keep the last hidden state, and count which candidates were right."""
        if outcome.logits is not None and outcome.position == self._guessed_at:
            self._count([outcome.picks[node] for node in outcome.path])
        self._candidates = []
        if outcome.features is not None and FINAL in self.target.taps:
            self._feature = columns(outcome.features[-1:], self.target.taps, self.taps)
            self._read = outcome.position + len(outcome.path)

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        if length < self._read:
            self._feature, self._read = None, 0
        self._candidates = []

    def _count(self, picked: list[int]) -> None:
        """`picked`: what the target chose at each depth, as far as the guesses before it held."""
        for chances, candidates, token in zip(self.chances, self._candidates, picked, strict=False):
            for rank in range(RANKS):
                is_right = rank < len(candidates[0]) and candidates[0][rank] == token
                chances[rank] += LEARNING_RATE * (is_right - chances[rank])


def crossings(chances: list[list[float]], nodes: int) -> list[list[tuple[int, int]]]:
    """For every node, root first, which ranks follow it and as which nodes: the `nodes` likeliest crossings.

    `chances[d][r]`: that at depth d + 1 the candidate of rank r is right. With [[0.5, 0.4], [0.6, 0.1]] and 3 nodes:
    [[(0, 1), (1, 2)], [(0, 3)], [], []].
    """
    below: list[list[tuple[int, int]]] = [[]]
    waiting: list[tuple[float, int, int, int]] = []  # less its chance, depth, parent, rank

    def open_below(node: int, depth: int, chance: float) -> None:
        if depth < len(chances):
            for rank, share in enumerate(chances[depth]):
                heappush(waiting, (-chance * share, depth, node, rank))

    open_below(ROOT, 0, 1.0)
    while len(below) <= nodes and waiting and -waiting[0][0] >= LEAST_CHANCE:
        negative, depth, parent, rank = heappop(waiting)
        below[parent].append((rank, len(below)))
        open_below(len(below), depth + 1, -negative)
        below.append([])
    return below
