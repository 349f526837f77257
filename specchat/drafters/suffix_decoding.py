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

from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.tree import ROOT, DraftTree

log = logging.getLogger(__name__)

MAX_CONTEXT_TOKENS = 32  # tokens of context that are told apart
MAX_MATCHES = 8  # earlier places whose continuations are counted
MAX_UNSPLIT_POSITIONS = 8  # places that are compared one by one, before a context is divided
WEIGHT_PER_MATCHED_TOKEN = 10.0  # a context longer by one token weighs so many times more
MIN_PROBABILITY = 0.03  # a guess must hold so often, or it is not made
MIN_PAST_TEXT_MATCH = (
    4  # tokens that must agree with another conversation: less agrees by accident, and crowds out better guesses
)
TEXT_END = -1  # behind each of the other texts: no token is equal to it


class _Node:
    """All places with one context. Children are the contexts that reach one token further back."""

    __slots__ = ("children", "positions")

    def __init__(self) -> None:
        self.positions: list[int] = []  # in the order of the text
        self.children: dict[int, _Node] | None = None  # None while the places are so few that they can be compared


class ContextMatch(NamedTuple):
    """A place that continues a context."""

    tokens: Sequence[int]
    next_index: int  # index of the token that followed
    matched_tokens: int  # tokens before it that are equal to the end of the text
    weight: float


class SuffixTree:
    """Where each context of a text occurred, up to `deepest` tokens back. Grows and shrinks with the text.

    A token is entered in as many nodes as there are contexts of it that many places share, at most `deepest`.
    """

    def __init__(self, max_depth: int = MAX_CONTEXT_TOKENS) -> None:
        self.max_depth = max_depth
        self.tokens: list[int] = []
        self._root = _Node()

    def extend(self, tokens: list[int]) -> None:
        """Take in what `tokens` has beyond the text that is known; its beginning is taken as known."""
        start = len(self.tokens)
        self.tokens += tokens[start:]
        for end in range(max(start, 1), len(self.tokens)):
            self._insert(end)

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        for end in range(len(self.tokens) - 1, max(length, 1) - 1, -1):
            self._remove(end)
        del self.tokens[length:]

    def find(self, text: Sequence[int], max_matches: int) -> list[ContextMatch]:
        """Places whose context is the end of `text`: longest context first, then latest."""
        found: dict[int, int] = {}
        for depth, node in reversed(self._contexts(text)):
            for end in islice(reversed(node.positions), max_matches + MAX_UNSPLIT_POSITIONS):
                found.setdefault(end, self._matched_length(text, end, depth))
            if len(found) >= max_matches:
                break
        places = sorted(found.items(), key=lambda place: (-place[1], -place[0]))[:max_matches]
        return [
            ContextMatch(self.tokens, end, matched, WEIGHT_PER_MATCHED_TOKEN**matched)
            for end, matched in places
            if matched
        ]

    def _contexts(self, text: Sequence[int]) -> list[tuple[int, _Node]]:
        """The nodes on the way back from the end of `text`, with the length of each context."""
        node, contexts = self._root, [(0, self._root)]
        for depth in range(1, min(len(text), self.max_depth) + 1):
            below = node.children.get(text[-depth]) if node.children else None
            if below is None:
                break
            node = below
            contexts.append((depth, node))
        return contexts

    def _matched_length(self, text: Sequence[int], end: int, matched: int) -> int:
        """How far back a place agrees with `text`, which it does for `matched` tokens."""
        most = min(self.max_depth, len(text), end)
        while matched < most and self.tokens[end - matched - 1] == text[-matched - 1]:
            matched += 1
        return matched

    def _insert(self, end: int) -> None:
        node = self._root
        node.positions.append(end)
        for depth in range(min(end, self.max_depth)):
            if node.children is None:
                if len(node.positions) > MAX_UNSPLIT_POSITIONS:
                    self._split(node, depth)
                return
            node = node.children.setdefault(self.tokens[end - depth - 1], _Node())
            node.positions.append(end)

    def _split(self, node: _Node, depth: int) -> None:
        node.children = {}
        for end in node.positions:
            if end > depth:
                node.children.setdefault(self.tokens[end - depth - 1], _Node()).positions.append(end)
        for below in node.children.values():
            if len(below.positions) > MAX_UNSPLIT_POSITIONS and depth + 1 < self.max_depth:
                self._split(below, depth + 1)

    def _remove(self, end: int) -> None:
        node = self._root
        node.positions.pop()
        for depth in range(min(end, self.max_depth)):
            if len(node.positions) <= MAX_UNSPLIT_POSITIONS:
                node.children = None
            if node.children is None:
                return
            token = self.tokens[end - depth - 1]
            below = node.children[token]
            below.positions.pop()
            if not below.positions:
                del node.children[token]
            node = below


class SuffixArray:
    """Texts that do not change: all places in them, sorted by what stands before each, read backwards.

    Places with like contexts are neighbours, so the longest is found by halving: a suffix array of the reversed texts.
    """

    def __init__(self, texts: Iterable[Sequence[int]], max_depth: int = MAX_CONTEXT_TOKENS) -> None:
        self.max_depth = max_depth
        self.tokens = [token for text in texts for token in (*text, TEXT_END)]
        self._positions = self._build() if self.tokens else []

    def find(self, text: Sequence[int], max_matches: int) -> list[ContextMatch]:
        """Places whose context is the end of `text`: longest context first, then the latest of those looked at."""
        wanted = list(text[: -self.max_depth - 1 : -1])
        middle = bisect_left(self._positions, wanted, key=self._reversed_context)
        after = (self._match_at(index, wanted) for index in range(middle, len(self._positions)))
        before = (self._match_at(index, wanted) for index in range(middle - 1, -1, -1))
        nearest = merge(after, before, key=lambda place: -place.matched_tokens)  # the further away, the less agrees
        found = [place for place in islice(nearest, max_matches + MAX_UNSPLIT_POSITIONS) if place.matched_tokens]
        return sorted(found, key=lambda place: (-place.matched_tokens, -place.next_index))[:max_matches]

    def _reversed_context(self, end: int) -> list[int]:
        return self.tokens[max(end - self.max_depth, 0) : end][::-1]

    def _match_at(self, index: int, reversed_text: list[int]) -> ContextMatch:
        end, matched = self._positions[index], 0
        for ours, theirs in zip(self._reversed_context(end), reversed_text, strict=False):
            if ours != theirs:
                break
            matched += 1
        return ContextMatch(self.tokens, end, matched, WEIGHT_PER_MATCHED_TOKEN**matched)

    def _build(self) -> list[int]:
        """By doubling (Manber and Myers): ranks of contexts of length n give those of length 2n."""
        tokens = np.array(self.tokens)
        ranks, length = np.unique(tokens, return_inverse=True)[1].astype(np.int64) + 1, 1
        while length < self.max_depth:
            before = np.zeros_like(ranks)
            before[length:] = ranks[:-length]
            ranks = np.unique(ranks * (len(ranks) + 2) + before, return_inverse=True)[1].astype(np.int64) + 1
            length *= 2
        ends = np.arange(1, len(tokens))[tokens[1:] != TEXT_END]  # nothing follows the others
        return ends[np.lexsort((-ends, ranks[ends - 1]))].tolist()


class PastTextIndex:
    """What was said in other conversations: read and sorted when nobody waits for a first token.

    `read` gives the texts as tokens, the latest last. It is called from a thread of its own; whatever it raises costs
    nothing but guesses. A thread that computes takes turns with the one that answers, so it waits for `quiet` seconds
    in which no conversation began.
    """

    def __init__(self, read_texts: Callable[[], Iterable[Sequence[int]]], quiet_seconds: float = 2.0) -> None:
        self.suffix_array, self.quiet_seconds = SuffixArray(()), quiet_seconds
        self._read_texts = read_texts
        self._texts: list[Sequence[int]] = []
        self._refresh_at = 0.0
        self._thread: Thread | None = None

    def refresh(self) -> None:
        """Read anew, soon."""
        self._refresh_at = monotonic() + self.quiet_seconds
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._build_when_quiet, name="recall", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Until what was begun is done."""
        if self._thread is not None:
            self._thread.join()

    def _build_when_quiet(self) -> None:
        while (left := self._refresh_at - monotonic()) > 0:
            sleep(left)
        try:
            said = list(self._read_texts())
            if said != self._texts:
                self.suffix_array, self._texts = SuffixArray(said), said
        except Exception:  # the edge of a thread: guesses are never worth an answer
            log.exception("what was said before cannot be read")


class SuffixDecoding(Drafter):
    """What followed the longest contexts, likeliest first, as far as the match can be trusted."""

    name = "suffix"
    is_instant = True

    def __init__(self, past_texts: PastTextIndex | None = None) -> None:
        self.tree, self.past_texts = SuffixTree(), past_texts

    def propose(self, context: DraftContext) -> DraftTree:
        """A tree of at most `budget` guesses; a long or unanimous match gives a long chain, a short one a few."""
        self.tree.extend(context.tokens)
        places = self.tree.find(context.tokens, MAX_MATCHES)
        if self.past_texts is not None:
            elsewhere = self.past_texts.suffix_array.find(context.tokens, MAX_MATCHES)
            places += [place for place in elsewhere if place.matched_tokens >= MIN_PAST_TEXT_MATCH]
            places.sort(key=lambda place: -place.matched_tokens)
        tree = DraftTree(context.tokens[-1])
        _add_continuations(tree, places, context.max_draft_tokens, self.name)
        return tree

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self.tree.truncate(length)


def _add_continuations(tree: DraftTree, matches: list[ContextMatch], max_draft_tokens: int, source: str) -> None:
    """Guess the likeliest continuation of `places` first, and so on until the budget or the least chance.

    A guess has the chance of its parent, times its share in the weights of the places, times m / (m + 1) for the m
    tokens that agree before it. Along one place that is m / (m + k) for k guesses: the longer the match, the further.
    """
    waiting: list[tuple[float, int, int, int, list[ContextMatch]]] = []  # (-chance, order, parent, token, places)

    def continue_with(node: int, chance: float, places: list[ContextMatch]) -> None:
        depth, choices, whole = tree.depths[node], dict[int, list[ContextMatch]](), 0.0
        for place in places:
            period = len(place.tokens) - place.next_index  # what is guessed past the end of the text repeats itself
            token = place.tokens[place.next_index + depth % period]
            if token != TEXT_END:
                choices.setdefault(token, []).append(place)
                whole += place.weight
        for token, those in choices.items():
            matched = depth + those[0].matched_tokens  # the longest match comes first
            share = 1.0 if len(choices) == 1 else sum(place.weight for place in those) / whole
            likely = chance * share * matched / (matched + 1)
            if likely >= MIN_PROBABILITY:  # of equal chances, the one found earlier
                heappush(waiting, (-likely, next(order), node, token, those))

    order = count()
    continue_with(ROOT, 1.0, matches)
    while waiting and len(tree) <= max_draft_tokens:
        negative, _, parent, token, matches = heappop(waiting)
        continue_with(tree.add(token, parent, source), -negative, matches)
