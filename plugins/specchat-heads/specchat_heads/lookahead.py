"""Lookahead decoding (arXiv 2402.02057): the target drafts for itself with Jacobi iterations and an n-gram pool.

A *window* of draft tokens is a chain below the root. The token that the target samples after each of them is the next
draft token of the position behind it (a Jacobi iteration), so the window follows the text without an extra pass. The
samples of one position in successive iterations are an n-gram that the target itself would write. A pool stores these
n-grams by their first token, and those that begin with the last token of the text become branches of the tree.

There are two differences from the paper. First, a tree node attends only to the text and its ancestors. The paper keeps
the last N - 1 iterations in the pass, with N - 1 rows for each position. Here the window is the newest iteration alone,
and the trajectory of a position through the iterations is stored outside the pass: one row for each position, and
slightly less accurate n-grams. Second, the window is verified, too, and every node of every tree, of any drafter, adds
an n-gram to the pool, as does the committed text.
"""

from collections import OrderedDict
from dataclasses import dataclass

from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree

MAX_NGRAM_TOKENS = 5  # with the first token
NGRAMS_PER_TOKEN = 7  # n-grams stored for each first token, newest first
MAX_FIRST_TOKENS = 20_000  # stored first tokens
MAX_PENDING_OUTCOMES = 16  # outcomes that are stored until the next proposal


@dataclass(frozen=True)
class PendingOutcome:
    tree: DraftTree
    path: list[int]
    sampled_tokens: list[int]


class NgramPool:
    """N-grams of the target by their first token; the oldest are dropped."""

    def __init__(self) -> None:
        self._continuations: OrderedDict[int, list[tuple[int, ...]]] = OrderedDict()

    def add(self, ngram: tuple[int, ...]) -> None:
        first, rest = ngram[0], ngram[1:]
        others = [other for other in self._continuations.get(first, []) if other != rest[: len(other)]]
        self._continuations[first] = [rest, *others][:NGRAMS_PER_TOKEN]
        self._continuations.move_to_end(first)
        if len(self._continuations) > MAX_FIRST_TOKENS:
            self._continuations.popitem(last=False)

    def continuations(self, token: int) -> list[tuple[int, ...]]:
        """The rests of the n-grams that begin with a token, newest first."""
        return self._continuations.get(token, [])


class Lookahead(Drafter):
    """A Jacobi window and a pool of n-grams. The pool belongs to no text; the window does.

    The window has `window` positions; n-grams get the rest of the budget, at least half of it.
    """

    name = "lookahead"

    def __init__(self, window: int = 8) -> None:
        self.window = window
        self.pool = NgramPool()
        self._trajectories: list[tuple[int, ...]] = []  # of each position behind the root, its draft token last
        self._pending: list[PendingOutcome] = []
        self._indexed_length = 0  # the pool contains the n-grams of the text that end before this length

    def propose(self, context: DraftContext) -> DraftTree:
        """N-grams that begin with the last token, newest first, and the window."""
        for outcome in self._pending:
            self._add_outcome(outcome)
        self._pending.clear()
        self._add_text(context.tokens)
        self._fill_window(context.tokens)
        tree = DraftTree(context.tokens[-1])
        window = min(self.window, (context.max_draft_tokens + 1) // 2)
        for rest in self.pool.continuations(context.tokens[-1]):
            tree.add_chain(list(rest[: context.max_draft_tokens - window + 1 - len(tree)]), source=self.name)
        trajectories = self._trajectories[: context.max_draft_tokens + 1 - len(tree)]
        tree.add_chain([trajectory[-1] for trajectory in trajectories], source=self.name)
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Store the tree and the sampled tokens; a prompt has no sampled tokens."""
        if outcome.logits is not None:
            pending = PendingOutcome(outcome.tree, outcome.path, outcome.sampled_tokens)
            self._pending = [*self._pending[1 - MAX_PENDING_OUTCOMES :], pending]

    def forget(self, length: int) -> None:
        """Follow a truncation of the text: the window is no longer valid."""
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
        """The next iteration: the tokens sampled after the window's draft tokens, as far as these were verified."""
        trajectories, node = list[tuple[int, ...]](), ROOT
        for trajectory in self._trajectories:
            child = tree.child(node, trajectory[-1])
            if child is None:
                break
            node = child
            extended = (*trajectory[1 - MAX_NGRAM_TOKENS :], sampled_tokens[node])
            if len(extended) > 2:
                self.pool.add(extended)
            trajectories.append(extended)
        return trajectories

    def _fill_window(self, tokens: list[int]) -> None:
        """Start new positions of the window with tokens of the text; any token converges."""
        for position in range(len(self._trajectories), self.window):
            self._trajectories.append((tokens[-1 - position % len(tokens)],))
        del self._trajectories[self.window :]


def _ngram_at(outcome: PendingOutcome, node: int) -> tuple[int, ...]:
    """The token sampled after a node, the node itself, and its ancestors as far as the target sampled them."""
    tree, sampled = outcome.tree, outcome.sampled_tokens
    ngram = [tree.tokens[node], sampled[node]]
    while node != ROOT and len(ngram) < MAX_NGRAM_TOKENS and sampled[tree.parents[node]] == tree.tokens[node]:
        node = tree.parents[node]
        ngram.insert(0, tree.tokens[node])
    return tuple(ngram)


def build(_resources: object) -> Drafter:
    return Lookahead()
