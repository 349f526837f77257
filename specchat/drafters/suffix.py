"""The longest context that was here before, and what followed it most often.

Suffix decoding (arXiv 2411.04975) over the whole text: prompt, attached files and past turns are all in it; and over
what was said in other conversations. The contexts of the text stand in a tree that is read backwards from each place.
It is the suffix-link tree of a suffix automaton, which is all of the automaton that guessing needs; and unlike the
automaton it can be cut back, by taking out the places one by one. Other conversations do not change while this one goes
on, so their contexts are sorted once, which takes a sixth of the time. It knows token ids and nothing else.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush, merge
from itertools import count, islice
from threading import Thread
from time import monotonic, sleep
from typing import NamedTuple

import numpy as np

from specchat.engine.drafter import Context, Drafter
from specchat.engine.tree import ROOT, DraftTree

log = logging.getLogger(__name__)

DEEPEST = 32  # tokens of context that are told apart
CANDIDATES = 8  # earlier places whose continuations are counted
FEW = 8  # places that are compared one by one, before a context is divided
BETTER_PER_TOKEN = 10.0  # a context longer by one token weighs so many times more
LEAST_CHANCE = 0.03  # a guess must hold so often, or it is not made
RECALLED = 4  # tokens that must agree with another conversation: less agrees by accident, and crowds out better guesses
END = -1  # behind each of the other texts: no token is equal to it


class _Node:
    """All places with one context. Children are the contexts that reach one token further back."""

    __slots__ = ("children", "places")

    def __init__(self) -> None:
        self.places: list[int] = []  # in the order of the text
        self.children: dict[int, _Node] | None = None  # None while the places are so few that they can be compared


class Place(NamedTuple):
    """A place that continues a context."""

    tokens: Sequence[int]
    end: int  # index of the token that followed
    matched: int  # tokens before it that are equal to the end of the text
    weight: float


class SuffixTree:
    """Where each context of a text occurred, up to `deepest` tokens back. Grows and shrinks with the text.

    A token is entered in as many nodes as there are contexts of it that many places share, at most `deepest`.
    """

    def __init__(self, deepest: int = DEEPEST) -> None:
        self.deepest = deepest
        self.tokens: list[int] = []
        self._root = _Node()

    def grow(self, tokens: list[int]) -> None:
        """Take in what `tokens` has beyond the text that is known; its beginning is taken as known."""
        start = len(self.tokens)
        self.tokens += tokens[start:]
        for end in range(max(start, 1), len(self.tokens)):
            self._enter(end)

    def shrink(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        for end in range(len(self.tokens) - 1, max(length, 1) - 1, -1):
            self._leave(end)
        del self.tokens[length:]

    def find(self, text: Sequence[int], most: int) -> list[Place]:
        """Places whose context is the end of `text`: longest context first, then latest."""
        found: dict[int, int] = {}
        for depth, node in reversed(self._contexts(text)):
            for end in islice(reversed(node.places), most + FEW):
                found.setdefault(end, self._matched(text, end, depth))
            if len(found) >= most:
                break
        places = sorted(found.items(), key=lambda place: (-place[1], -place[0]))[:most]
        return [Place(self.tokens, end, matched, BETTER_PER_TOKEN**matched) for end, matched in places if matched]

    def _contexts(self, text: Sequence[int]) -> list[tuple[int, _Node]]:
        """The nodes on the way back from the end of `text`, with the length of each context."""
        node, contexts = self._root, [(0, self._root)]
        for depth in range(1, min(len(text), self.deepest) + 1):
            below = node.children.get(text[-depth]) if node.children else None
            if below is None:
                break
            node = below
            contexts.append((depth, node))
        return contexts

    def _matched(self, text: Sequence[int], end: int, matched: int) -> int:
        """How far back a place agrees with `text`, which it does for `matched` tokens."""
        most = min(self.deepest, len(text), end)
        while matched < most and self.tokens[end - matched - 1] == text[-matched - 1]:
            matched += 1
        return matched

    def _enter(self, end: int) -> None:
        node = self._root
        node.places.append(end)
        for depth in range(min(end, self.deepest)):
            if node.children is None:
                if len(node.places) > FEW:
                    self._divide(node, depth)
                return
            node = node.children.setdefault(self.tokens[end - depth - 1], _Node())
            node.places.append(end)

    def _divide(self, node: _Node, depth: int) -> None:
        node.children = {}
        for end in node.places:
            if end > depth:
                node.children.setdefault(self.tokens[end - depth - 1], _Node()).places.append(end)
        for below in node.children.values():
            if len(below.places) > FEW and depth + 1 < self.deepest:
                self._divide(below, depth + 1)

    def _leave(self, end: int) -> None:
        node = self._root
        node.places.pop()
        for depth in range(min(end, self.deepest)):
            if len(node.places) <= FEW:
                node.children = None
            if node.children is None:
                return
            token = self.tokens[end - depth - 1]
            below = node.children[token]
            below.places.pop()
            if not below.places:
                del node.children[token]
            node = below


class SortedContexts:
    """Texts that do not change: all places in them, sorted by what stands before each, read backwards.

    Places with like contexts are neighbours, so the longest is found by halving: a suffix array of the reversed texts.
    """

    def __init__(self, texts: Iterable[Sequence[int]], deepest: int = DEEPEST) -> None:
        self.deepest = deepest
        self.tokens = [token for text in texts for token in (*text, END)]
        self._places = self._sorted() if self.tokens else []

    def find(self, text: Sequence[int], most: int) -> list[Place]:
        """Places whose context is the end of `text`: longest context first, then the latest of those looked at."""
        wanted = list(text[: -self.deepest - 1 : -1])
        middle = bisect_left(self._places, wanted, key=self._before)
        after = (self._place(index, wanted) for index in range(middle, len(self._places)))
        before = (self._place(index, wanted) for index in range(middle - 1, -1, -1))
        nearest = merge(after, before, key=lambda place: -place.matched)  # the further away, the less agrees
        found = [place for place in islice(nearest, most + FEW) if place.matched]
        return sorted(found, key=lambda place: (-place.matched, -place.end))[:most]

    def _before(self, end: int) -> list[int]:
        return self.tokens[max(end - self.deepest, 0) : end][::-1]

    def _place(self, index: int, wanted: list[int]) -> Place:
        end, matched = self._places[index], 0
        for ours, theirs in zip(self._before(end), wanted, strict=False):
            if ours != theirs:
                break
            matched += 1
        return Place(self.tokens, end, matched, BETTER_PER_TOKEN**matched)

    def _sorted(self) -> list[int]:
        """By doubling (Manber and Myers): ranks of contexts of length n give those of length 2n."""
        tokens = np.array(self.tokens)
        ranks, length = np.unique(tokens, return_inverse=True)[1].astype(np.int64) + 1, 1
        while length < self.deepest:
            before = np.zeros_like(ranks)
            before[length:] = ranks[:-length]
            ranks = np.unique(ranks * (len(ranks) + 2) + before, return_inverse=True)[1].astype(np.int64) + 1
            length *= 2
        ends = np.arange(1, len(tokens))[tokens[1:] != END]  # nothing follows the others
        return ends[np.lexsort((-ends, ranks[ends - 1]))].tolist()


class Recall:
    """What was said in other conversations: read and sorted when nobody waits for a first token.

    `read` gives the texts as tokens, the latest last. It is called from a thread of its own; whatever it raises costs
    nothing but guesses. A thread that computes takes turns with the one that answers, so it waits for `quiet` seconds
    in which no conversation began.
    """

    def __init__(self, read: Callable[[], Iterable[Sequence[int]]], quiet: float = 2.0) -> None:
        self.contexts, self.quiet = SortedContexts(()), quiet
        self._read = read
        self._said: list[Sequence[int]] = []
        self._due = 0.0
        self._work: Thread | None = None

    def refresh(self) -> None:
        """Read anew, soon."""
        self._due = monotonic() + self.quiet
        if self._work is None or not self._work.is_alive():
            self._work = Thread(target=self._sort, name="recall", daemon=True)
            self._work.start()

    def wait(self) -> None:
        """Until what was begun is done."""
        if self._work is not None:
            self._work.join()

    def _sort(self) -> None:
        while (left := self._due - monotonic()) > 0:
            sleep(left)
        try:
            said = list(self._read())
            if said != self._said:
                self.contexts, self._said = SortedContexts(said), said
        except Exception:  # the edge of a thread: guesses are never worth an answer
            log.exception("what was said before cannot be read")


class Suffix(Drafter):
    """What followed the longest contexts, likeliest first, as far as the match can be trusted."""

    name = "suffix"
    is_instant = True

    def __init__(self, recall: Recall | None = None) -> None:
        self.tree, self.recall = SuffixTree(), recall

    def propose(self, context: Context) -> DraftTree:
        """A tree of at most `budget` guesses; a long or unanimous match gives a long chain, a short one a few."""
        self.tree.grow(context.tokens)
        places = self.tree.find(context.tokens, CANDIDATES)
        if self.recall is not None:
            elsewhere = self.recall.contexts.find(context.tokens, CANDIDATES)
            places += [place for place in elsewhere if place.matched >= RECALLED]
            places.sort(key=lambda place: -place.matched)
        tree = DraftTree(context.tokens[-1])
        _grow(tree, places, context.budget, self.name)
        return tree

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self.tree.shrink(length)


def _grow(tree: DraftTree, places: list[Place], budget: int, source: str) -> None:
    """Guess the likeliest continuation of `places` first, and so on until the budget or the least chance.

    A guess has the chance of its parent, times its share in the weights of the places, times m / (m + 1) for the m
    tokens that agree before it. Along one place that is m / (m + k) for k guesses: the longer the match, the further.
    """
    waiting: list[tuple[float, int, int, int, list[Place]]] = []  # (-chance, order, parent, token, places)

    def continue_with(node: int, chance: float, places: list[Place]) -> None:
        depth, choices, whole = tree.depths[node], dict[int, list[Place]](), 0.0
        for place in places:
            period = len(place.tokens) - place.end  # what is guessed past the end of the text repeats itself
            token = place.tokens[place.end + depth % period]
            if token != END:
                choices.setdefault(token, []).append(place)
                whole += place.weight
        for token, those in choices.items():
            matched = depth + those[0].matched  # the longest match comes first
            share = 1.0 if len(choices) == 1 else sum(place.weight for place in those) / whole
            likely = chance * share * matched / (matched + 1)
            if likely >= LEAST_CHANCE:  # of equal chances, the one found earlier
                heappush(waiting, (-likely, next(order), node, token, those))

    order = count()
    continue_with(ROOT, 1.0, places)
    while waiting and len(tree) <= budget:
        negative, _, parent, token, places = heappop(waiting)
        continue_with(tree.add(token, parent, source), -negative, places)
