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

from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.model import FINAL_NORM, Model, select_layers
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree

TOP_K = 8  # candidates of each head
PRIOR_PROBABILITIES = (
    0.5,
    0.13,
    0.07,
    0.05,
    0.03,
    0.02,
    0.015,
    0.01,
)  # that the candidate of each rank is right, for the first head
DEPTH_DECAY = 0.75  # of it, for each head further ahead
LEARNING_RATE = 0.02
MIN_PATH_PROBABILITY = 0.01  # of a path; a row for less is never worth it


class MedusaDraftHead(Protocol):
    """A head, or several, that guess from the state after the final norm."""

    tokens_ahead: int  # tokens ahead

    def logits(self, hidden_states: Tensor) -> list[Tensor]:
        """[n, D] -> for each token ahead, behind the one that the target itself gives, [n, V]."""
        ...


class Medusa(Drafter):
    """A static tree that learns its shape. It keeps one hidden state of the text, and candidates of one step."""

    name = "medusa"
    hidden_state_layers = (FINAL_NORM,)

    def __init__(self, head: MedusaDraftHead, target: Model) -> None:
        self.head, self.target = head, target
        self.acceptance_probabilities = [
            [chance * DEPTH_DECAY**ahead for chance in PRIOR_PROBABILITIES] for ahead in range(head.tokens_ahead)
        ]
        self._hidden_state: Tensor | None = None  # of the last token that the target has read [1, D]
        self._hidden_state_end = 0  # tokens up to and with that one
        self._candidates: list[list[list[int]]] = []  # of the last tree, by depth: of one place, or of every parent
        self._draft_position = -1  # position of the root of that tree

    def propose(self, context: DraftContext) -> DraftTree:
        """The likeliest crossings of the candidates, at most `budget` nodes."""
        tree, sampler = DraftTree(context.tokens[-1]), context.sampler
        self._candidates, self._draft_position = [], len(context.tokens) - 1
        if self._hidden_state is None or self._hidden_state_end != len(context.tokens) - 1:
            return tree
        below = sparse_tree(self.acceptance_probabilities, context.max_draft_tokens)
        level = [(ROOT, ROOT)]  # nodes of the tree, and of its shape
        for ahead, logits in enumerate(self.head.logits(self._hidden_state)):
            level = [(node, place) for node, place in level if below[place]]
            if not level:
                break
            paths = [tree.path_tokens(node) for node, _place in level] if sampler.has_penalties else None
            count = len(level) if paths else 1
            rows = LogitRows([len(context.tokens) - 1 + ahead] * count, paths)
            best = sampler.rank(logits.expand(count, -1), rows, context.seen_tokens, count=TOP_K).token_ids.tolist()
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
        if outcome.logits is not None and outcome.root_position == self._draft_position:
            self._update_probabilities([outcome.sampled_tokens[node] for node in outcome.path])
        self._candidates = []
        if outcome.hidden_states is not None and FINAL_NORM in self.target.hidden_state_layers:
            self._hidden_state = select_layers(
                outcome.hidden_states[-1:], self.target.hidden_state_layers, self.hidden_state_layers
            )
            self._hidden_state_end = outcome.root_position + len(outcome.path)

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        if length < self._hidden_state_end:
            self._hidden_state, self._hidden_state_end = None, 0
        self._candidates = []

    def _update_probabilities(self, sampled_tokens: list[int]) -> None:
        """`picked`: what the target chose at each depth, as far as the guesses before it held."""
        for chances, candidates, token in zip(
            self.acceptance_probabilities, self._candidates, sampled_tokens, strict=False
        ):
            for rank in range(TOP_K):
                is_right = rank < len(candidates[0]) and candidates[0][rank] == token
                chances[rank] += LEARNING_RATE * (is_right - chances[rank])


def sparse_tree(probabilities: list[list[float]], max_nodes: int) -> list[list[tuple[int, int]]]:
    """For every node, root first, which ranks follow it and as which nodes: the `nodes` likeliest crossings.

    `chances[d][r]`: that at depth d + 1 the candidate of rank r is right. With [[0.5, 0.4], [0.6, 0.1]] and 3 nodes:
    [[(0, 1), (1, 2)], [(0, 3)], [], []].
    """
    below: list[list[tuple[int, int]]] = [[]]
    waiting: list[tuple[float, int, int, int]] = []  # less its chance, depth, parent, rank

    def open_below(node: int, depth: int, chance: float) -> None:
        if depth < len(probabilities):
            for rank, share in enumerate(probabilities[depth]):
                heappush(waiting, (-chance * share, depth, node, rank))

    open_below(ROOT, 0, 1.0)
    while len(below) <= max_nodes and waiting and -waiting[0][0] >= MIN_PATH_PROBABILITY:
        negative, depth, parent, rank = heappop(waiting)
        below[parent].append((rank, len(below)))
        open_below(len(below), depth + 1, -negative)
        below.append([])
    return below
