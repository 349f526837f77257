"""Suffix decoding (arXiv 2411.04975): drafts what most often followed the longest matching context.

It searches the whole text (prompt, attached files and past turns) and the texts of other conversations. The contexts of
the text are in a tree that is read backwards from each position. This is the suffix-link tree of a suffix automaton,
the only part of the automaton that drafting needs. Unlike the automaton, it can be truncated, position by position. The
texts of other conversations do not change during this one, so their contexts are in a suffix array, which takes a sixth
of the time to build. This file knows token ids only.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush, merge
from itertools import count, islice
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.tree import ROOT, DraftTree

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources

log = logging.getLogger(__name__)

MAX_CONTEXT_TOKENS = 32  # longest distinguished context
MAX_MATCHES = 8  # earlier positions whose continuations are counted
MAX_UNSPLIT_POSITIONS = 8  # positions of a node that are compared one by one, without children
WEIGHT_PER_MATCHED_TOKEN = 10.0  # factor on the weight of a match for each matched token
INDEX_BYTES_PER_TOKEN = 170  # of a text that repeats little
MIN_PROBABILITY = 0.03  # of a draft token
MIN_PAST_TEXT_MATCH = 4  # matched tokens in other conversations: shorter matches are accidental
PAST_ANSWERS = "past answers"  # the source of draft tokens that only other conversations contain
TEXT_END = -1  # separates the other texts; equal to no token


class _Node:
    """All positions with one context. Children are the contexts that reach one token further back."""

    __slots__ = ("children", "positions")

    def __init__(self) -> None:
        self.positions: list[int] = []  # in the order of the text
        self.children: dict[int, _Node] | None = None  # None while there are few positions


class ContextMatch(NamedTuple):
    """A position whose context is the end of the text."""

    tokens: Sequence[int]
    next_index: int  # of the token that followed
    matched_tokens: int  # before it
    weight: float
    is_own: bool = True  # in this conversation, and not in another one


class SuffixTree:
    """The positions of each context of a text, at most `max_depth` tokens long. It grows and shrinks with the text."""

    def __init__(self, max_depth: int = MAX_CONTEXT_TOKENS) -> None:
        self.max_depth = max_depth
        self.tokens: list[int] = []
        self._root = _Node()

    def extend(self, tokens: list[int]) -> None:
        """Index the tokens beyond the indexed text; `tokens` must start with that text."""
        start = len(self.tokens)
        self.tokens += tokens[start:]
        for end in range(max(start, 1), len(self.tokens)):
            self._insert(end)

    def truncate(self, length: int) -> None:
        for end in range(len(self.tokens) - 1, max(length, 1) - 1, -1):
            self._remove(end)
        del self.tokens[length:]

    def find(self, text: Sequence[int], max_matches: int) -> list[ContextMatch]:
        """Positions whose context is the end of `text`: longest context first, then latest."""
        matches: dict[int, int] = {}
        for depth, node in reversed(self._contexts(text)):
            for end in islice(reversed(node.positions), max_matches + MAX_UNSPLIT_POSITIONS):
                matches.setdefault(end, self._matched_length(text, end, depth))
            if len(matches) >= max_matches:
                break
        best = sorted(matches.items(), key=lambda match: (-match[1], -match[0]))[:max_matches]
        return [
            ContextMatch(self.tokens, end, matched, WEIGHT_PER_MATCHED_TOKEN**matched)
            for end, matched in best
            if matched
        ]

    def _contexts(self, text: Sequence[int]) -> list[tuple[int, _Node]]:
        """The nodes of the contexts at the end of `text`, with the length of each context."""
        node, contexts = self._root, [(0, self._root)]
        for depth in range(1, min(len(text), self.max_depth) + 1):
            child = node.children.get(text[-depth]) if node.children else None
            if child is None:
                break
            node = child
            contexts.append((depth, node))
        return contexts

    def _matched_length(self, text: Sequence[int], end: int, matched: int) -> int:
        """The length of the common context of a position and `text`, of which `matched` tokens are compared."""
        limit = min(self.max_depth, len(text), end)
        while matched < limit and self.tokens[end - matched - 1] == text[-matched - 1]:
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
        for child in node.children.values():
            if len(child.positions) > MAX_UNSPLIT_POSITIONS and depth + 1 < self.max_depth:
                self._split(child, depth + 1)

    def _remove(self, end: int) -> None:
        node = self._root
        node.positions.pop()
        for depth in range(min(end, self.max_depth)):
            if len(node.positions) <= MAX_UNSPLIT_POSITIONS:
                node.children = None
            if node.children is None:
                return
            token = self.tokens[end - depth - 1]
            child = node.children[token]
            child.positions.pop()
            if not child.positions:
                del node.children[token]
            node = child


class SuffixArray:
    """All positions of texts that do not change, sorted by their reversed contexts: a suffix array.

    Positions with similar contexts are neighbours, so a binary search finds the longest match.
    """

    def __init__(self, texts: Iterable[Sequence[int]], max_depth: int = MAX_CONTEXT_TOKENS) -> None:
        self.max_depth = max_depth
        self.tokens = [token for text in texts for token in (*text, TEXT_END)]
        self._positions = self._build() if self.tokens else []

    def find(self, text: Sequence[int], max_matches: int) -> list[ContextMatch]:
        """Positions whose context is the end of `text`: longest context first, then the latest of those compared."""
        context = list(text[: -self.max_depth - 1 : -1])
        middle = bisect_left(self._positions, context, key=self._reversed_context)
        after = (self._match_at(index, context) for index in range(middle, len(self._positions)))
        before = (self._match_at(index, context) for index in range(middle - 1, -1, -1))
        nearest = merge(after, before, key=lambda match: -match.matched_tokens)  # matches get shorter with the distance
        matches = [match for match in islice(nearest, max_matches + MAX_UNSPLIT_POSITIONS) if match.matched_tokens]
        return sorted(matches, key=lambda match: (-match.matched_tokens, -match.next_index))[:max_matches]

    def _reversed_context(self, end: int) -> list[int]:
        return self.tokens[max(end - self.max_depth, 0) : end][::-1]

    def _match_at(self, index: int, reversed_text: list[int]) -> ContextMatch:
        end, matched = self._positions[index], 0
        for own_token, text_token in zip(self._reversed_context(end), reversed_text, strict=False):
            if own_token != text_token:
                break
            matched += 1
        return ContextMatch(self.tokens, end, matched, WEIGHT_PER_MATCHED_TOKEN**matched, is_own=False)

    def _build(self) -> list[int]:
        """Prefix doubling (Manber and Myers): ranks of contexts of length n give those of length 2n."""
        tokens = np.array(self.tokens)
        ranks, length = np.unique(tokens, return_inverse=True)[1].astype(np.int64) + 1, 1
        while length < self.max_depth:
            before = np.zeros_like(ranks)
            before[length:] = ranks[:-length]
            ranks = np.unique(ranks * (len(ranks) + 2) + before, return_inverse=True)[1].astype(np.int64) + 1
            length *= 2
        ends = np.arange(1, len(tokens))[tokens[1:] != TEXT_END]  # only positions that a token follows
        return ends[np.lexsort((-ends, ranks[ends - 1]))].tolist()


class PastTextIndex:
    """The suffix array of other conversations, built in the background.

    `read_texts` returns the texts as tokens, the latest last. It is called in a thread; an exception in it costs draft
    tokens only. The thread competes with the answer for the interpreter, so it waits until no conversation has started
    for `quiet_seconds`.
    """

    def __init__(self, read_texts: Callable[[], Iterable[Sequence[int]]], quiet_seconds: float = 2.0) -> None:
        self.suffix_array, self.quiet_seconds = SuffixArray(()), quiet_seconds
        self._read_texts = read_texts
        self._texts: list[Sequence[int]] = []
        self._refresh_at = 0.0
        self._thread: Thread | None = None

    def refresh(self) -> None:
        self._refresh_at = monotonic() + self.quiet_seconds
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._build_when_quiet, name="past-text-index", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _build_when_quiet(self) -> None:
        while (left := self._refresh_at - monotonic()) > 0:
            sleep(left)
        try:
            texts = list(self._read_texts())
            if texts != self._texts:
                self.suffix_array, self._texts = SuffixArray(texts), texts
        except Exception:  # the edge of a thread: an answer never depends on draft tokens
            log.exception("past conversations cannot be read")


class SuffixDecoding(Drafter):
    """Drafts what followed the longest matching contexts, most probable first."""

    name = "suffix"
    is_instant = True

    def __init__(self, past_texts: PastTextIndex | None = None) -> None:
        self.tree, self.past_texts = SuffixTree(), past_texts

    def propose(self, context: DraftContext) -> DraftTree:
        """A tree of continuations: long or unanimous matches give a long chain, short ones a few draft tokens."""
        self.tree.extend(context.tokens)
        matches = self.tree.find(context.tokens, MAX_MATCHES)
        if self.past_texts is not None:
            past_matches = self.past_texts.suffix_array.find(context.tokens, MAX_MATCHES)
            matches += [match for match in past_matches if match.matched_tokens >= MIN_PAST_TEXT_MATCH]
            matches.sort(key=lambda match: -match.matched_tokens)
        tree = DraftTree(context.tokens[-1])
        _add_continuations(tree, matches, context.max_draft_tokens)
        return tree

    def forget(self, length: int) -> None:
        self.tree.truncate(length)

    def memory_bytes(self) -> int:
        return INDEX_BYTES_PER_TOKEN * len(self.tree.tokens)


def _add_continuations(tree: DraftTree, matches: list[ContextMatch], max_draft_tokens: int) -> None:
    """Add the continuations of the matches, most probable token first, until the budget or MIN_PROBABILITY.

    The probability of a token is that of its parent, times its share of the weights of the matches, times m / (m + 1)
    for m matched tokens before it. Along one match that is m / (m + k) for k draft tokens: a longer match gives more.
    """
    queue: list[tuple[float, int, int, int, list[ContextMatch]]] = []  # (-probability, order, parent, token, matches)

    def push_children(node: int, node_probability: float, node_matches: list[ContextMatch]) -> None:
        depth, choices, total_weight = tree.depths[node], dict[int, list[ContextMatch]](), 0.0
        for match in node_matches:
            period = len(match.tokens) - match.next_index  # past the end of the text, the continuation repeats
            token = match.tokens[match.next_index + depth % period]
            if token != TEXT_END:
                choices.setdefault(token, []).append(match)
                total_weight += match.weight
        for token, token_matches in choices.items():
            matched = depth + token_matches[0].matched_tokens  # the longest match comes first
            share = 1.0 if len(choices) == 1 else sum(match.weight for match in token_matches) / total_weight
            probability = node_probability * share * matched / (matched + 1)
            if probability >= MIN_PROBABILITY:  # equal probabilities: the one found earlier comes first
                heappush(queue, (-probability, next(order), node, token, token_matches))

    order = count()
    push_children(ROOT, 1.0, matches)
    while queue and len(tree) <= max_draft_tokens:
        negative, _, parent, token, matches = heappop(queue)
        source = SuffixDecoding.name if any(match.is_own for match in matches) else PAST_ANSWERS
        push_children(tree.add(token, parent, source), -negative, matches)


def build(resources: DraftingResources) -> Drafter:
    return SuffixDecoding(resources.past_texts)
