"""What the target nearly said after a token is what it may say after that token next time.

Token Recycling (arXiv 2408.08696): for every token, the best candidates that the target last gave after it, taken
from all nodes of a tree, the wrong ones too. They are followed breadth-first through a tree of a fixed shape. At
T > 0 the candidates are ranked with the shared dice, by what their logits were then. It knows logits and token ids;
of the text, it looks at the last token only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush

import torch
from torch import Tensor

from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree

CANDIDATES_PER_TOKEN = 8  # kept for every token
RANK_PROBABILITIES = (
    0.5,
    0.15,
    0.08,
    0.05,
    0.04,
    0.03,
    0.025,
    0.02,
)  # that the candidate of each rank holds: shapes the tree
MAX_TOKEN_ID = 2**31  # beyond every token id
MAX_PENDING_OUTCOMES = 64  # outcomes that may wait until the next proposal


@dataclass(frozen=True)
class PendingCandidates:
    """The best candidates after some tokens, still on the device."""

    tokens: list[int]
    logits: Tensor  # [N, CANDIDATES]
    token_ids: Tensor  # [N, CANDIDATES]


@lru_cache
def tree_template(max_nodes: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """For every node, root first, which ranks follow it and as which nodes: the `nodes` likeliest under `CHANCES`.

    `shape(3)` is (((0, 1), (1, 3)), ((0, 2),), (), ()): the two best after the root, and the best after the better.
    """
    below: list[list[tuple[int, int]]] = [[]]
    waiting = [(-RANK_PROBABILITIES[0], ROOT, 0)]
    while len(below) <= max_nodes:
        negative, parent, rank = heappop(waiting)
        below[parent].append((rank, len(below)))
        heappush(waiting, (negative * RANK_PROBABILITIES[0], len(below), 0))
        if rank + 1 < len(RANK_PROBABILITIES):
            heappush(waiting, (negative / RANK_PROBABILITIES[rank] * RANK_PROBABILITIES[rank + 1], parent, rank + 1))
        below.append([])
    return tuple(map(tuple, below))


class TokenRecycling(Drafter):
    """A matrix of candidates, a row for each token that was ever verified. It belongs to no text: nothing to forget."""

    name = "recycling"

    def __init__(self) -> None:
        self._candidates: dict[int, list[tuple[int, float]]] = {}  # token -> what followed and its logit, best first
        self._pending: list[PendingCandidates] = []

    def propose(self, context: DraftContext) -> DraftTree:
        """The candidates of the last token, theirs, and so on: `budget` guesses once enough is known."""
        self._store_pending()
        tree = DraftTree(context.tokens[-1])
        below, layer = (
            tree_template(max(context.max_draft_tokens, 0)),
            [(ROOT, ROOT)],
        )  # nodes of the tree and of its shape
        for node, place in layer:  # grows while it is read: breadth-first
            if not below[place]:
                continue
            best = self._ranked_candidates(context, tree, node)
            layer += [
                (tree.add(best[rank], node, self.name), next_) for rank, next_ in below[place] if rank < len(best)
            ]
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Keep the best candidates at every node; all logits would be megabytes a step."""
        if outcome.logits is None:
            return
        best = outcome.logits.topk(min(CANDIDATES_PER_TOKEN, outcome.logits.shape[-1]))
        self._pending = [
            *self._pending[1 - MAX_PENDING_OUTCOMES :],
            PendingCandidates(list(outcome.tree.tokens), best.values, best.indices),
        ]

    def _store_pending(self) -> None:
        for heard in self._pending:
            for token, ids, logits in zip(heard.tokens, heard.token_ids.tolist(), heard.logits.tolist(), strict=True):
                self._candidates[token] = list(zip(ids, logits, strict=True))
        self._pending.clear()

    def _ranked_candidates(self, context: DraftContext, tree: DraftTree, node: int) -> list[int]:
        """The candidates after a node, in the order in which the sampler would pick them from their old logits."""
        sampler, prefix = context.sampler, context.seen_tokens
        padding = sampler.vocab_size or MAX_TOKEN_ID
        known = [(token, logit) for token, logit in self._candidates.get(tree.tokens[node], []) if token < padding]
        ids = [token for token, _logit in known]
        if not ids or (sampler.temperature == 0 and not sampler.has_penalties):
            return ids
        device = prefix.mask.device if prefix is not None else None
        paths = [tree.path_tokens(node)] if sampler.has_penalties else None
        rows = LogitRows([len(context.tokens) - 1 + tree.depths[node]], paths, torch.tensor(ids, device=device))
        logits = torch.tensor([[logit for _token, logit in known]], device=device)
        return sampler.rank(logits, rows, prefix, count=len(ids)).token_ids[0].tolist()
