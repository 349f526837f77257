"""Suffix decoding (arXiv 2411.04975): drafts what most often followed the longest matching context.

It searches the whole text (prompt, attached files and past turns) and the texts of other conversations
(`suffix_contexts.py`). Where the native kernels are there, all of it is one call. This file knows token ids only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from specchat.drafters.native_suffix import NativeSuffix
from specchat.drafters.suffix_contexts import (
    MIN_PROBABILITY,
    TEXT_END,
    ContextMatch,
    SuffixArray,
    TextIndex,
    find_contexts,
)
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.tree import ROOT, DraftTree

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources

log = logging.getLogger(__name__)

PAST_ANSWERS = "past answers"  # the source of draft tokens that only other conversations contain
NO_TEXTS = SuffixArray(())


class PastTextIndex:
    """The suffix array of other conversations, built in the background.

    `read_texts` returns the texts as tokens, the latest last. It is called in a thread; an exception in it costs draft
    tokens only. The thread competes with the answer for the interpreter, so it waits until no conversation has started
    for `quiet_seconds`.
    """

    def __init__(self, read_texts: Callable[[], Iterable[Sequence[int]]], quiet_seconds: float = 2.0) -> None:
        self.suffix_array, self.quiet_seconds = NO_TEXTS, quiet_seconds
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
        self.index, self.past_texts, self._native = TextIndex(), past_texts, NativeSuffix.here()

    def propose(self, context: DraftContext) -> DraftTree:
        """A tree of continuations: long or unanimous matches give a long chain, short ones a few draft tokens."""
        self.index.extend(context.tokens)
        past = NO_TEXTS if self.past_texts is None else self.past_texts.suffix_array
        tree, limit = DraftTree(context.tokens[-1]), context.max_draft_tokens
        if self._native is None:
            add_continuations(tree, find_contexts(self.index, past), limit)
        else:
            for token, parent, is_own in self._native.draft(self.index, past, limit):
                tree.add(token, parent, self.name if is_own else PAST_ANSWERS)
        return tree

    def forget(self, length: int) -> None:
        self.index.truncate(length)

    def memory_bytes(self) -> int:
        return self.index.bytes


def add_continuations(tree: DraftTree, matches: list[ContextMatch], max_draft_tokens: int) -> None:
    """Add the continuations of the matches, most probable token first, until the budget or MIN_PROBABILITY.

    The probability of a token is that of its parent, times its share of the weights of the matches, times m / (m + 1)
    for m matched tokens before it. Along one match that is m / (m + k) for k draft tokens: a longer match gives more.
    """
    queue: list[tuple[float, int, int, int, list[ContextMatch]]] = []  # (-probability, order, parent, token, matches)

    def push_children(node: int, node_probability: float, node_matches: list[ContextMatch]) -> None:
        depth, choices, total_weight = tree.depths[node], dict[int, list[ContextMatch]](), 0.0
        for match in node_matches:
            period = len(match.tokens) - match.next_index  # past the end of the text, the continuation repeats
            token = int(match.tokens[match.next_index + depth % period])
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
