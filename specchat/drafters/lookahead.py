"""The target guesses for itself: tokens ahead of the text, refined in every pass, and the n-grams they leave behind.

Lookahead decoding (arXiv 2402.02057), spoken as a tree. A *window* of guesses hangs from the root as a chain. What the
target picks after each of them is the next guess for the place behind it (a Jacobi iteration), so the window follows
the text at no extra pass. What it picked after a guess, and after that again in the next iteration, makes an n-gram
that the target itself would write; these are pooled by their first token, and those that begin with the last token of
the text hang from the root as guesses.

What differs from the paper, because a node of a tree sees the text and its own ancestors only: the paper keeps the
last N - 1 iterations in the pass and lets a place see its own past, at N - 1 rows for each place. Here the window is
the newest iteration alone, each place sees the newest guesses before it, and the trail of a place through the
iterations is remembered outside the pass: one row for each place, a little less truth in each n-gram. And there is
no difference between verifying and looking ahead: the window is verified too, and every node of every tree, whoever
guessed it, gives an n-gram to the pool, as does the sure text.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree

MAX_NGRAM_TOKENS = 5  # tokens of an n-gram, its first included
NGRAMS_PER_TOKEN = 7  # n-grams kept for each first token, newest first
MAX_FIRST_TOKENS = 20_000  # first tokens that are remembered
MAX_PENDING_OUTCOMES = 64  # outcomes that may wait until the next proposal


@dataclass(frozen=True)
class PendingOutcome:
    """What is kept of an outcome until it is read."""

    tree: DraftTree
    path: list[int]
    sampled_tokens: list[int]


class NgramPool:
    """N-grams that the target wrote, by their first token; the oldest are forgotten."""

    def __init__(self) -> None:
        self._continuations: OrderedDict[int, list[tuple[int, ...]]] = OrderedDict()

    def add(self, ngram: tuple[int, ...]) -> None:
        """Remember an n-gram of two tokens or more."""
        first, rest = ngram[0], ngram[1:]
        others = [other for other in self._continuations.get(first, []) if other != rest[: len(other)]]
        self._continuations[first] = [rest, *others][:NGRAMS_PER_TOKEN]
        self._continuations.move_to_end(first)
        if len(self._continuations) > MAX_FIRST_TOKENS:
            self._continuations.popitem(last=False)

    def continuations(self, token: int) -> list[tuple[int, ...]]:
        """What followed a token, newest first."""
        return self._continuations.get(token, [])


class Lookahead(Drafter):
    """A Jacobi window and a pool of n-grams. The pool belongs to no text; the window does.

    `window` places are looked ahead; n-grams take what they leave of the budget, at least half of it.
    """

    name = "lookahead"

    def __init__(self, window: int = 8) -> None:
        self.window = window
        self.pool = NgramPool()
        self._trajectories: list[
            tuple[int, ...]
        ] = []  # of each place behind the root: its guess last, and what led to it
        self._pending: list[PendingOutcome] = []
        self._indexed_length = 0  # n-grams of the text that end before this length are in the pool

    def propose(self, context: DraftContext) -> DraftTree:
        """N-grams that begin with the last token, newest first, and the window."""
        for verdict in self._pending:
            self._add_outcome(verdict)
        self._pending.clear()
        self._add_text(context.tokens)
        self._fill_window(context.tokens)
        tree = DraftTree(context.tokens[-1])
        looking = min(self.window, (context.max_draft_tokens + 1) // 2)
        for rest in self.pool.continuations(context.tokens[-1]):
            tree.add_chain(list(rest[: context.max_draft_tokens - looking + 1 - len(tree)]), source=self.name)
        tree.add_chain(
            [trail[-1] for trail in self._trajectories[: context.max_draft_tokens + 1 - len(tree)]], source=self.name
        )
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Keep the tree and the picks; a prompt tells nothing that the target picked."""
        if outcome.logits is not None:
            verdict = PendingOutcome(outcome.tree, outcome.path, outcome.sampled_tokens)
            self._pending = [*self._pending[1 - MAX_PENDING_OUTCOMES :], verdict]

    def forget(self, length: int) -> None:
        """The text was cut back: what was guessed to follow it is void."""
        self._trajectories.clear()
        self._pending.clear()
        self._indexed_length = min(self._indexed_length, length + 1)

    def _add_outcome(self, outcome: PendingOutcome) -> None:
        for node in range(len(outcome.tree)):
            self.pool.add(_ngram_at(outcome, node))
        self._trajectories = self._jacobi_step(outcome.tree, outcome.sampled_tokens)[len(outcome.path) - 1 :]

    def _add_text(self, tokens: list[int]) -> None:
        for end in range(max(self._indexed_length, 2), len(tokens) + 1):
            self.pool.add(tuple(tokens[max(end - MAX_NGRAM_TOKENS, 0) : end]))
        self._indexed_length = len(tokens) + 1

    def _jacobi_step(self, tree: DraftTree, sampled_tokens: list[int]) -> list[tuple[int, ...]]:
        """The window one place further on: what was picked after each of its guesses, as far as they were verified."""
        trails, node = list[tuple[int, ...]](), ROOT
        for trail in self._trajectories:
            below = tree.child(node, trail[-1])
            if below is None:
                break
            node = below
            grown = (*trail[1 - MAX_NGRAM_TOKENS :], sampled_tokens[node])
            if len(grown) > 2:
                self.pool.add(grown)
            trails.append(grown)
        return trails

    def _fill_window(self, tokens: list[int]) -> None:
        """New places of the window begin with tokens of the text, in turn: any guess will do."""
        for place in range(len(self._trajectories), self.window):
            self._trajectories.append((tokens[-1 - place % len(tokens)],))
        del self._trajectories[self.window :]


def _ngram_at(outcome: PendingOutcome, node: int) -> tuple[int, ...]:
    """The target's token after a node, behind the guess there, and behind those above as long as they were its own."""
    tree, picks = outcome.tree, outcome.sampled_tokens
    ngram = [tree.tokens[node], picks[node]]
    while node != ROOT and len(ngram) < MAX_NGRAM_TOKENS and picks[tree.parents[node]] == tree.tokens[node]:
        node = tree.parents[node]
        ngram.insert(0, tree.tokens[node])
    return tuple(ngram)
